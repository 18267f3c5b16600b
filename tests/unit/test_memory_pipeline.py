"""Memory of the ranks of a pipeline: in flight, versions, phases, and what fits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.memory import (
    SliceLoad,
    Transformer,
    options,
    pipeline_memory,
    profile_slices,
    size,
    transformer_memory,
)
from pplab.core.profile import LayerProfile, Profile
from pplab.core.schedule import Schedule, ScheduleError
from pplab.core.schedules import (
    gpipe,
    interleaved,
    one_f_one_b,
    pipedream,
    pipedream_2bw,
    zb_h1,
)

GPT3 = Transformer(96, 12288, 96, 2048, 51200, 2048)
LOADS = [SliceLoad(1e6, 100.0, output=10.0, kept_output=10.0, workspace=5.0)] * 4


@given(st.integers(1, 8), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_1f1b_holds_min_of_what_is_left_and_m(stages, micro_batches):
    plan = one_f_one_b(stages=stages, micro_batches=micro_batches)
    memory = pipeline_memory([SliceLoad(1.0, 1.0)] * stages, plan)
    assert [r.in_flight for r in memory.ranks] == [
        (min(stages - s, micro_batches),) for s in range(stages)
    ]
    simulated = plan.simulate().measures.peak_in_flight()
    assert [r.in_flight[0] for r in memory.ranks] == simulated.tolist()


def test_in_flight_and_versions_of_the_pipedream_family():
    """In flight: GPipe m, PipeDream d, 2BW d, Flush d; versions 1, d, 2, 1 (d = stages)."""
    d, m = 4, 12
    for make, held, versions in (
        (gpipe, m, 1), (pipedream, d, d), (pipedream_2bw, d, 2), (one_f_one_b, d, 1),
    ):  # fmt: skip
        memory = pipeline_memory(LOADS, make(stages=d, micro_batches=m), precision="fp32")
        first = memory.ranks[0]
        assert first.in_flight == (held,)
        assert first.versions == (versions - 1) * 4 * 1e6


def test_memory_does_not_grow_with_gas_once_the_pipeline_is_full():
    """1F1B saturates at M = P (A82); GPipe does not."""
    loads = [SliceLoad(1.0, 100.0)] * 4
    flat = [pipeline_memory(loads, one_f_one_b(4, m)).peak for m in (1, 2, 3, 4, 8, 64)]
    assert flat[0] < flat[1] < flat[2] < flat[3] == flat[4] == flat[5]
    grows = [pipeline_memory(loads, gpipe(4, m)).peak for m in (4, 8, 64)]
    assert grows[0] < grows[1] < grows[2]


def test_chunks_and_split_backwards():
    plan = interleaved(stages=4, micro_batches=8, chunks=2)
    loads = [SliceLoad(1.0, float(i + 1)) for i in range(8)]
    memory = pipeline_memory(loads, plan)
    for rank in memory.ranks:
        assert len(rank.in_flight) == 2
        own = [loads[plan.layout.slice_of(rank.rank, c)].activation for c in range(2)]
        assert rank.activations == sum(n * a for n, a in zip(rank.in_flight, own, strict=True))
    h1 = pipeline_memory(LOADS, zb_h1(stages=4, micro_batches=8))
    assert h1.ranks[0].in_flight == (4,)


def test_peaks_and_phases():
    heavy = [SliceLoad(1e6, 0.0)] * 2
    memory = pipeline_memory(heavy, one_f_one_b(2, 4))
    assert memory.worst.phase == "update"
    assert memory.peak == pytest.approx(20e6)  # 14 at rest, 2 gradient, 4 its fp32 copy
    replicas = pipeline_memory(heavy, one_f_one_b(2, 4), zero=1, replicas=4)
    assert replicas.ranks[0].phases["reduction"] == pytest.approx((2 + 12 / 4 + 2 + 2) * 1e6)
    assert memory.fits(21e6) and not memory.fits(19e6)


def test_only_trainable_parameters_learn():
    frozen = [SliceLoad(1e6, 0.0, trainable=0.0), SliceLoad(1e6, 0.0)]
    memory = pipeline_memory(frozen, one_f_one_b(2, 4))
    assert memory.ranks[0].states.device == 2e6
    assert memory.ranks[1].states.device == 16e6


def test_a_measured_profile():
    layers = [
        LayerProfile(f"{i}", 1.0, 2.0, parameters=100, parameter_bytes=400, activation_bytes=64,
                     output_bytes=16)
        for i in range(6)
    ]  # fmt: skip
    slices = profile_slices(Profile(tuple(layers)), [0, 2, 4, 6])
    assert [load.parameters for load in slices] == [200, 200, 200]
    assert [load.output for load in slices] == [16, 16, 0]
    memory = pipeline_memory(slices, one_f_one_b(3, 8), precision="fp32")
    differences = [a.peak - b.peak for a, b in zip(memory.ranks, memory.ranks[1:], strict=False)]
    assert differences == [128 + 16, 128 + 2 * 16]  # the last stage hands nothing on
    with pytest.raises(ValueError, match="number of layers"):
        profile_slices(Profile(tuple(layers)), [0, 2])


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match="has 4 slices, not 3"):
        pipeline_memory(LOADS[:3], one_f_one_b(4, 4))
    with pytest.raises(ScheduleError):
        pipeline_memory(LOADS[:2], Schedule.of(["F0 B0", "B0 F0"]))


def test_words_and_tables():
    memory = transformer_memory(GPT3, 8, 64, 1, tensor=8, zero=3, replicas=2, recompute="full")
    assert "DeepSpeed refuses ZeRO-3 with a pipeline" in memory.sentence()
    assert "rank 0 needs most" in memory.sentence()
    page, text = memory._repr_html_(), str(memory)
    assert page.count("<tr>") == 9 and len(text.splitlines()) == 10
    assert repr(memory).startswith("<PipelineMemory")
    assert [size(v) for v in (0, 999, 1500, 13.54e9, 2.8e12)] == [
        "0 B", "999 B", "1.5 kB", "13.5 GB", "2.8 TB",
    ]  # fmt: skip


def test_options_for_a_20b_model_on_64_devices():
    model = Transformer(44, 6144, 64, 2048, 50432)
    found = options(model, 64, 80e9, samples=1024, recompute="full")
    assert found and all(option.peak <= 80e9 for option in found)
    assert all(option.zero < 2 or option.stages == 1 for option in found)
    assert all(option.stages * option.tensor * option.replicas == 64 for option in found)
    assert any(option.zero == 3 for option in found)
    assert any(option.zero == 1 and option.stages > 1 for option in found)
    assert not any(option.zero == 0 and option.stages * option.tensor < 4 for option in found)
    assert "ZeRO-" in str(found[0])
    cpu = options(model, 8, 40e9, samples=64, offloads=("cpu",), recompute="full")
    assert cpu and all(option.memory.ranks[0].states.host > 0 for option in cpu)


@pytest.mark.parametrize(("layers", "hidden"), [(44, 6144), (64, 8192), (96, 12288)])
def test_more_of_anything_never_needs_more(layers, hidden):
    """More replicas under ZeRO-1, more stages, more recomputation: the peak does not rise."""
    model = Transformer(layers, hidden, 64, 2048, 51200)
    peaks = [
        transformer_memory(model, 4, 32, 1, zero=1, replicas=n, recompute="full").ranks[1].peak
        for n in (1, 2, 8, 64)
    ]
    assert peaks == sorted(peaks, reverse=True)
    for wanted in (("none", "selective"), ("selective", "full")):
        more, less = (transformer_memory(model, 4, 32, 1, recompute=r).peak for r in wanted)
        assert less <= more

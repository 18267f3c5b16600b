"""The memory model against published tables and formulas, and against the order of operations."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.memory import (
    PRECISIONS,
    SliceLoad,
    Transformer,
    model_states,
    options,
    pipeline_memory,
    profile_slices,
    size,
    transformer_memory,
    transformer_slices,
)
from pplab.core.profile import LayerProfile, Profile
from pplab.core.schedule import ScheduleError
from pplab.core.schedules import (
    gpipe,
    interleaved,
    one_f_one_b,
    pipedream,
    pipedream_2bw,
    zb_h1,
)

GPT3 = Transformer(96, 12288, 96, 2048, 51200, 2048)

#: ZeRO, arXiv 1910.02054, Table 1: GB per device of model states, as printed, for N =
REPLICAS = (1, 4, 16, 64, 256, 1024)
ZERO_TABLE = {
    (7.5e9, 1): ("120", "52.5", "35.6", "31.4", "30.4", "30.1"),
    (7.5e9, 2): ("120", "41.3", "21.6", "16.6", "15.4", "15.1"),
    (7.5e9, 3): ("120", "30", "7.5", "1.88", ".47", ".12"),
    (128e9, 1): ("2048", "896", "608", "536", "518", "513"),
    (128e9, 2): ("2048", "704", "368", "284", "263", "257"),
    (128e9, 3): ("2048", "512", "128", "32", "8", "2"),
    (1e12, 1): ("16000", "7000", "4750", "4187", "4046", "4011"),
    (1e12, 2): ("16000", "5500", "2875", "2218", "2054", "2013"),
    (1e12, 3): ("16000", "4000", "1000", "250", "62.5", "15.6"),
}

#: Megatron-LM, arXiv 2104.04473, Table 1: (billion parameters, heads, hidden, layers); the largest
#: is printed as 1008.0.
MEGATRON = [
    ("1.7", 24, 2304, 24), ("3.6", 32, 3072, 30), ("7.5", 32, 4096, 36), ("18.4", 48, 6144, 40),
    ("39.1", 64, 8192, 48), ("76.1", 80, 10240, 60), ("145.6", 96, 12288, 80),
    ("310.1", 128, 16384, 96), ("529.6", 128, 20480, 105), ("1008.0", 160, 25600, 128),
]  # fmt: skip


def within_last_digit(value, printed):
    """Rounded or cut off: the paper does both."""
    digits = len(printed.partition(".")[2])
    return abs(value - float(printed)) < 10**-digits


@pytest.mark.parametrize(("model", "stage"), ZERO_TABLE)
def test_zero_table(model, stage):
    for replicas, printed in zip(REPLICAS, ZERO_TABLE[model, stage], strict=True):
        states = model_states(model, zero=stage, replicas=replicas)
        assert within_last_digit(states.device / 1e9, printed), (replicas, printed)


def test_zero_formulas():
    """16 P; 4 P + 12 P / N; 2 P + 14 P / N; 16 P / N (the same paper, Figure 1)."""
    n, p = 64, 7.5e9
    wanted = (16 * p, 4 * p + 12 * p / n, 2 * p + 14 * p / n, 16 * p / n)
    for stage, total in enumerate(wanted):
        assert model_states(p, zero=stage, replicas=n).device == pytest.approx(total)


def test_deepspeeds_own_estimators():
    """GPU bytes of estimate_zero2/3_model_states_mem_needs, which count the fp32 copy as well."""
    zero2 = pytest.importorskip("deepspeed.runtime.zero.stage_1_and_2")
    zero3 = pytest.importorskip("deepspeed.runtime.zero.stage3")
    p = 3e9
    for gpus, nodes in ((1, 1), (8, 1), (8, 4)):
        n = gpus * nodes
        ours = model_states(p, zero=2, replicas=n)
        _, theirs = zero2.estimate_zero2_model_states_mem_needs(p, gpus, nodes, cpu_offload=False)
        assert ours.device + ours.at_step == pytest.approx(theirs, rel=1e-6)
        ours = model_states(p, zero=2, replicas=n, offload_optimizer="cpu")
        _, theirs = zero2.estimate_zero2_model_states_mem_needs(p, gpus, nodes, cpu_offload=True)
        assert ours.device == pytest.approx(theirs)
        ours = model_states(p, zero=3, replicas=n)
        _, theirs, live = zero3.estimate_zero3_model_states_mem_needs(
            p, 0, gpus, nodes, cpu_offload=False, cpu_offload_params=False
        )
        assert live == 0  # the largest layer is in the pipeline's workspace, see below
        # theirs leaves the 16-bit gradients out beside the fp32 ones
        assert ours.device + ours.at_step - ours.gradients == pytest.approx(theirs, rel=1e-6)


def test_zero3_puts_one_layer_together():
    """4 bytes a parameter of the largest layer, as DeepSpeed's estimator counts it."""
    zero3 = pytest.importorskip("deepspeed.runtime.zero.stage3")
    largest = Transformer(12, 1024, 16, 512).layer_parameters
    _, _, live = zero3.estimate_zero3_model_states_mem_needs(1e9, largest, 8, 1, cpu_offload=False)
    model = Transformer(12, 1024, 16, 512)
    two, three = (
        transformer_memory(model, 1, 4, 1, zero=stage, replicas=8).ranks[0] for stage in (2, 3)
    )
    assert three.workspace - two.workspace == live


def test_bytes_a_parameter():
    """16 for fp16 Adam, 18 for BLOOM's fp32 sums, and 14 between two steps of fp16 ZeRO-0."""
    assert model_states(1, precision="fp16").device == 16
    assert model_states(1, precision="bf16-fp32").device == 18
    assert model_states(1, precision="fp16").resting == 14
    assert model_states(1, precision="fp32").device == 16
    assert PRECISIONS["fp16"].optimizer == 12


def test_offload():
    here = model_states(1e9, zero=1, replicas=4)
    cpu = model_states(1e9, zero=1, replicas=4, offload_optimizer="cpu")
    assert (cpu.device, cpu.host) == (4e9, here.optimizer)
    assert model_states(1e9, zero=1, offload_optimizer="nvme").nvme == 0  # becomes CPU memory
    deep = model_states(1e9, zero=3, replicas=8, offload_optimizer="nvme", offload_parameters="cpu")
    assert deep.device == 0 and deep.nvme == 14e9 / 8 and deep.host == 2e9 / 8


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"zero": 4}, "0 to 3"),
        ({"replicas": 0}, "at least one replica"),
        ({"offload_optimizer": "cpu"}, "only with ZeRO-1"),
        ({"zero": 1, "offload_parameters": "cpu"}, "only with ZeRO-3"),
        ({"zero": 3, "offload_optimizer": "disk"}, "'cpu' or 'nvme'"),
        ({"precision": "fp8"}, "bf16-fp32"),
    ],
)
def test_settings_deepspeed_does_not_have(settings, words):
    with pytest.raises(ValueError, match=words):
        model_states(1e9, **settings)


# -- transformers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("printed", "heads", "hidden", "layers"), MEGATRON)
def test_megatron_parameter_counts(printed, heads, hidden, layers):
    model = Transformer(layers, hidden, heads, 2048, 51200, 2048)
    assert within_last_digit(model.parameters / 1e9, printed)


def test_korthikanti_formulas():
    """sbh times: 34 + 5as/h; 10 + 24/t + ...; (34 + ...)/t; 34/t selective; 2 full."""
    s, b, h, a, t = 2048, 1, 12288, 96, 8
    sbh, scores = s * b * h, 5 * a * s / h
    assert scores == 80
    layer = GPT3.layer_activation
    assert layer(b) == sbh * (34 + 80)
    # attention 11 sbh + 5as^2b, MLP 19 sbh, norms 4 sbh
    assert layer(b) == 11 * sbh + 5 * a * s * s * b + 19 * sbh + 4 * sbh
    assert layer(b, tensor=t) == sbh * (10 + 24 / t + 80 / t)
    assert layer(b, tensor=t, sequence_parallel=True) == sbh / t * (34 + 80)
    assert layer(b, tensor=t, recompute="selective") == sbh * (10 + 24 / t)
    selective = layer(b, tensor=t, sequence_parallel=True, recompute="selective")
    assert selective == pytest.approx(34 * sbh / t)
    assert layer(b, tensor=t, recompute="full") == 2 * sbh
    # as printed: selective recomputation saves 70 % for GPT-3 and 65 % for the 530B model
    assert 1 - layer(b, recompute="selective") / layer(b) == pytest.approx(0.70, abs=0.005)
    large = Transformer(105, 20480, 128, 2048)
    saved = 1 - large.layer_activation(1, recompute="selective") / large.layer_activation(1)
    assert saved == pytest.approx(0.65, abs=0.005)


def test_zero_bubbles_activation_formula():
    """M_B = sb(34h + 5as) (arXiv 2401.10241), the same as Korthikanti's without parallelism."""
    for layers, heads, hidden in ((22, 24, 2304), (30, 32, 4096), (46, 40, 5120), (62, 48, 6144)):
        model = Transformer(layers, hidden, heads, 1024)
        wanted = 1024 * 6 * (34 * hidden + 5 * heads * 1024)
        assert model.layer_activation(6) == pytest.approx(wanted)


def test_impossible_shapes():
    with pytest.raises(ValueError, match="layers must be at least 1"):
        Transformer(0, 8, 2, 8)
    with pytest.raises(ValueError, match="cannot be dealt"):
        GPT3.layer_activation(1, tensor=7)
    with pytest.raises(ValueError, match="recompute is one of"):
        GPT3.layer_activation(1, recompute="some")
    with pytest.raises(ValueError, match=r"bounds 0 \.\. 96"):
        transformer_slices(GPT3, 2, 1, bounds=[0, 40, 90])


def test_stages_add_up_to_the_model():
    model = Transformer(24, 1024, 16, 512, 50304, 512, tied=False)
    for tensor in (1, 4):
        slices = transformer_slices(model, 6, 2, tensor=tensor)
        norms = 6 * 24 * 1024 + 2 * 1024  # what every tensor-parallel rank holds whole
        whole = norms + 512 * 1024
        total = sum(load.parameters for load in slices)
        assert total == pytest.approx((model.parameters - whole) / tensor + whole)


# -- pipelines ------------------------------------------------------------------------------------

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
    from pplab.core.schedule import Schedule

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

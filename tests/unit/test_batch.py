"""The batch triangle against the installed DeepSpeed's own config class, and what follows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.batch import (
    KEYS,
    BatchError,
    confront,
    count_micro_batches,
    ideal_bubble,
    least_micro_batches,
    proposals,
    ramp,
    replicas_of,
    resolve,
)

maybe = st.none() | st.integers(-2, 40) | st.integers(1, 4096)
replicas = st.integers(1, 64)


@pytest.fixture(scope="module")
def deepspeed_batch():
    """(train, micro, gas, replicas) -> what DeepSpeed resolves them to, or its exception's type."""
    config = pytest.importorskip("deepspeed.runtime.config")

    def ask(train, micro, gas, count):
        job = config.DeepSpeedConfig.__new__(config.DeepSpeedConfig)
        job.train_batch_size, job.train_micro_batch_size_per_gpu = train, micro
        job.gradient_accumulation_steps, job.world_size = gas, count
        try:
            job._configure_train_batch_size()
        except (AssertionError, ZeroDivisionError) as error:
            return type(error)
        return tuple(getattr(job, key) for key in KEYS.values())

    return ask


@settings(max_examples=600, deadline=None)
@given(train=maybe, micro=maybe, gas=maybe, count=replicas)
def test_resolves_as_deepspeed_does(deepspeed_batch, train, micro, gas, count):
    ours = resolve(train, micro, gas, replicas=count)
    theirs = deepspeed_batch(train, micro, gas, count)
    if ours.ok:
        assert (ours.train, ours.micro, ours.gas) == theirs
    elif ours.reason == "divided-by-zero":
        assert theirs is ZeroDivisionError
    else:
        assert theirs is AssertionError
    for key in ("train", "micro", "gas"):
        given_value = {"train": train, "micro": micro, "gas": gas}[key]
        if key not in ours.filled:
            assert getattr(ours, key) == given_value
    assert ours.sentence() and str(ours) == ours.sentence()


@settings(max_examples=300, deadline=None)
@given(train=maybe, micro=maybe, gas=maybe, count=replicas)
def test_proposals_are_accepted_and_sorted(deepspeed_batch, train, micro, gas, count):
    batch = resolve(train, micro, gas, replicas=count)
    found = proposals(batch, limit=8)
    written = dict(zip(("train", "micro", "gas"), (train, micro, gas), strict=True))
    for proposal in found:
        numbers, where = dict(written), count
        for name, old, new in proposal.changed:
            if name == "replicas":
                where = new
            else:
                numbers[name] = new
            assert new >= 1 and new != old
        assert proposal.batch.ok
        assert isinstance(deepspeed_batch(*numbers.values(), where), tuple)
    assert [p.distance for p in found] == sorted(p.distance for p in found)
    if batch.reason == "unequal":
        assert found, "there is always a batch size that works"
    if batch.ok:
        assert not found


@pytest.mark.parametrize(
    ("written", "count", "message", "near"),
    [
        ((64, 4, 8), 1, "64 is not 4 x 8 x 1", {"replicas 1 -> 2", "train_batch_size 64 -> 32",
         "gradient_accumulation_steps 8 -> 16"}),
        ((256, 2, None), 7, "256 is not 2 x 18 x 7", {"train_batch_size 256 -> 252",
         "train_batch_size 256 -> 266", "replicas 7 -> 8"}),
        ((256, 8, 1), 8, "256 is not 8 x 1 x 8", {"gradient_accumulation_steps 1 -> 4"}),
        ((4, None, None), 8, "worked out as 0", {"train_batch_size 4 -> 8", "replicas 8 -> 4"}),
        ((128, 2, 8), 4, "128 is not 2 x 8 x 4", {"replicas 4 -> 8"}),
    ],
)  # fmt: skip
def test_reported_cases(written, count, message, near):
    """A01, A02, A03, A07 and B34."""
    batch = resolve(*written, replicas=count)
    assert message in batch.sentence()
    assert near <= {str(proposal) for proposal in proposals(batch)}


def test_says_what_was_written_and_what_was_filled():
    batch = resolve(train=1024, gas=32, replicas=2)
    assert batch.rows() == [
        ("train_batch_size", 1024, "written"),
        ("train_micro_batch_size_per_gpu", 16, "filled: train // replicas // gas"),
        ("gradient_accumulation_steps", 32, "written"),
    ]
    assert batch.written == ("train", "gas")
    only = resolve(train=32, replicas=4)
    assert [row[2] for row in only.rows()] == ["written", "filled: train // replicas", "filled: 1"]
    assert resolve(gas=4).reason == "nothing-given"


def test_replicas():
    assert replicas_of(8, 4) == 2
    assert replicas_of(192, 12, 4) == 4
    with pytest.raises(BatchError, match=r"4 stages x 2 tensor-parallel ranks = 8 .* use 8 ranks"):
        replicas_of(4, 4, 2)
    with pytest.raises(BatchError, match="use 6 or 9 ranks"):
        replicas_of(8, 3)
    with pytest.raises(BatchError, match="at least 1"):
        replicas_of(8, 0)


def test_the_naming_trap():
    """Source 2: "8 GPUs, pp 4, micro 2, GAS 8 = 16 micro-batches"."""
    count = count_micro_batches(8, 4, micro=2, gas=8)
    assert (count.per_pipeline, count.replicas, count.all_pipelines) == (8, 2, 16)
    assert (count.samples_per_replica, count.train) == (16, 32)
    assert count.bubble == pytest.approx(3 / 11)
    assert count.mistaken_bubble == pytest.approx(3 / 19)
    assert "M = GAS = 8" in str(count)


def test_least_micro_batches():
    """15 % needs 6, 17, 40, 85 micro-batches (claims 1.33 asks for less than 15 %)."""
    assert [least_micro_batches(p, 0.15) for p in (2, 4, 8, 16)] == [6, 17, 40, 85]
    for p in (2, 5, 16):
        for target in (0.1, 0.25, 0.5):
            least = least_micro_batches(p, target)
            assert ideal_bubble(p, least) <= target + 1e-12
            assert least == 1 or ideal_bubble(p, least - 1) > target
    with pytest.raises(ValueError):
        least_micro_batches(4, 0)


def test_published_utilisation():
    """Microsoft's blog: GAS 4p and 8p at p = 16 give 81 % and 90 % (A91)."""
    assert 1 - ideal_bubble(16, 64) == pytest.approx(0.81, abs=0.005)
    assert 1 - ideal_bubble(16, 128) == pytest.approx(0.90, abs=0.006)


def test_ramp_up():
    """tr1-13B: 32-fold data parallelism cannot start at 16 (A102)."""
    sizes = ramp(16, 16, 1024, micro=1, replicas=32)
    assert sizes[0] == (16, None) and sizes[1] == (32, 1) and sizes[-1] == (1024, 32)
    assert sum(gas is None for _, gas in sizes) == 32
    assert all(gas is not None for _, gas in ramp(16, 16, 1024, micro=1, replicas=16))
    with pytest.raises(ValueError):
        ramp(0, 16, 64, micro=1, replicas=1)


def test_the_sources_gas_table_is_not_that_of_a_pipeline():
    """Box A of claims.md: three of four rows cannot be, for 8 stages."""
    rows = [(8, 112, 0.68), (16, 187, 0.82), (32, 215, 0.91), (64, 198, 0.85)]
    found = confront(rows, stages=8)
    assert [row.can_be for row in found] == [False, False, False, True]
    assert found[1].speed_up == pytest.approx(1.67, abs=0.005)
    assert found[1].possible_speed_up == pytest.approx(1.30, abs=0.005)
    assert [round(row.possible, 2) for row in found] == [0.53, 0.70, 0.82, 0.90]

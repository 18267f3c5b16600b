"""DeepSpeed's cuts, reproduced: equal to the installed DeepSpeed, bound for bound."""

import random

import pytest

from pplab.core.partition import PartitionError, partition
from pplab.core.partition.cuts import loads, uniform
from pplab.core.partition.deepspeed import (
    partition_balanced,
    partition_layers,
    partition_uniform,
    type_weights,
)
from pplab.core.profile import LayerProfile, Profile


@pytest.fixture(scope="module")
def installed():
    return pytest.importorskip("deepspeed.runtime.utils", reason="DeepSpeed is not installed")


def random_weights(pick, n):
    kind = pick.randrange(5)
    if kind == 0:
        return [pick.randint(0, 5) for _ in range(n)]
    if kind == 1:
        return [pick.random() for _ in range(n)]
    if kind == 2:  # what type:regex makes
        return [pick.randint(0, 1) for _ in range(n)]
    if kind == 3:  # rounding decides between equals
        return [pick.choice([0.1, 0.2, 0.3, 1e6, 0.0]) for _ in range(n)]
    return [pick.choice([12_596_224, 51_463_168, 0, 1024]) for _ in range(n)]  # parameter counts


def test_uniform_is_the_installed_one(installed):
    for n in range(40):
        for parts in range(1, 20):
            theirs = [int(b) for b in installed.partition_uniform(n, parts)]
            assert list(partition_uniform(n, parts)) == theirs
            if n >= parts:
                assert list(uniform(n, parts)) == theirs


def test_balanced_is_the_installed_one_on_thousands_of_cases(installed):
    pick = random.Random(3)
    for _ in range(4_000):
        weights = random_weights(pick, pick.randint(0, 13))
        parts = pick.randint(1, 9)
        theirs = [int(b) for b in installed.partition_balanced(weights, parts)]
        assert list(partition_balanced(weights, parts)) == theirs, (weights, parts)
    for n, parts in ((60, 8), (90, 4)):
        weights = random_weights(pick, n)
        theirs = [int(b) for b in installed.partition_balanced(weights, parts)]
        assert list(partition_balanced(weights, parts)) == theirs


@pytest.mark.parametrize(
    ("weights", "parts", "bounds"),
    [
        ([1, 4, 2, 2], 3, (0, 2, 3, 4)),
        ([1] * 5, 4, (0, 2, 3, 4, 5)),
        ([1, 1, 1], 4, (0, 1, 2, 3, 3)),  # fewer layers than stages: the last stage stays empty
        ([], 2, (0, 0, 0)),
    ],
)
def test_recorded_bounds(weights, parts, bounds):
    assert partition_balanced(weights, parts) == bounds


def test_it_is_not_optimal():
    assert loads([1, 4, 2, 2], partition_balanced([1, 4, 2, 2], 3)).max() == 5
    hard = [18, 4, 18, 5, 5, 8, 3, 13]
    assert loads(hard, partition_balanced(hard, 5)).max() == 22


def test_methods_by_name():
    kinds = ["Embedding", "Block", "Block", "Norm", "Block", "Block", "Head"]
    counts = [100, 10, 10, 1, 10, 10, 100]
    assert partition_layers("Uniform", 3, counts, kinds) == partition_uniform(7, 3)
    assert partition_layers("parameters", 3, counts, kinds) == partition_balanced(counts, 3)
    blocks = partition_balanced([0, 1, 1, 0, 1, 1, 0], 2)
    assert partition_layers("type:block", 2, counts, kinds) == blocks
    assert partition_layers("type:Block:ignored", 2, counts, kinds) == blocks
    assert type_weights(kinds, "embedding|head") == [1, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("profile", "no-such-method"),
        ("best", "no-such-method"),
        ("type:llama", "no-match"),
        ("type:(", "bad-pattern"),
    ],
)
def test_what_deepspeed_refuses_is_refused_with_a_sentence(method, reason):
    with pytest.raises(PartitionError) as error:
        partition_layers(method, 2, [1, 1], ["A", "B"])
    assert error.value.reason == reason
    assert len(str(error.value)) > 30


def test_through_partition():
    layers = [
        LayerProfile(f"l{i}", 1, 2, parameters=p, kind="Block") for i, p in enumerate((9, 1, 1))
    ]
    profile = Profile(layers)
    assert partition(profile, 2, "parameters").bounds == (0, 1, 3)
    assert partition(profile, 2, "type:block").bounds == (0, 2, 3)
    assert partition(profile, 2, "uniform").bounds == (0, 2, 3)
    with pytest.raises(PartitionError, match="would stay empty"):
        partition(profile, 4, "parameters")

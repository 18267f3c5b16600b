"""PipeDream profiles become chains; on each of them the optimum beats every other method."""

import os
from pathlib import Path

import pytest

from pplab.core.partition import least_maximum, partition
from pplab.core.partition.block import block_partition
from pplab.core.partition.cuts import loads, uniform
from pplab.core.partition.deepspeed import partition_balanced
from pplab.core.partition.pipedream import read
from pplab.core.profile import Profile, ProfileError

SHARED = Path(os.environ.get("PPLAB_SHARED", Path(__file__).parents[2].parent / "shared"))
FOLDER = SHARED / "profiles" / "pipedream"
#: Operations without inputs, parameters (known from the models), milliseconds a micro-batch.
MODELS = {
    "alexnet": (22, 61_100_840, 85.3),
    "vgg16": (40, 138_357_544, 672.5),
    "resnet50": (176, 25_557_032, 443.4),
    "gnmt": (45, 193_765_952, 89.4),
}

BRANCH = """node1 -- Input -- forward_compute_time=9.0, backward_compute_time=0.0, \
activation_size=99.0, parameter_size=0.000
node2 -- Conv2d(3, 64, kernel_size=(1, 1)) -- forward_compute_time=1.000, \
backward_compute_time=2.000, activation_size=10.000, parameter_size=40.000
node4 -- Add -- forward_compute_time=0.5, backward_compute_time=0.25, activation_size=30.0, \
parameter_size=0.000
node3 -- LSTM(4, 4) -- forward_compute_time=3.000, backward_compute_time=4.000, \
activation_size=[20.0; 5.0], parameter_size=8.000
\tnode1 -- node2
\tnode2 -- node3
\tnode3 -- node4
\tnode2 -- node4
"""


def test_a_graph_that_branches_becomes_a_chain():
    profile = read(BRANCH, name="branch")
    assert [layer.name for layer in profile.layers] == ["node2 Conv2d", "node3 LSTM", "node4 Add"]
    conv, lstm, add = profile.layers
    assert (conv.forward, conv.backward, conv.parameters, conv.kind) == (0.001, 0.002, 10, "Conv2d")
    assert lstm.activation_bytes == 25
    # after the LSTM its own output crosses, and the Conv's, which Add still needs
    assert [layer.output_bytes for layer in profile.layers] == [10, 35, 30]
    assert add.parameter_bytes == 0
    assert any("branches: 1 of 3" in note for note in profile.notes)
    assert any("left out 1 input nodes (9 ms" in note for note in profile.notes)
    assert len(read(BRANCH, keep_inputs=True)) == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BRANCH + "\tnode4 -- node2\n", "circle around node2"),
        (BRANCH + "\tnode4 -- node9\n", "line 9 is not an edge between known nodes"),
        (BRANCH + "node5 -- Conv\n", "line 9 is not a node"),
        (BRANCH.replace("=1.000", "=fast"), "line 2: could not convert"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(text, words):
    with pytest.raises(ProfileError, match=words):
        read(text)


@pytest.fixture(params=MODELS)
def model(request):
    path = FOLDER / f"{request.param}.graph.txt"
    if not path.exists():
        pytest.skip(f"{path} is not here (set PPLAB_SHARED to the folder that holds profiles/)")
    return request.param, Profile.load(path)


def test_recorded_profiles(model):
    name, profile = model
    count, parameters, time = MODELS[name]
    assert len(profile) == count
    assert profile.column("parameters").sum() == parameters
    assert profile.times.sum() * 1e3 == pytest.approx(time, abs=0.1)
    assert name in profile.source and profile.unit == "s"


def test_the_optimum_is_never_worse_on_recorded_profiles(model):
    _, profile = model
    for parts in range(2, 9):
        least = least_maximum(profile.times, parts)
        others = {
            "uniform": uniform(len(profile), parts),
            "by parameters": partition_balanced(profile.column("parameters"), parts),
            "DeepSpeed's balancer on times": partition_balanced(profile.times, parts),
            "block": block_partition(profile.times, parts),
        }
        for method, bounds in others.items():
            assert least <= loads(profile.times, bounds).max(), (method, parts)


def test_alexnet_by_parameters_as_deepspeed_cuts_it():
    path = FOLDER / "alexnet.graph.txt"
    if not path.exists():
        pytest.skip(f"{path} is not here (set PPLAB_SHARED to the folder that holds profiles/)")
    profile = Profile.load(path)
    # recorded from DeepSpeed's own balancer on the 22 specs of AlexNet
    assert partition(profile, 2, "parameters").bounds == (0, 19, 22)
    assert partition(profile, 4, "parameters").bounds == (0, 16, 19, 21, 22)


def test_a_recorded_profile_cut_for_its_step_time(model):
    _, profile = model
    plan = partition(profile, 4, micro_batches=8)
    assert plan.step <= partition(profile, 4, "minimax", micro_batches=8).step
    assert plan.gap is not None and plan.gap < 0.05

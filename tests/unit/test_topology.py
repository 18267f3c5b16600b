"""The topology of ranks: DeepSpeed's own numbering, and what it means for the network."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pplab.core.batch import replicas_of
from pplab.core.topology import AXES, Topology

sizes = st.integers(1, 5)
topologies = st.builds(
    Topology, sizes, sizes, sizes, st.permutations(AXES).map(tuple), st.none() | st.integers(1, 9)
)


@given(topologies)
def test_every_rank_has_one_place(topology):
    places = [topology.coordinates(rank) for rank in range(topology.world)]
    assert len(set(places)) == topology.world
    assert [topology.rank(*place) for place in places] == list(range(topology.world))


@given(topologies, st.sampled_from(AXES))
def test_groups_part_the_ranks_and_differ_in_one_coordinate(topology, axis):
    groups = topology.groups(axis)
    assert sorted(rank for group in groups for rank in group) == list(range(topology.world))
    for group in groups:
        places = [topology.coordinates(rank) for rank in group]
        assert [getattr(place, axis) for place in places] == list(range(len(group)))
        assert len({place._replace(**{axis: 0}) for place in places}) == 1


SCRIPT = """
from deepspeed.runtime.pipe.topology import PipeDataParallelTopology as PD
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology as PMD
from pplab.core.topology import Topology
for pipe in (1, 2, 4):
    for data in (1, 2, 3):
        theirs = PD(num_pp=pipe, num_dp=data)
        ours = Topology(pipe, data)
        for axis in ("pipe", "data"):
            if ours.world > 1 and getattr(ours, axis) > 1:
                groups = [tuple(g) for g in theirs.get_axis_comm_lists(axis)]
                assert sorted(groups) == ours.groups(axis), (pipe, data, axis)
        for model in (1, 2, 4):
            theirs = PMD(num_pp=pipe, num_mp=model, num_dp=data)
            ours = Topology(pipe, data, model)
            assert theirs.world_size() == ours.world
            for rank in range(ours.world):
                at = theirs.get_coord(rank)
                assert (at.pipe, at.data, at.model) == tuple(ours.coordinates(rank))
            for axis in ("pipe", "data", "model"):
                groups = [tuple(g) for g in theirs.get_axis_comm_lists(axis)]
                assert sorted(groups) == ours.groups(axis), (pipe, data, model, axis)
print("same")
"""


def test_the_numbering_is_deepspeeds():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["same"], done.stderr


def test_the_sources_launch_example():
    topology = Topology(4, replicas_of(8, stages=4, tensor=2), 2)
    assert topology.data == 1
    assert topology.groups("model") == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert topology.groups("pipe") == [(0, 2, 4, 6), (1, 3, 5, 7)]


def test_deepspeeds_order_keeps_tensor_parts_together_and_sends_the_pipeline_out():
    sixteen = Topology(pipe=2, data=4, model=2, ranks_per_node=8)
    assert sixteen.nodes == 2
    assert [sixteen.crossings(axis) for axis in AXES] == [8, 0, 0]
    other = Topology(2, 4, 2, order=("data", "pipe", "model"), ranks_per_node=8)
    assert [other.crossings(axis) for axis in AXES] == [0, 8, 0]


def test_traffic_of_a_known_case():
    # 2 stages x 2 replicas x 2 parts, 8 layers, 1e6 parameters, 1000 bytes between layers, M = 4
    found = Topology(2, 2, 2).traffic(
        layers=8, parameters=1e6, boundary=1000.0, micro_batches=4, gradient_bytes=4
    )
    assert found["pipe"] == (8, 8000.0)  # a tensor forward or back for each micro-batch
    assert found["data"] == (1, 1e6)  # 250,000 gradients of 4 bytes, 2 (2-1)/2 of them
    assert found["model"] == (64, 64000.0)  # 4 all-reduces x 4 layers x 4 micro-batches


def test_nothing_is_sent_along_an_axis_of_one():
    found = Topology(1).traffic(layers=4, parameters=10, boundary=8.0, micro_batches=2)
    assert all(traffic == (0, 0) for traffic in found.values())


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Topology(3, replicas_of(8, stages=3)), "does not divide 8"),
        (lambda: Topology(0), "pipe must be at least 1"),
        (lambda: Topology(2, order=("pipe", "data", "data")), "each once"),
        (lambda: Topology(2, ranks_per_node=0), "ranks_per_node"),
        (lambda: Topology(2).rank(2), "pipe goes from 0 to 1"),
        (lambda: Topology(2).coordinates(9), "0 to 1"),
        (lambda: Topology(2).groups("tensor"), "axis is one of"),
    ],
)
def test_what_is_no_topology_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_words_say_who_talks_to_whom():
    text = str(Topology(4, 1, 2, ranks_per_node=4))
    assert text.startswith("8 ranks = 4 stages x 1 replica x 2 tensor parts")
    assert "2 nodes of 4, links between nodes: pipe 2, data 0, model 0" in text
    assert text.splitlines()[2].split() == ["0", "0", "0", "0", "0", "2", "-", "1"]

"""A profile: kept as JSON, and refused with a sentence when it makes no sense."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.profile import LayerProfile, Profile, ProfileError

SIZE = st.integers(0, 2**60)
TIME = st.floats(0, 1e6)
LAYER = st.builds(
    LayerProfile,
    name=st.text(max_size=8),
    forward=TIME,
    backward=TIME,
    spread=TIME,
    parameters=SIZE,
    parameter_bytes=SIZE,
    activation_bytes=SIZE,
    output_bytes=SIZE,
    kind=st.text(max_size=8),
    tied=st.none() | st.text(max_size=3),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(LAYER, min_size=1, max_size=4), st.text(max_size=9))
def test_json_reads_back(layers, source):
    profile = Profile(tuple(layers), source, "s", 4, {"cpu": "x"}, ("a note",))
    assert Profile.from_json(json.loads(json.dumps(profile.to_json()))) == profile


def test_saved_and_loaded(tmp_path):
    profile = Profile.of([3, 6], names=["a", "b"])
    profile.save(tmp_path / "p.json")
    assert Profile.load(tmp_path / "p.json") == profile


def test_made_up_costs_keep_their_sum():
    costs = np.arange(1, 400)
    profile = Profile.of(costs)
    assert np.array_equal(profile.times, costs)
    assert profile.backward == pytest.approx(2 * profile.forward)
    said = "399 layers, 0 parameters, 7.98e+04 units a micro-batch (made up)"
    assert str(profile).splitlines()[0] == said
    assert repr(profile) == f"[made up] {said}"


def test_numbers_of_numpy_are_taken_and_become_plain():
    layer = LayerProfile("x", np.float32(0.5), np.int64(2), parameters=np.int64(7))
    assert (type(layer.forward), type(layer.backward), type(layer.parameters)) == (
        float,
        float,
        int,
    )
    json.dumps(Profile([layer]).to_json())


def test_a_profile_corrected_by_a_run():
    profile = Profile.of([3, 6, 0, 0], names=list("abcd"))
    other = profile.rescaled([0, 2, 4], [6, 1], [12, 4])
    assert other.forward == pytest.approx([2, 4, 0.5, 0.5])
    assert other.backward == pytest.approx([4, 8, 2, 2])
    assert other.source == "made up, corrected by a run"
    assert [layer.name for layer in other.layers] == list("abcd")
    with pytest.raises(ProfileError, match="2 slices of 3 layers"):
        profile.rescaled([0, 2, 3], [6, 1], [12, 4])


def test_tied_layers_are_groups_of_two_or_more():
    layers = [LayerProfile(str(i), 1, 1, tied=key) for i, key in enumerate(["w", None, "w", "x"])]
    assert Profile(layers).tied == {"w": (0, 2)}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"forward": -1}, "layer 'x': forward is -1; it must be finite"),
        ({"backward": math.nan}, "backward is nan"),
        ({"forward": "3"}, "forward is a number, not '3'"),
        ({"spread": True}, "spread is a number, not True"),
        ({"parameters": 1.5}, "parameters is 1.5, not a whole number"),
        ({"output_bytes": math.inf}, "output_bytes is inf"),
        ({"tied": 3}, "tied is a text"),
        ({"kind": None}, "kind is a text"),
    ],
)
def test_a_layer_that_makes_no_sense(fields, words):
    with pytest.raises(ProfileError, match=words):
        LayerProfile(**{"name": "x", "forward": 1, "backward": 1, **fields})


def good():
    return Profile.of([1, 2]).to_json()


def broken(**changes):
    return {**good(), **changes}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "not a profile"),
        ({"layers": []}, "not a profile"),
        (broken(version=9), "version 9; this pplab reads version 1"),
        (broken(colour="red"), "the profile has unknown fields: colour"),
        (broken(layers=None), 'no list of "layers"'),
        (broken(layers=[]), "at least one layer"),
        (broken(layers=[3]), "layer 0 is not an object"),
        (broken(layers=[{"name": "a", "forward": 1}]), "layer 0 lacks backward"),
        (broken(layers=[{"name": "a", "fwd": 1}]), "layer 0 has unknown fields: fwd"),
        (broken(layers=[{"name": "a", "forward": -1, "backward": 1}]), "layer 'a': forward is -1"),
        (broken(unit="ms"), "unit is 's' .* not 'ms'"),
    ],
)
def test_a_file_that_makes_no_sense(tmp_path, data, words):
    path = tmp_path / "p.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ProfileError, match=words):
        Profile.load(path)


def test_a_file_that_is_no_json(tmp_path):
    (tmp_path / "p.txt").write_text("hello")
    with pytest.raises(ProfileError, match="neither JSON nor a PipeDream graph"):
        Profile.load(tmp_path / "p.txt")

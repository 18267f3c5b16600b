"""What the page receives is what the timeline holds."""

from typing import Any

import numpy as np
import pytest

from pplab.core.ops import USEFUL
from pplab.core.schedules import gpipe, one_f_one_b
from pplab.core.timeline import Timeline
from pplab.view.columns import BLOCK, in_flight, pack, settled


def unpacked(meta: dict[str, Any], block: bytes) -> dict[str, np.ndarray]:
    """The reading of columns.js, in Python."""
    held = meta["heldAt"][-1] if meta["heldAt"] else 0
    table, offset = {}, 0
    for name, dtype in BLOCK:
        length = held if name in ("held", "count") else meta["n"]
        table[name] = np.frombuffer(block, dtype, length, offset)
        assert offset % np.dtype(dtype).itemsize == 0  # typed arrays must be aligned
        offset += table[name].nbytes
    assert offset == len(block)
    return table


def test_one_timeline() -> None:
    t = one_f_one_b(4, 8).simulate()
    meta, block = pack([t])
    table = unpacked(meta, block)
    assert meta["n"] == len(t) and meta["rows"] == [(0, r) for r in range(4)]
    for name in ("start", "end", "kind", "micro_batch", "chunk"):
        assert np.array_equal(table[name], getattr(t, name))
    assert np.array_equal(table["lane"], t.rank)
    assert np.all(table["twin"] == -1)
    assert meta["lines"][0]["bubble"] == "27.3 %" and meta["lines"][0]["step"] == "33 units"
    assert meta["lines"][0]["label"] == "simulated, 1F1B" and meta["ratio"] is None


def test_two_timelines_share_lanes_and_know_their_twins() -> None:
    one, other = gpipe(3, 4).simulate(), one_f_one_b(3, 4).simulate(backward=3)
    meta, block = pack([one, other])
    table = unpacked(meta, block)
    assert np.all(np.diff(table["lane"]) >= 0)
    for lane in range(6):
        assert np.all(np.diff(table["start"][table["lane"] == lane]) >= 0)
    second = table["lane"] % 2 == 1
    twins = table["twin"][second]
    assert np.all(twins >= 0) and np.all(table["twin"][~second] == -1)
    for name in ("kind", "micro_batch", "chunk"):
        assert np.array_equal(table[name][twins], table[name][second])
    assert np.array_equal(table["lane"][twins] + 1, table["lane"][second])
    needs = table["needs"]
    found = np.flatnonzero(needs >= 0)
    assert np.array_equal(table["lane"][needs[found]] % 2, table["lane"][found] % 2)
    assert np.array_equal(table["micro_batch"][needs[found]], table["micro_batch"][found])
    assert meta["ratio"] == f"{other.step_time / one.step_time:.2f}×"


def test_time_begins_with_the_first_span_of_all() -> None:
    t = gpipe(2, 2).simulate()
    meta, block = pack([t.shifted(1000.0), t.shifted(1001.0)])
    assert unpacked(meta, block)["start"].min() == 0
    assert [line["windows"][0][0] for line in meta["lines"]] == [0, 1]


def test_memory_strip() -> None:
    t = one_f_one_b(4, 8).simulate()
    meta, block = pack([t], memory=True, cap=3)
    table, at = unpacked(meta, block), meta["heldAt"]
    peaks = [table["count"][at[r] : at[r + 1]].max() for r in range(4)]
    assert peaks == [4, 3, 2, 1] and meta["cap"] == 3
    assert pack([t])[0]["heldAt"] == []


def test_memory_of_every_step() -> None:
    one = one_f_one_b(4, 8).simulate()
    columns = {name: np.concatenate([column, column]) for name, column in one.columns().items()}
    columns["step"] = np.repeat([0, 1], len(one))
    columns["start"][len(one) :] += 50
    columns["end"][len(one) :] += 50
    times, counts = in_flight(Timeline.of(columns, one.layout), (0, 0), 0.0)
    assert np.all(np.diff(times) > 0) and times[-1] == 50 + one.end.max()
    assert counts.max() == 4 and counts[-1] == 0


def test_settled_drops_values_held_for_no_time() -> None:
    times, counts = settled(np.array([0.0, 1.0, 1.0, 2.0]), np.array([1, 0, 1, 0]))
    assert times.tolist() == [0, 1, 2] and counts.tolist() == [1, 1, 0]
    assert len(settled(np.empty(0), np.empty(0))[0]) == 0


def test_what_cannot_share_a_picture() -> None:
    units, seconds = gpipe(2, 2).simulate(), gpipe(2, 2).simulate(unit="s")
    with pytest.raises(ValueError, match=r"different units.*run\.costs"):
        pack([units, seconds])
    with pytest.raises(ValueError, match="2 and 3 ranks"):
        pack([units, gpipe(3, 2).simulate()])
    with pytest.raises(ValueError, match="at least one"):
        pack([])


def test_an_empty_timeline() -> None:
    t = gpipe(2, 2).simulate()
    empty = t.where(np.zeros(len(t), dtype=bool))
    meta, block = pack([empty], memory=True)
    assert meta["n"] == 0 and len(block) == 0 and meta["lines"][0]["windows"] == []
    assert pack([empty, t])[0]["n"] == len(t)


def test_large_timelines_are_packed_quickly_and_small() -> None:
    t = one_f_one_b(16, 1600).simulate()
    meta, block = pack([t])
    assert meta["n"] == 51_200 and len(block) == 51_200 * 38


def test_kinds_follow_the_codes_of_the_core() -> None:
    assert USEFUL == "FBWU"  # columns.js counts on it: codes below 4 are work
    t = Timeline.of({"rank": [0], "kind": [5], "micro_batch": [0], "start": [0], "end": [1]},
                    gpipe(2, 2).simulate().layout)  # fmt: skip
    assert pack([t])[0]["kinds"] == "R"

"""The vocabulary: operations and their text form."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pplab.core.layout import Layout
from pplab.core.ops import CODE, KINDS, USEFUL, WHOLE_STEP, WORDS, B, F, Op, U, W

numbers = st.integers(0, 10_000)
ops = st.one_of(
    st.builds(Op, st.sampled_from("FBW"), numbers, st.integers(0, 7)),
    st.builds(U, st.one_of(st.just(WHOLE_STEP), numbers)),
)


@settings(deadline=None)
@given(ops)
def test_the_text_of_an_operation_reads_back(op):
    assert Op.parse(str(op)) == op
    assert Op.parse(f"  {op} ") == op
    assert repr(op) == str(op)


@pytest.mark.parametrize(
    ("op", "text"),
    [(F(3), "F3"), (B(3), "B3"), (W(0), "W0"), (F(3, 1), "F3.1"), (U(), "U"), (U(7), "U7")],
)
def test_text_forms(op, text):
    assert str(op) == text


@pytest.mark.parametrize(
    "text", ["", "F", "3", "X3", "F-1", "F3.", "F3.1.2", "f3", "F3 B3", "U1.2"]
)
def test_other_text_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="write F3, B3, W3"):
        Op.parse(text)


def test_every_kind_has_a_code_and_a_word():
    assert [CODE[letter] for letter in KINDS] == list(range(len(KINDS)))
    assert set(WORDS) == set(KINDS)
    assert set(USEFUL) <= set(KINDS)


@pytest.mark.parametrize("placement", ["loop", "v"])
@pytest.mark.parametrize("stages", [1, 2, 5])
@pytest.mark.parametrize("chunks", [1, 2])
def test_a_layout_places_every_slice_once(stages, chunks, placement):
    layout = Layout(stages, chunks, placement)
    places = [layout.place_of(piece) for piece in range(layout.slices)]
    assert sorted(places) == [(r, c) for r in range(stages) for c in range(chunks)]
    assert [layout.slice_of(*place) for place in places] == list(range(layout.slices))
    table = layout.table()
    assert all(table[place] == piece for piece, place in enumerate(places))


def test_loop_deals_round_and_round_and_a_v_turns_at_the_last_rank():
    assert [Layout(3, 2).place_of(p)[0] for p in range(6)] == [0, 1, 2, 0, 1, 2]
    assert [Layout(3, 2, "v").place_of(p)[0] for p in range(6)] == [0, 1, 2, 2, 1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "at least one stage"),
        ((2, 0), "at least one chunk"),
        ((2, 2, "w"), "placement is one of loop, v, not 'w'"),
        ((2, 3, "v"), "two legs"),
    ],
)
def test_impossible_layouts_say_why(arguments, message):
    with pytest.raises(ValueError, match=message):
        Layout(*arguments)

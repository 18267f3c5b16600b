"""The batch triangle, the naming trap and a published table, as HTML and in words."""

from __future__ import annotations

import re
from html import unescape

import pytest

from pplab.core.batch import confront, count_micro_batches, resolve

TABLE = [(8, 112, 0.68), (16, 187, 0.82), (32, 215, 0.91), (64, 198, 0.85)]


def words(html: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", html)))


def test_written_and_filled_in_numbers_differ_in_words_and_in_line() -> None:
    data = resolve(train=1024, gas=32, replicas=2)._repr_mimebundle_()
    assert "train_micro_batch_size_per_gpu 16 filled in: train // replicas // gas" in words(
        data["text/html"]
    )
    assert "dashed" in data["text/html"] and "=" in words(data["text/html"])
    lines = data["text/plain"].splitlines()
    assert re.fullmatch(r"gradient_accumulation_steps\s+32  written", lines[3])
    assert lines[-1].startswith("holds: train_batch_size 1024 = 16 x 32 x 2")


def test_a_triangle_that_fails_says_what_would_work() -> None:
    data = resolve(64, 4, 4, replicas=2)._repr_mimebundle_()
    for text in (data["text/plain"], words(data["text/html"])):
        assert "DeepSpeed refuses" in text
        assert "train_batch_size 64 is not 4 x 4 x 2 = 32" in text
        assert "replicas 2 -> 4" in text
    assert "≠" in data["text/html"]


def test_numbers_that_nobody_gave_are_question_marks() -> None:
    data = resolve(gas=4)._repr_mimebundle_()
    assert words(data["text/html"]).count("? neither written nor filled in") == 2


def test_each_pipeline_is_drawn_with_its_own_micro_batches() -> None:
    data = count_micro_batches(8, 4, micro=2, gas=8)._repr_mimebundle_()
    assert data["text/plain"].splitlines()[1] == (
        "replica 1 (4 ranks): [0] [1] [2] [3] [4] [5] [6] [7]"
    )
    assert data["text/html"].count("<td style='background") == 0  # double quotes, one style
    assert len(re.findall(r"<td style=\"background[^>]*>\d+</td>", data["text/html"])) == 16
    assert "micro-batches of one pipeline 8" in words(data["text/html"])
    assert "would promise 15.8%" in data["text/plain"]
    many = count_micro_batches(4, 4, micro=1, gas=100)._repr_mimebundle_()
    assert "and 76 more" in many["text/html"]


def test_a_published_table_row_by_row() -> None:
    found = confront(TABLE, 8)
    text = str(found)
    assert text.startswith("3 of 4 rows cannot come from a synchronous pipeline of 8 equal stages")
    row = next(line for line in text.splitlines() if line.startswith("16 "))
    says = "16 82% 70% x 1.67 x 1.30 works more than it can, gains more than it can"
    assert " ".join(row.split()) == says
    assert "gets slower: only smaller micro-batches do" in text
    assert found._repr_mimebundle_()["text/html"].count("<tr>") == 5


@pytest.mark.parametrize("stages", [4, 5, 6, 7, 8, 12, 16, 33])
def test_no_number_of_stages_explains_the_whole_table(stages: int) -> None:
    """claims, box A: neither 4-5 stages (the jump to 16) nor 33 (the utilisation)."""
    assert not all(row.can_be for row in confront(TABLE, stages))

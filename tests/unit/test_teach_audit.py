"""The audit of the two articles: every claim, the same verdicts as in the notes, and real cells."""

import json
import re
from pathlib import Path

import nbformat
import pytest

import pplab
from pplab.teach.audit import (
    CHAPTERS,
    MEANING,
    SIGNS,
    TOPICS,
    VERDICTS,
    Audit,
    Claim,
    Place,
    audit,
    configs,
)
from pplab.teach.audit.page import COLOURS, in_picture_order
from pplab.teach.audit.picture import picture
from pplab.view import colours
from pplab.view.static import LARGE, png_of

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
#: A row of claims.md: | 1.8 | claim | **F** (more) | evidence |
ROW = re.compile(r"^\| (\d\.\d+) \| (.+?) \| \**([TFMU])\b", re.M)
ALL = audit()
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.M)
#: Longest claim, in words: a paraphrase, not a quotation.
LONGEST = 30


def headings(path: Path) -> list[str]:
    """The headings of a notebook, without those inside code."""
    notebook = nbformat.read(path, as_version=4)
    texts = (cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return [
        title
        for text in texts
        for title in HEADING.findall(re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
    ]


@pytest.fixture(scope="module")
def notes() -> dict[str, str]:
    """Claim number -> letter, from the notes that the audit was made from."""
    path = SHARED / "claims.md"
    if not path.exists():
        pytest.skip("shared/claims.md is not here: it is no part of the repository")
    found = ROW.findall(path.read_text(encoding="utf-8"))
    assert len(found) > 70, "the rows of claims.md have another form now"
    assert len({number for number, *_ in found}) == len(found)
    return {number: letter for number, _, letter in found}


def test_every_claim_of_the_notes_is_audited_and_no_other(notes):
    assert {claim.number for claim in ALL} == set(notes)


def test_the_verdicts_are_those_of_the_notes(notes):
    differ = {
        claim.number: (claim.verdict, notes[claim.number])
        for claim in ALL
        if VERDICTS[claim.verdict] != notes[claim.number]
    }
    assert differ == {}


def test_no_claim_stands_twice():
    for part in ("number", "says", "truth"):
        values = [getattr(claim, part) for claim in ALL]
        assert len(set(values)) == len(values), part
    assert [claim.number for claim in ALL] == [
        f"{article}.{place}" for article, count in ((1, 37), (2, 39))
        for place in range(1, count + 1)
    ]  # fmt: skip


@pytest.mark.parametrize("claim", ALL, ids=lambda claim: claim.number)
def test_a_claim_is_complete(claim: Claim):
    assert claim.topic in TOPICS
    assert claim.verdict in VERDICTS
    assert claim.says.endswith(".") and claim.truth.endswith((".", ")"))
    assert len(claim.says.split()) <= LONGEST
    assert claim.where and len(set(claim.where)) == len(claim.where)


@pytest.mark.parametrize("claim", ALL, ids=lambda claim: claim.number)
def test_where_it_is_shown_there_is_such_a_heading(claim: Claim):
    for place in claim.places:
        path = ROOT / "chapters" / place.notebook
        assert path.exists(), f"{claim.number} points to {place.notebook}"
        assert headings(path).count(place.heading) == 1, f"{claim.number}: {place}"


def test_where_it_is_shown_there_is_something_that_runs():
    """Each place has a code cell under its heading, or words that say why it cannot be: rare."""
    silent = set()
    for place in {place for claim in ALL for place in claim.places}:
        notebook = nbformat.read(ROOT / "chapters" / place.notebook, as_version=4)
        inside = runs = False
        for cell in notebook.cells:
            if cell.cell_type == "code":
                runs |= inside and bool(cell.source.strip())
            elif titles := HEADING.findall(cell.source):
                if inside:
                    break
                inside = titles[-1] == place.heading or place.heading in titles
        if not runs:
            silent.add(str(place))
    # prose that sums up the cells of its chapter
    assert silent <= {"chapter 1: What the formula leaves out", "chapter 4: The table, corrected"}


def test_links_are_relative_and_name_the_heading_as_jupyterlab_does():
    assert Place("01", "Break it: one heavy stage").href == (
        "01_bubbles.ipynb#Break-it:-one-heavy-stage"
    )
    assert Place("02", "What does it cost?").href == "02_gas.ipynb#What-does-it-cost?"
    assert Place("07", "The closing case").href == "#The-closing-case"
    for claim in ALL:
        for place in claim.places:
            assert re.fullmatch(r"(0\d_\w+\.ipynb)?#[^\s\"<>%]+", place.href), place


def test_the_words_for_verdicts_agree_everywhere():
    assert list(VERDICTS) == list(MEANING) == list(SIGNS) == list(COLOURS)
    assert set(VERDICTS.values()) == set("TMFU")
    assert len(set(SIGNS.values())) == len(SIGNS)
    for face in COLOURS.values():
        assert colours.contrast(face, colours.ink_on(face)) >= 4.5


def test_a_choice_has_what_fits_all_words():
    for topic in TOPICS:
        chosen = audit(topic)
        assert chosen and {claim.topic for claim in chosen} == {topic}
        for verdict in VERDICTS:
            both = audit(verdict, topic)
            assert [claim for claim in chosen if claim.verdict == verdict] == list(both)
    assert len(audit("article 1")) + len(audit("article 2")) == len(ALL)
    assert len(audit("article 1", "article 2")) == 0
    assert sum(len(audit(verdict)) for verdict in VERDICTS) == len(ALL)


def test_a_word_that_is_no_choice_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match=r"'GAS' is no topic \(diagnosis, micro-batches"):
        audit("GAS")


def test_one_claim_by_its_number():
    assert pplab.audit()["1.8"].says.startswith("The best GAS is")
    assert "1.8 ✗ false" in str(pplab.audit()["1.8"])
    assert audit("ZeRO")[0].topic == "ZeRO"
    with pytest.raises(KeyError, match=r"no claim 9\.9 here"):
        audit()["9.9"]


def test_counts_and_sentences_come_from_the_claims():
    some = Audit(audit("launch"), "Launch")
    assert sum(some.counts.values()) == len(some) == 5
    assert some.sentence() == "5 claims: 2 true and 3 false."
    assert some.holding == 2
    assert Audit([ALL[0]]).sentence() == "1 claim: 1 true."
    assert Audit([]).sentence() == "No claims."
    assert f"{ALL.holding} of {len(ALL)} claims hold" in ALL.summary()
    for claim in ALL:
        assert f"{claim.number}{SIGNS[claim.verdict]}" in ALL.summary()


def test_everything_shows_as_a_picture_with_its_words():
    bundle = ALL._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/png"}
    assert bundle["text/plain"] == ALL.summary()
    assert len(png_of(picture(ALL))) < LARGE


def test_the_picture_has_a_box_for_each_claim_in_the_order_of_verdicts():
    figure = picture(ALL)
    shown = [text.get_text() for text in figure.texts]
    for claim in ALL:
        assert shown.count(claim.number) == 1
    for topic in TOPICS:
        numbers = [claim.number for claim in in_picture_order(audit(topic))]
        assert sorted(numbers, key=shown.index) == numbers
    assert f"{ALL.holding} of {len(ALL)}" in shown


def test_the_picture_keeps_its_words_inside():
    figure = picture(ALL)
    figure.canvas.draw()
    page = figure.bbox
    for text in figure.texts:
        box = text.get_window_extent()
        assert page.x0 <= box.x0 and box.x1 <= page.x1, text.get_text()


def test_a_choice_shows_as_a_table_whose_cells_are_escaped():
    odd = Claim("1.1", "ZeRO", "a < b & `c < d`.", "false", "*Not* so.", ("01: The question",))
    html = Audit([odd], "Odd")._repr_mimebundle_()["text/html"]
    assert "a &lt; b &amp; <code>c &lt; d</code>." in html
    assert "<em>Not</em> so." in html
    assert '<a href="01_bubbles.ipynb#The-question">chapter 1: The question</a>' in html
    full = audit("schedules")._repr_mimebundle_()["text/html"]
    assert full.count("<tr>") == 1 + len(audit("schedules"))
    assert full.count("<a href=") == sum(len(claim.where) for claim in audit("schedules"))


@pytest.mark.parametrize("name", ["FIRST", "SECOND"])
def test_the_configs_are_those_the_articles_print(name):
    """Every key and number stands in the text; the reading copies lack quotes and signs."""
    files = sorted((SHARED / "sources").glob("*.txt"))
    if len(files) != 2:
        pytest.skip("shared/sources is not here: it is no part of the repository")
    text = files[("FIRST", "SECOND").index(name)].read_text(encoding="utf-8")
    words = re.findall(r"\"(\w+)\"|([\d.e-]+)", json.dumps(getattr(configs, name)))
    for key, number in words:
        shown = key or {"6e-05": "6e-5", "1000000.0": "1e6"}.get(number, number)
        assert shown in text, shown


def test_the_checker_finds_what_the_audit_says():
    first = pplab.check(configs.FIRST, ranks=8, stages=4, tensor=2)
    assert {f.key for f in first.of("error")} == {"zero_optimization.stage"}
    assert {f.key for f in first.of("wrong")} == {
        "pipeline.activation_checkpointing", "pipeline.partition_method",
    }  # fmt: skip
    assert first.resolved["train_micro_batch_size_per_gpu"] == 32
    second = pplab.check(configs.SECOND, ranks=8)
    assert {f.key for f in second.of("error")} == {"train_batch_size"}
    assert pplab.check(configs.SECOND, ranks=16, stages=4).of("error") == ()
    assert pplab.check(command=configs.COMMAND, config=configs.FIRST).resolved["stages"] == 4


def test_the_chapters_it_can_point_to_are_there():
    there = {path.name for path in (ROOT / "chapters").glob("*.ipynb")}
    used = {place.notebook for claim in ALL for place in claim.places}
    assert used <= there
    assert all(name.startswith(number) for number, name in CHAPTERS.items())

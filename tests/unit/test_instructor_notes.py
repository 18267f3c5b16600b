"""docs/instructor.md: minutes that add up, sections that exist, and answers that are true."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pplab.core.batch import ideal_bubble
from pplab.core.schedules import gpipe, one_f_one_b, zb_h1, zb_h2
from pplab.runtime.job import Job
from pplab.runtime.models import gpt

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "instructor.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| *\**(\d+)\** *\| *([^|]*?) *\| *([^|]*?) *\|$", re.M)


def notebook(kind: str, number: int) -> str:
    """The Markdown of a chapter or lab."""
    (path,) = (ROOT / f"{kind}s").glob(f"{number:02d}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def agendas() -> list[list[tuple[int, str, str]]]:
    """The rows of each table of minutes."""
    chapter = TEXT[TEXT.index("## Agendas") : TEXT.index("## What to say")]
    tables = chapter.split("| minutes | item | what |")[1:]
    return [[(int(m), item, what) for m, item, what in ROW.findall(table)] for table in tables]


def test_there_are_three_agendas_of_the_promised_length():
    totals = [sum(row[0] for row in table[:-1]) for table in agendas()]
    assert totals == [90, 240, 420, 420]
    assert [table[-1][:2] for table in agendas()] == [(total, "") for total in totals]


@pytest.mark.parametrize("table", agendas(), ids=["90 min", "half a day", "day 1", "day 2"])
def test_minutes_are_those_that_the_notebooks_state(table):
    for minutes, item, _ in table[:-1]:
        named = re.fullmatch(r"(chapter|lab) (\d+)(, part)?", item)
        if not named:
            assert item in ("break", "lunch", "questions"), item
            continue
        text = notebook(named[1], int(named[2]))
        stated = int(re.search(r"^\*\*(\d+) minutes", text, re.M)[1])
        assert minutes < stated if named[3] else minutes == stated, (item, minutes, stated)


def test_sections_that_an_agenda_names_are_in_the_chapter():
    checked = 0
    for table in agendas():
        for _, item, what in table[:-1]:
            named = re.fullmatch(r"chapter (\d+), part", item)
            headings = (
                re.findall(r"^## (.+)$", notebook("chapter", int(named[1])), re.M) if named else []
            )
            parts = (
                re.split(r"; (?:then )?|(?<=question) to ", re.sub(r"^to ", "", what))
                if named
                else []
            )
            for part in parts:
                assert any(part in heading for heading in headings), (item, part)
                checked += 1
    assert checked >= 12


def test_the_whole_course_is_in_the_two_days():
    items = {item.removesuffix(", part") for table in agendas()[2:] for _, item, _ in table}
    chapters = {f"chapter {p.name[:2]}" for p in (ROOT / "chapters").glob("*.ipynb")}
    assert chapters <= items


def test_the_numbers_of_the_answers_are_computed():
    assert "37.5 % and 27.3 %" in TEXT
    assert (3 / 8, round(ideal_bubble(4, 8), 3)) == (0.375, 0.273)
    for stages in (4, 8, 64):  # "at 2 P a quarter to a third is idle"
        assert 0.25 < ideal_bubble(stages, 2 * stages) < 1 / 3
    assert "[8 8 8 8] against [4 3 2 1]" in TEXT
    for make, peaks in ((gpipe, [8, 8, 8, 8]), (one_f_one_b, [4, 3, 2, 1]), (zb_h2, [7] * 4),
                        (zb_h1, [4] * 4)):  # fmt: skip
        simulated = make(4, 8).simulate(forward=1, backward=2)
        assert simulated.measures.peak_in_flight().tolist() == peaks


@pytest.mark.parametrize(("slow", "said"), [(3, "17.9 %"), (0, "12.0 %")])
def test_a_slow_stage_costs_what_is_said(slow, said):
    plan, speeds = one_f_one_b(4, 8), [1.0] * 4
    even = plan.simulate(forward=1, backward=2).step_time
    speeds[slow] = 1.3
    uneven = plan.simulate(forward=speeds, backward=[2 * s for s in speeds]).step_time
    assert f"{1 - even / uneven:.1%}".replace("%", " %") == said and said in TEXT


def test_a_hang_ends_when_it_is_said_to():
    assert "after a minute without progress" in TEXT
    assert Job(model=gpt(), stages=1, micro_batches=1, engine="plain").hang_after == 60


def test_settings_of_the_hub_that_are_named_are_read_by_it():
    config = (ROOT / "deploy" / "jupyterhub_config.py").read_text()
    for name in set(re.findall(r"PPLAB_HUB_[A-Z]+|PPLAB_MAX_RANKS|PPLAB_LEARNER_MB", TEXT)):
        assert f'"{name}"' in config, name
    assert "1.2 GB a learner" in TEXT and '"PPLAB_LEARNER_MB", "1200"' in config

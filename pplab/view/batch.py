"""The batch triangle on the page: what was written, what DeepSpeed fills in, who has how many
micro-batches, and a published table beside what a pipeline can do.

Plain HTML tables with the same in words: they read in a notebook, on GitHub and with a screen
reader, and need no kernel. Meaning never hangs on a colour or a line alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from pplab.core.batch import Batch, Confronted, Count, proposals
from pplab.core.words import aligned
from pplab.view import colours
from pplab.view.scoreboard import html_table
from pplab.view.words import number

_LEFT = "text-align:left;vertical-align:top"
_BOX = "padding:6px 12px;text-align:center;border-radius:4px;border:2px"


def bundle_of_batch(batch: Batch) -> dict[str, Any]:
    """A triangle as an equation of boxes, solid where written, dashed where filled in."""
    return {"text/plain": _batch_text(batch), "text/html": _batch_html(batch)}


def bundle_of_count(count: Count) -> dict[str, Any]:
    """Every pipeline with its micro-batches, and the four numbers with one name."""
    return {"text/plain": _count_text(count), "text/html": _count_html(count)}


def bundle_of_table(rows: Sequence[Confronted], stages: int) -> dict[str, Any]:
    """A published GAS sweep, row by row, beside what is possible."""
    table, caption = _confronted(rows, stages)
    return {
        "text/plain": f"{caption}\n{aligned(table)}",
        "text/html": html_table(table, caption),
    }


# -- the triangle ---------------------------------------------------------------------------------


def _how(how: str) -> str:
    return how.replace("filled: ", "filled in: ").replace("none", "neither written nor filled in")


def _batch_text(batch: Batch) -> str:
    rows = [["key", "value", "how it came about"]]
    rows += [[key, "-" if value is None else str(value), _how(how)] for key, value, how in
             batch.rows()]  # fmt: skip
    rows.append(["replicas", str(batch.replicas), "ranks / stages"])
    lines = [aligned(rows), ("holds: " if batch.ok else "DeepSpeed refuses: ") + batch.sentence()]
    near = proposals(batch)
    if near:
        lines.append("nearest numbers that work: " + "; or ".join(map(str, near)))
    return "\n".join(lines)


def _batch_html(batch: Batch) -> str:
    shown = {key: (value, _how(how)) for key, value, how in batch.rows()}
    shown["replicas"] = (batch.replicas, "ranks / stages")
    cells = []
    for key, sign in zip(shown, ("=" if batch.ok else "≠", "×", "×", ""), strict=True):
        value, how = shown[key]
        line = "dashed" if how.startswith("filled") else "dotted" if value is None else "solid"
        text = "?" if value is None else str(value)
        cells.append(
            f'<td style="{_BOX} {line} currentColor"><span>{escape(key)}</span><br>'
            f'<b style="font-size:1.5em">{text}</b><br><i>{escape(how)}</i></td>'
        )
        if sign:
            cells.append(f'<td style="padding:6px;font-size:1.5em;border:0"><b>{sign}</b></td>')
    verdict = "Holds." if batch.ok else "DeepSpeed refuses this."
    near = proposals(batch)
    fixes = "".join(f"<li>{escape(str(one))}</li>" for one in near)
    more = f"<p>Nearest numbers that work:</p><ul>{fixes}</ul>" if near else ""
    return (
        f'<table style="border-collapse:separate;border-spacing:4px"><tr>{"".join(cells)}</tr>'
        f"</table><p><b>{verdict}</b> {escape(batch.sentence())}</p>{more}"
    )


# -- who has how many micro-batches ---------------------------------------------------------------


def _four(count: Count) -> list[list[str]]:
    return [
        ["what is counted", "number", "who calls it so"],
        ["micro-batches of one pipeline", str(count.per_pipeline),
         "M of every formula; gradient_accumulation_steps"],
        ["micro-batches of all pipelines", str(count.all_pipelines),
         "GAS x replicas: no pipeline ever sees so many"],
        ["samples of one replica", str(count.samples_per_replica), "micro-batch size x GAS"],
        ["samples of a step", str(count.train), "train_batch_size"],
    ]  # fmt: skip


def _count_text(count: Count) -> str:
    many = range(count.per_pipeline)
    lines = [
        f"replica {r} ({count.stages} ranks): {' '.join(f'[{m}]' for m in many)}"
        for r in range(count.replicas)
    ]
    return "\n".join([*lines, aligned(_four(count)), str(count)])


def _count_html(count: Count) -> str:
    most, tint = 24, colours.WORK["F"]
    shown = min(count.per_pipeline, most)
    style = f"background:{tint};color:#fff;padding:2px 7px;border:2px solid #fff;text-align:center"
    rows = []
    for replica in range(count.replicas):
        boxes = "".join(f'<td style="{style}">{m}</td>' for m in range(shown))
        more = f"<td>and {count.per_pipeline - most} more</td>" if count.per_pipeline > most else ""
        ranks = f"ranks of replica {replica} ({count.stages} stages)"
        rows.append(f'<tr><th scope="row" style="{_LEFT}">{ranks}</th>{boxes}{more}</tr>')
    caption = f"One box: a micro-batch of {count.micro} samples. The replicas work side by side."
    drawn = f'<table><caption style="{_LEFT}">{caption}</caption>{"".join(rows)}</table>'
    return drawn + html_table(_four(count), str(count))


# -- a published table ----------------------------------------------------------------------------


def _confronted(rows: Sequence[Confronted], stages: int) -> tuple[list[list[str]], str]:
    table = [["GAS", "working, claimed", "possible", "speed-up, claimed", "possible", "verdict"]]
    for i, row in enumerate(rows):
        ups = [f"x {row.speed_up:.2f}", f"x {row.possible_speed_up:.2f}"] if i else ["", ""]
        table.append(
            [str(row.gas), f"{row.claimed:.0%}", f"{row.possible:.0%}", *ups, _verdict(row)]
        )
    bad = sum(not row.can_be for row in rows)
    caption = (
        f"{number(bad)} of {len(rows)} rows cannot come from a synchronous pipeline of {stages} "
        "equal stages with micro-batches of one size, whatever the hardware. Speed-up: over the "
        "row before."
    )
    return table, caption


def _verdict(row: Confronted) -> str:
    wrong = []
    if row.claimed > row.possible * (1 + 1e-9):
        wrong.append("works more than it can")
    if row.speed_up > row.possible_speed_up * (1 + 1e-9):
        wrong.append("gains more than it can")
    if row.speed_up < 1:
        wrong.append("gets slower: only smaller micro-batches do")
    return ", ".join(wrong) or "can be"

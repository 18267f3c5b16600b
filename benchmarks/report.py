"""A measurement with its target, and how the table is printed."""

from __future__ import annotations

from typing import Any


def entry(
    id: str,
    value: float | None,
    unit: str,
    target: float | None,
    better: str,
    how: str,
) -> dict[str, Any]:
    """One line of ``build/bench.json``. `value` None: could not be measured; `how` says why.
    `better` is "lower" or "higher"; `met` is None without a target or a value."""
    met = None
    if value is not None and target is not None:
        met = value <= target if better == "lower" else value >= target
    return {
        "id": id, "value": value, "unit": unit, "target": target, "better": better, "met": met,
        "how": how,
    }  # fmt: skip


def table(entries: list[dict[str, Any]]) -> str:
    """The entries as aligned text, one a line, with the way of measuring under each."""
    lines = []
    for e in entries:
        value = "-" if e["value"] is None else f"{e['value']:.4g}"
        target = ""
        if e["target"] is not None:
            target = f"{'<=' if e['better'] == 'lower' else '>='} {e['target']:g}"
        verdict = {True: "met", False: "NOT MET", None: ""}[e["met"]]
        lines.append(f"{e['id']:32} {value:>10} {e['unit']:8} {target:10} {verdict}")
        lines.append(f"    {e['how']}")
    return "\n".join(lines)

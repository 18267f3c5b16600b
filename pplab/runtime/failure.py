"""When a run fails: the cause first, in one sentence, then who was doing what.

A rank that fails takes its neighbours along: they see closed connections. Those errors are
consequences; the cause is the first rank that was killed, or that raised anything else.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any


class RunError(RuntimeError):
    """A run failed. ``cause`` is the one sentence; ``ranks`` says what each rank was doing.

    Printed in a notebook without the notebook's own traceback, which says nothing about the ranks.
    """

    def __init__(
        self,
        cause: str,
        details: list[str] | None = None,
        traceback: str = "",
        ranks: list[dict[str, Any]] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.cause, self.details, self.traceback = cause, details or [], traceback
        self.ranks, self.directory = ranks or [], directory
        super().__init__("\n".join([cause, *(f"  {line}" for line in self.details)]))

    def _render_traceback_(self) -> list[str]:
        """What IPython prints: the message, and the rank's own traceback under it."""
        lines = ["RunError: " + str(self)]
        if self.traceback:
            shown = self.traceback.rstrip().splitlines()
            shown = shown if len(shown) <= 24 else [*shown[:2], "  ...", *shown[-20:]]
            lines += ["", "Traceback in the rank:", *shown]
        return lines


def explain(event: dict[str, Any], directory: Path | None) -> RunError:
    """The error for a "failed" event of the supervisor."""
    if event["kind"] == "start":
        return RunError(event["text"], directory=directory)
    ranks = event["ranks"]
    if event["kind"] == "hang":
        cause, guilty = _hang(ranks), None
    else:
        guilty = _guilty(ranks)
        cause = _sentence(guilty, ranks) if guilty else _launcher(event)
    details = []
    if guilty and guilty["error"] and guilty["error"]["line"]:
        details.append(guilty["error"]["line"])
    details += _others(ranks, guilty)
    if event.get("log_error"):
        details.append(f"the logs are incomplete: {event['log_error']}")
    if directory is not None:
        details.append(f"logs: {directory}{'/rank-*.log'}")
    trace = guilty["error"]["traceback"] if guilty and guilty["error"] else ""
    return RunError(cause, details, trace, ranks, directory)


def _guilty(ranks: list[dict[str, Any]]) -> dict[str, Any] | None:
    raised = [r for r in ranks if r["error"]]
    own = [r for r in raised if not r["error"]["peer"]]
    if own:
        return min(own, key=lambda r: r["error"]["time"])
    died = [r for r in ranks if r["was"] == "ended" and not r["error"] and not r["finished"]]
    if died:
        return died[0]
    return min(raised, key=lambda r: r["error"]["time"]) if raised else None


def _sentence(rank: dict[str, Any], ranks: list[dict[str, Any]]) -> str:
    who, doing = f"rank {rank['rank']}", _doing(rank)
    if rank.get("host"):
        who += f" (on {rank['host']})"
    error = rank["error"]
    if error:
        same = [r for r in ranks if r["error"] and r["error"]["text"] == error["text"]]
        if len(same) == len(ranks) > 1:
            who = "both ranks" if len(ranks) == 2 else f"all {len(ranks)} ranks"
        text = " / ".join(line.strip() for line in error["text"].splitlines()[:3])
        if error["type"] not in ("AssertionError", "RunError"):
            text = f"{error['type']}: {text}"
        return f"{who} failed{doing}: {text}"
    code = rank["exit_code"]
    if code is None and rank.get("host"):
        return f"{who} is gone: killed, or its machine or the network to it is lost{doing}"
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = ""
        if name == "SIGKILL":
            hint = " (by a person, or by the system when memory ran out)"
        return f"{who} was killed by {name}{hint}{doing}"
    return f"{who} ended by itself with exit code {code}{doing}"


def _doing(rank: dict[str, Any]) -> str:
    """ "runs F3" -> " while running F3"."""
    verbs = {
        "runs": "running", "waits": "waiting", "builds": "building", "joins": "joining",
        "imports": "importing", "reports": "reporting", "ends": "ending",
    }  # fmt: skip
    first, _, rest = rank["doing"].partition(" ")
    rest = rest.replace("its DeepSpeed engine", "the DeepSpeed engine")
    return f" while {verbs.get(first, first)} {rest}" if first else " before it began"


def _hang(ranks: list[dict[str, Any]]) -> str:
    still = [r["for"] for r in ranks if r["for"] is not None]
    waited = f" for {min(still):.0f} s" if still else ""
    busy = [r for r in ranks if r["doing"] and not r["doing"].startswith("waits")]
    if busy and len(busy) < len(ranks):
        who = ", ".join(f"rank {r['rank']} {r['doing']} and does not come back" for r in busy)
        return f"the run hangs: nothing has happened{waited}; {who}, the others wait"
    return f"the run hangs: nothing has happened{waited}; every rank waits for another"


def _others(ranks: list[dict[str, Any]], guilty: dict[str, Any] | None) -> list[str]:
    lines = []
    for rank in ranks:
        if rank is guilty:
            continue
        if rank["doing"]:
            lines.append(f"rank {rank['rank']}: {rank['doing']}")
    return lines


def _launcher(event: dict[str, Any]) -> str:
    tail = event["logs"].get("deepspeed", "").strip().splitlines()
    said = f": {tail[-1]}" if tail else ""
    return f"the deepspeed command ended with exit code {event['launcher_exit']}{said}"

"""What a tuning found: ranked plans, what is out and why, what real runs said."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from pplab.advise.tune.accept import Acceptance, accept
from pplab.advise.tune.known import Known
from pplab.advise.tune.plan import Plan
from pplab.advise.tune.rank import KINDS, Out
from pplab.advise.tune.subject import Say
from pplab.advise.tune.verify import Verified, fastest, settled, verdict, verify
from pplab.core.memory import size
from pplab.core.profile import Profile
from pplab.runtime.models import Model

FORMAT = 1
SHOWN = 8  # plans in a table
ABOUT_ZERO = (
    "ZeRO-2 and 3 are not among the plans: DeepSpeed refuses them with a pipeline, because the "
    "gradients of all micro-batches must stay until the end of a step."
)


@dataclass(frozen=True)
class Tuning:
    """Plans for one job on one machine, the fastest first by prediction.

    out: candidates that are no plans, with the reason; looked: how many candidates there were;
    machine, subject: in words; profiles: by micro-batch size (give them to the next ``tune``, with
    model=..., and nothing is timed again); known: what the probes measured; verified: real runs of
    the first plans; acceptance: the check-list of the best one; source: of the predictions
    """

    plans: tuple[Plan, ...]
    out: tuple[Out, ...]
    looked: int
    batch: int
    machine: str
    subject: str
    source: str
    profiles: tuple[Profile, ...] = field(repr=False, default=())
    known: Known = field(repr=False, default_factory=Known)
    notes: tuple[str, ...] = ()
    verified: tuple[Verified, ...] = ()
    acceptance: Acceptance | None = None

    def __len__(self) -> int:
        return len(self.plans)

    def __getitem__(self, number: int) -> Plan:
        return self.plans[number]

    @property
    def first(self) -> Plan:
        """The first choice: the plan with the shortest predicted step."""
        return self.plans[0]

    @property
    def best(self) -> Plan:
        """The plan to use: the fastest of those that were run (the first choice, when they are a
        tie within what runs differ by), else the first choice."""
        found = settled(self.verified)
        return found.plan if found else self.first

    @property
    def error(self) -> float:
        """The worst |predicted / measured - 1| of the plans that were run; nan without runs."""
        return max((abs(v.error) for v in self.verified if v.steps), default=float("nan"))

    @property
    def first_is_best(self) -> bool | None:
        """Whether the first choice is the measured best of those run; None before."""
        found = fastest(self.verified)
        return found.plan is self.first if found and self.verified[0].steps else None

    def left_out(self, kind: str = "") -> tuple[Out, ...]:
        """Candidates that are no plans; of one kind ("memory", "alike", ...) when given."""
        return tuple(one for one in self.out if not kind or one.kind == kind)

    # -- real runs --------------------------------------------------------------------------------

    def verify(
        self, count: int = 3, *, repeats: int = 3, steps: int = 6, say: Say = lambda text: None
    ) -> Tuning:
        """The same with its first `count` plans run for real, taking turns, and the fastest of
        them put to the acceptance test. Raises RunError when all fail."""
        chosen = self.plans[:count]
        found = verify(chosen, repeats=repeats, steps=steps, say=say)
        best = settled(found)
        assert best is not None
        say("compares the loss with that of one process")
        quiet = min(best.runs, key=lambda run: run.step_time)
        return replace(self, verified=found, acceptance=accept(quiet))

    def accept(
        self, plan: Plan | None = None, model: Model | None = None, **run: Any
    ) -> Acceptance:
        """The check-list of a plan (default: ``best``): runs it and one plain process."""
        settings = {"steps": 4, "quiet": True, "keep": False, **run}
        return accept((plan or self.best).run(model, **settings))

    # -- words ------------------------------------------------------------------------------------

    def sentence(self) -> str:
        """The result in one or two sentences."""
        best = self.best
        text = f"Batch of {self.batch} on {self.machine}: {best}."
        found = settled(self.verified)
        if found:
            text += f" Measured: {best.time(found.step)}; the prediction is {found.error:+.1%} off."
        return text

    def counts(self) -> str:
        """How many candidates there were and what became of them, in words."""
        found = Counter(one.kind for one in self.out)
        parts = [f"{found[kind]} {text}" for kind, text in KINDS.items() if found[kind]]
        text = f"{self.looked} candidates, {len(self.plans)} plans"
        return text + (f"; out: {'; '.join(parts)}." if parts else ".")

    def binding(self) -> str:
        """Which memory cap bound, in words; "" when everything fits."""
        too_large = self.left_out("memory")
        if not too_large:
            return ""
        near = min(too_large, key=lambda one: one.need / one.cap if one.cap else float("inf"))
        return f"Nearest to fitting: {near.what}: {near.why}."

    @property
    def table(self) -> list[list[str]]:
        """Head and rows as text: the first plans, predicted (and measured, where they were run)."""
        ran = {id(v.plan): v for v in self.verified}
        head = ["", "plan", "cut", "step", "idle", "memory", "why"]
        if ran:
            head[4:4] = ["measured", "off by"]
        rows = [head]
        for number, plan in enumerate(self.plans[:SHOWN], 1):
            cuts = " ".join(map(str, plan.partition.bounds[1:-1])) or "-"
            row = [str(number), str(plan.what), cuts, plan.time(plan.step), f"{plan.bubble:.0%}"]
            row += [size(plan.memory.peak), plan.reason]
            if ran:
                v = ran.get(id(plan))
                row[4:4] = _measured(v, plan) if v else ["-", "-"]
            rows.append(row)
        return rows

    def text(self) -> str:
        """Everything, for a terminal."""
        lines = [*wrap(self.sentence(), 98), ""]
        for number, plan in enumerate(self.plans[:SHOWN], 1):
            lines += wrap(f"{number}. {plan}", 98, subsequent_indent="   ")
            lines += wrap(plan.reason, 98, initial_indent="   ", subsequent_indent="   ")
        if len(self.plans) > SHOWN:
            lines.append(f"   ... and {len(self.plans) - SHOWN} more")
        if self.verified:
            lines += ["", "On real ranks:", *self._runs(), *wrap(verdict(self.verified), 98)]
        lines.append("")
        for line in filter(None, [self.counts(), self.binding(), *self.notes]):
            lines += wrap(line, 98, subsequent_indent="  ")
        if self.acceptance:
            lines += ["", self.acceptance.text()]
        return "\n".join(lines)

    def _runs(self) -> list[str]:
        lines = []
        for number, v in enumerate(self.verified, 1):
            if not v.steps:
                lines.append(f"{number}. failed: {v.problem}")
                continue
            lines.append(
                f"{number}. predicted {v.plan.time(v.plan.step)}, measured {v.plan.time(v.step)} "
                f"({v.error:+.1%}{_apart(v)}); idle {v.plan.bubble:.0%} "
                f"predicted, {v.bubble:.0%} measured"
            )
        return lines

    def __str__(self) -> str:
        mark = "[measured] " if self.measured else "[simulated] "
        return "\n".join((mark + line).rstrip() for line in self.text().splitlines())

    def __repr__(self) -> str:
        return f"<Tuning {self.sentence()}>"

    @property
    def measured(self) -> bool:
        """Whether anything in it was measured."""
        return bool(self.verified or self.known.shapes or self.source.startswith("measured"))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        png = b64encode(self.png()).decode("ascii")
        return {"text/plain": str(self), "text/html": self._html(png), "image/png": png}

    def png(self) -> bytes:
        """The picture: every plan by step and memory, and what memory forbids."""
        from pplab.view.tuning import png  # a display is the one reason to look up

        return png(self)

    def _html(self, png: str) -> str:
        from pplab.view.scoreboard import html_table

        picture = (
            f'<img alt="{escape(self.sentence())}" src="data:image/png;base64,{png}" '
            'style="max-width:100%">'
        )
        foot = [self.counts(), self.binding(), *self.notes]
        if self.verified:
            foot.insert(0, verdict(self.verified))
        words = "".join(f"<p>{escape(line)}</p>" for line in filter(None, foot))
        listed = self.acceptance._repr_html_() if self.acceptance else ""
        return picture + html_table(self.table, self.sentence()) + words + listed

    # -- keeping it -------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """Everything but the runs, as plain values."""
        return {
            "format": FORMAT,
            "batch": self.batch,
            "machine": self.machine,
            "subject": self.subject,
            "source": self.source,
            "looked": self.looked,
            "plans": [plan.as_json() for plan in self.plans],
            "out": [_out(one) for one in self.out],
            "counts": dict(Counter(one.kind for one in self.out)),
            "probes": list(self.known.probes),
            "notes": list(self.notes),
            "verified": [v.as_json() for v in self.verified],
            "verdict": verdict(self.verified) if self.verified else "",
            "acceptance": self.acceptance.as_json() if self.acceptance else None,
            "deepspeed_config": self.best.deepspeed_config(),
            "run": self.best.call(),
        }

    def save(self, file: str | Path) -> Path:
        """Write it as JSON."""
        Path(file).write_text(json.dumps(self.as_json(), indent=1) + "\n", encoding="utf-8")
        return Path(file)


def _apart(v: Verified) -> str:
    return (
        f"; the fastest steps of the two fastest runs {v.noise:.1%} apart" if v.noise >= 0 else ""
    )


def _measured(v: Verified, plan: Plan) -> list[str]:
    return [plan.time(v.step), f"{v.error:+.1%}"] if v.steps else ["failed", "-"]


def _out(one: Out) -> dict[str, Any]:
    what: dict[str, Any] = {"what": str(one.what), "kind": one.kind, "why": one.why}
    return what | ({"need": one.need, "cap": one.cap} if one.cap else {})


def nothing(out: Sequence[Out], machine: str, batch: int) -> str:
    """Why there is no plan at all, in a sentence that says what to do."""
    found = Counter(one.kind for one in out)
    if not found:
        return (
            f"there is no way to run a batch of {batch} on {machine}: no number of replicas and no "
            "micro-batch size divides it; give other micro_batch_sizes, or another batch"
        )
    (kind, _), *_ = found.most_common()
    if found["memory"]:
        kind = "memory"
    one = next(o for o in out if o.kind == kind)
    if kind == "memory":
        one = min((o for o in out if o.kind == kind), key=lambda o: o.need / o.cap)
    advice = {
        "cores": "take fewer ranks, a paced model, or say cores= to plan for another machine",
        "memory": "allow recompute=(0, 1), more ranks, or smaller micro-batches",
        "size": "give micro_batch_sizes that were measured",
    }.get(kind, "widen what is searched")
    parts = "; ".join(f"{count} {KINDS[kind]}" for kind, count in found.most_common())
    return f"no plan for a batch of {batch} on {machine} ({parts}). {one.what}: {one.why}. " + (
        f"{advice[0].upper()}{advice[1:]}."
    )

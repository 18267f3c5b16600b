"""What a diagnosis says: for a terminal, a notebook, and a program."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from pplab.advise.diagnose.cause import Cause
from pplab.advise.diagnose.causes import LEAST
from pplab.advise.diagnose.parts import Part
from pplab.core.words import duration


@dataclass(frozen=True)
class Diagnosis:
    """Where the time of a step goes, and what makes it longer than it needs to be.

    parts: add up to `step`; causes: what could be removed, the most costly first, each with its
    evidence, advice and saving. step: mean length of the steps (`unit`, "s" for seconds); ideal:
    the same without stragglers and launch delays, as arXiv 2505.05713 defines it; replayed: what
    the replay, from which every saving comes, makes of the step (close to `step`, or beware).
    counts: numbers of ranks, replicas, micro-batches and steps; shape: what the form of the
    pipeline costs whatever is done about the causes, as a sentence; notes: what else to know.
    """

    parts: tuple[Part, ...]
    causes: tuple[Cause, ...]
    step: float
    ideal: float
    replayed: float
    unit: str
    source: str
    counts: dict[str, int]
    shape: str = ""
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Part:
        """The part called `name`; KeyError when there is none."""
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(f"{name!r}; the parts are {', '.join(p.name for p in self.parts)}")

    @property
    def first(self) -> Cause | None:
        """The most costly cause; None when nothing stands out."""
        return self.causes[0] if self.causes else None

    def time(self, value: float) -> str:
        """A time with its unit, in words; "-" for nothing."""
        return duration(value, self.unit, 3) if abs(value) > 1e-6 * self.step else "-"

    # -- words ------------------------------------------------------------------------------------

    def sentence(self) -> str:
        """The result in one or two sentences."""
        useful = self["useful"].share
        head = f"A step takes {self.time(self.step)}, of which {useful:.0%} is useful work."
        if self.first is None:
            return f"{head} No cause costs {LEAST:.0%} of it: what remains is the pipeline's shape."
        one = self.first
        return f"{head} First cause: {one.what}; without it {self.saves(one)}."

    def saves(self, cause: Cause) -> str:
        """What removing a cause saves, in words."""
        most = "up to " if cause.at_most else ""
        if cause.behind:
            return f"hidden behind {cause.behind}; without that, {most}{self.time(cause.saving)}"
        return f"the step would be {most}{self.time(cause.saving)} shorter ({cause.share:.0%})"

    def about(self) -> str:
        """What was diagnosed, in words."""
        n = self.counts
        many = f"{n['replicas']} replicas of " if n["replicas"] > 1 else ""
        return (
            f"{self.source or 'timeline'}: {many}{_some(n['ranks'], 'rank')}, "
            f"{_some(n['micro_batches'], 'micro-batch')}, mean of {_some(n['steps'], 'step')}"
        )

    def text(self) -> str:
        """Everything, for a terminal."""
        lines = [self.about(), self.sentence(), ""]
        for part in self.parts:
            bar = "#" * max(0, round(part.share * 40))
            share = _percent(part.share)
            line = f"{part.name:24} {self.time(part.seconds):>10} {share:>6}  {bar}"
            lines.append(line.rstrip())
        lines.append(f"{'the step':24} {self.time(self.step):>10} {1:>6.1%}")
        lines.append(
            f"{'without stragglers':24} {self.time(self.ideal):>10} {self.ideal / self.step:>6.1%}"
            "  ideal: every operation as long as the mean of its kind, no delays"
        )
        if self.causes:
            lines += ["", "Causes, the most costly first (their savings do not add up):"]
        for number, cause in enumerate(self.causes, 1):
            lines.append(f"{number}. {cause.what} [{cause.name}]: {self.saves(cause)}")
            for text in cause.evidence:
                lines += wrap(text, 94, initial_indent="   - ", subsequent_indent="     ")
            lines += wrap(cause.advice, 94, initial_indent="   -> ", subsequent_indent="      ")
        if self.shape:
            lines += ["", *wrap(self.shape, 98)]
        for note in self.notes:
            lines += wrap(f"Note: {note}", 98)
        return "\n".join(lines)

    def __str__(self) -> str:
        mark = "[measured] " if self.source.startswith("measured") else ""
        return "\n".join((mark + line).rstrip() for line in self.text().splitlines())

    def __repr__(self) -> str:
        return f"<Diagnosis {self.sentence()}>"

    # -- a notebook -------------------------------------------------------------------------------

    def png(self) -> bytes:
        """The picture as a PNG: the parts as bars, and the causes."""
        from pplab.view.diagnosis import png

        return png(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from pplab.view.show import bundle

        return bundle(None, self.png(), str(self))

    # -- programs ---------------------------------------------------------------------------------

    @property
    def as_json(self) -> dict[str, Any]:
        """Everything as plain values; times in `unit`."""
        return {
            "source": self.source,
            "unit": self.unit,
            **self.counts,
            "step": self.step,
            "ideal": self.ideal,
            "replayed": self.replayed,
            "sentence": self.sentence(),
            "parts": [
                {"name": p.name, "time": p.seconds, "share": p.share, "meaning": p.meaning}
                for p in self.parts
            ],
            "causes": [
                {
                    "name": c.name,
                    "what": c.what,
                    "saving": c.saving,
                    "share": c.share,
                    "evidence": list(c.evidence),
                    "advice": c.advice,
                    "where": c.where,
                    "behind": c.behind,
                    "at_most": c.at_most,
                }
                for c in self.causes
            ],
            "shape": self.shape,
            "notes": list(self.notes),
        }


def _some(count: int, what: str) -> str:
    """``1 rank``, ``2 micro-batches``."""
    many = "" if count == 1 else "es" if what.endswith("ch") else "s"
    return f"{count} {what}{many}"


def _percent(share: float) -> str:
    """A share, and never -0.0%."""
    return f"{share if abs(share) >= 0.0005 else 0.0:.1%}"

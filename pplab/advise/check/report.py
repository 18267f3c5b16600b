"""Everything found in one config: as text, as a table in a notebook, as JSON, and mended."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pplab.advise.check.finding import SEVERITIES, Edit, Finding, apply

WORDS = {
    "error": "the job will not start, or stops",
    "wrong": "it runs, and does not do what the config says",
    "risky": "it may cost time, memory or correctness",
    "note": "good to know",
}
#: Rounds of mending: one repair may make another one possible.
ROUNDS = 4
#: What is mended by writing the same config as strict JSON.
REWRITTEN = {"duplicate-key", "python-word", "not-strict-json", "byte-order-mark"}


def _moves(edit: Edit) -> bool:
    """Whether an edit is something else than a new name in the same section."""
    return edit.kind != "rename" or edit.path[:-1] != tuple(edit.value)[:-1]


@dataclass(frozen=True)
class Report:
    """What ``check`` returns.

    name:     file the config came from, or what it was called
    config:   the config as read; {} when it could not be read
    findings: worst first, then in the order of the file
    resolved: batch triangle, replicas, stages, micro-batches and ideal bubble as DeepSpeed will
              have them; values are None where the ranks or the stages are not known
    version:  DeepSpeed's version whose rules were used
    recheck:  checks a mended config for the same job
    """

    name: str
    config: dict[str, Any]
    findings: tuple[Finding, ...]
    resolved: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    readable: bool = True
    recheck: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        order = sorted(self.findings, key=lambda f: (SEVERITIES.index(f.severity), f.line))
        object.__setattr__(self, "findings", tuple(order))

    @property
    def ok(self) -> bool:
        """True when nothing worse than a note was found."""
        return all(finding.severity == "note" for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """0: clean or notes only, 1: errors or warnings, 2: not readable."""
        return 2 if not self.readable else 0 if self.ok else 1

    def of(self, severity: str) -> tuple[Finding, ...]:
        """The findings of one severity."""
        return tuple(finding for finding in self.findings if finding.severity == severity)

    def rules(self, *severities: str) -> set[str]:
        """Names of the rules that found something (of these severities)."""
        return {f.rule for f in self.findings if not severities or f.severity in severities}

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """The config with everything mended that is mechanical; the same one when nothing is.

        What runs is left alone where mending it would make DeepSpeed stop: a setting that was
        misspelt all the time may be one that does not work.
        """
        config = self._mended(())
        if self.recheck is None or self.recheck(config).stuck <= self.stuck:
            return config
        runs = [f for f in self.findings if f.repair and f.severity != "error"]
        harmful = [
            f.key for f in runs if self.recheck(apply(self.config, f.repair)).stuck > self.stuck
        ]
        return self._mended(harmful)

    def _mended(self, without: Sequence[str]) -> dict[str, Any]:
        """The config with the repairs of all findings but those for some keys."""
        config, report = self.config, self
        for _ in range(ROUNDS):
            edits = [e for f in report.findings if f.key not in without for e in f.repair]
            edits.sort(key=_moves)  # a typo's value goes before one from another section
            new = apply(config, edits)
            if not edits or new == config:
                break
            config = new
            if self.recheck is None:
                break
            report = self.recheck(config)
        return config

    @property
    def stuck(self) -> int:
        """How many errors only a person can mend."""
        return sum(not finding.repair for finding in self.of("error"))

    @property
    def can_fix(self) -> bool:
        """True when writing ``fixed`` changes something, and be it only how the file is written."""
        return self.readable and (bool(self.rules() & REWRITTEN) or self.fixed != self.config)

    # -- words ------------------------------------------------------------------------------------

    def headline(self) -> str:
        """How many findings of each severity, in one line."""
        counts = [(severity, len(self.of(severity))) for severity in SEVERITIES]
        told = [f"{n} {s}{'s' if n > 1 and s in ('error', 'note') else ''}" for s, n in counts if n]
        return f"{self.name or 'config'}: {', '.join(told) if told else 'nothing to say'}"

    def batch_line(self) -> str:
        """The resolved triangle in one line, with what DeepSpeed filled in."""
        r = self.resolved
        if not r or r.get("train_micro_batch_size_per_gpu") is None:
            return ""
        filled = r.get("filled", [])

        def show(key: str) -> str:
            value = r.get(key)
            mark = " (filled in)" if key in filled else ""
            return f"{'?' if value is None else value}{mark}"

        text = (
            f"train_batch_size {show('train_batch_size')} = micro-batch "
            f"{show('train_micro_batch_size_per_gpu')} x GAS {show('gradient_accumulation_steps')}"
            f" x replicas {show('replicas')}"
        )
        if r.get("stages") and r["stages"] > 1:
            word = "micro-batch" if r.get("micro_batches") == 1 else "micro-batches"
            text += f"; {r['stages']} stages, {show('micro_batches')} {word}"
            if r.get("bubble") is not None:
                text += f", ideal bubble {r['bubble']:.1%}"
        if r.get("accumulation"):
            text += f"; gradients summed in {r['accumulation']}"
        return text

    def text(self, notes: bool = True) -> str:
        """Everything, for a terminal."""
        lines = [self.headline()]
        batch = self.batch_line()
        if batch:
            lines.append(f"  {batch}")
        for finding in self.findings:
            if finding.severity == "note" and not notes:
                continue
            where = f"line {finding.line}" if finding.line else ""
            place = ", ".join(part for part in (where, finding.key) if part) or "the job"
            lines += ["", f"{finding.severity.upper()}  {place}  [{finding.rule}]"]
            lines += [f"  {finding.message}"]
            if finding.fix:
                lines.append(f"  -> {finding.fix}")
            if finding.sources:
                lines.append(f"     ({finding.sources})")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Report {self.headline()}>"

    def _repr_html_(self) -> str:
        esc = html.escape
        rows = []
        for f in self.findings:
            place = f"<code>{esc(f.key)}</code>" if f.key else "the job"
            place += f"<br>line {f.line}" if f.line else ""
            fix = f"<br>&rarr; {esc(f.fix)}" if f.fix else ""
            known = f"<br><small>{esc(f.sources)}</small>" if f.sources else ""
            rows.append(
                f'<tr><td title="{WORDS[f.severity]}"><b>{f.severity}</b><br>{esc(f.rule)}</td>'
                f"<td>{place}</td>"
                f'<td style="text-align:left">{esc(f.message)}{fix}{known}</td></tr>'
            )
        head = f"<p><b>{esc(self.headline())}</b><br>{esc(self.batch_line())}</p>"
        if not rows:
            return head
        columns = "<thead><tr><th>finding</th><th>where</th><th>what and why</th></tr></thead>"
        return f"{head}<table>{columns}<tbody>{''.join(rows)}</tbody></table>"

    # -- machines ---------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """The JSON output: levels are error, warning and info; see ``Finding`` for the rest."""
        return {
            "file": self.name,
            "deepspeed": self.version,
            "findings": [
                {
                    "rule": f.rule,
                    "severity": f.level,
                    "kind": f.severity,
                    "key": f.key,
                    "line": f.line or None,
                    "message": f.message,
                    "fix": f.fix,
                    "evidence": list(f.evidence),
                    "mechanical": bool(f.repair),
                }
                for f in self.findings
            ],
            "resolved": self.resolved,
        }

    def json(self) -> str:
        """``as_dict`` as text."""
        return json.dumps(self.as_dict(), indent=2)

"""One finding: what is wrong with a key, why, what to do, and how it is known."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

#: Worst first. error: the job will not start, or stops; wrong: it runs and does not do what the
#: config says; risky: it may cost time, memory or correctness, or another tool stumbles over it;
#: note: good to know, nothing to change.
SEVERITIES = ("error", "wrong", "risky", "note")
#: The three levels of the JSON output.
JSON_LEVEL = {"error": "error", "wrong": "warning", "risky": "warning", "note": "info"}

Path = tuple[str, ...]


class Edit(NamedTuple):
    """A change of a config: "set" (path, value), "remove" (path) or "rename" (path, new path).

    A rename leaves a value alone that is already there under the new name.
    """

    kind: str
    path: Path
    value: Any = None


@dataclass(frozen=True)
class Finding:
    """What one rule found.

    rule:     name of the rule, such as "unknown-key"
    severity: one of SEVERITIES
    key:      dotted path of the key, "" for the job as a whole
    message:  cause, as sentences: what DeepSpeed really does with it
    fix:      what to do instead, as a sentence; "" when there is nothing to do
    line:     line of the key in the file, 0 when it has none
    evidence: places in DeepSpeed ("runtime/pipe/engine.py:76") and cases from the field ("A20")
    repair:   edits that mend it, where that is mechanical
    """

    rule: str
    severity: str
    key: str
    message: str
    fix: str = ""
    line: int = 0
    evidence: tuple[str, ...] = ()
    repair: tuple[Edit, ...] = ()

    def __str__(self) -> str:
        where = f"line {self.line}, " if self.line else ""
        key = f"{where}{self.key}" if self.key else f"{where}job"
        return f"{self.severity} [{self.rule}] {key}: {self.message} {self.fix}".rstrip()

    @property
    def sources(self) -> str:
        """Where in DeepSpeed one can read it, as words; "" when nowhere: the other evidence is
        ours."""
        places = [place for place in self.evidence if ".py:" in place]
        return f"DeepSpeed: {', '.join(places)}" if places else ""

    @property
    def level(self) -> str:
        """error, warning or info."""
        return JSON_LEVEL[self.severity]


def apply(config: dict[str, Any], edits: Iterable[Edit]) -> dict[str, Any]:
    """A copy of the config with the edits made; edits whose path is gone are left out."""
    new = copy.deepcopy(config)
    for edit in edits:
        holder = _holder(new, edit.path, create=edit.kind == "set")
        if holder is None:
            continue
        name = edit.path[-1]
        if edit.kind == "set":
            holder[name] = copy.deepcopy(edit.value)
        elif edit.kind == "remove":
            holder.pop(name, None)
            _drop_empty(new, edit.path)
        elif name in holder:
            value = holder.pop(name)
            _drop_empty(new, edit.path)
            target = _holder(new, edit.value, create=True)
            if target is not None:
                target.setdefault(edit.value[-1], value)
    return new


def _drop_empty(config: dict[str, Any], path: Path) -> None:
    """Remove a top-level section that an edit has emptied."""
    if len(path) == 2 and config.get(path[0]) == {}:
        del config[path[0]]


def _holder(config: dict[str, Any], path: Path, create: bool) -> dict[str, Any] | None:
    """The section that holds the last key of a path; None when there is none."""
    here: Any = config
    for name in path[:-1]:
        if not isinstance(here, dict):
            return None
        if create and not isinstance(here.get(name), dict):
            here[name] = {}
        here = here.get(name)
    return here if isinstance(here, dict) else None

"""What ranges are called: from the name of a range to an operation of a pipeline, or to a step.

``frameworks`` knows the names of other programs; here are the learner's own, steps, and PyTorch's
range of an optimizer, ``Optimizer.step#Adam.step``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from pplab.core.ops import KINDS, WHOLE_STEP
from pplab.traces.files import TraceError
from pplab.traces.frameworks import CONVENTIONS
from pplab.traces.imported import Names
from pplab.traces.named import Convention, Named

#: Steps: of the PyTorch profiler, ours, Zero Bubble's (iter_<rank>_<number>), and what people
#: write themselves.
_STEP = re.compile(
    r"(?:ProfilerStep#|NsightStep/|iter_\d+_|"
    r"(?:training[ _-]?)?(?:step|iteration|iter)[ _:#-]?)(\d+)",
    re.IGNORECASE,
)
_OPTIMIZER = re.compile(r"Optimizer\.step#.*")
_PHASE = re.compile(r".*\.(warmup|steady|cooldown)")


@lru_cache(maxsize=1 << 14)
def step_number(name: str) -> int | None:
    """The number of the step that a range stands for, or None."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def is_optimizer(name: str) -> bool:
    """Whether it is the range that PyTorch itself puts around an optimizer's step."""
    return _OPTIMIZER.fullmatch(name) is not None


def is_phase(name: str) -> bool:
    """Whether it is one of Megatron-LM's phases, which hold many operations each."""
    return _PHASE.fullmatch(name) is not None


def conventions(names: Names | None) -> tuple[Convention, ...]:
    """The ways to read a name: the learner's own alone, when given. Raises TraceError."""
    return CONVENTIONS if names is None else (own(names),)


class Vocabulary:
    """What names mean by the conventions that may hold. Raises TraceError as ``conventions``."""

    def __init__(self, names: Names | None) -> None:
        self._parsers = [convention.parse for convention in conventions(names)]
        self._known: dict[str, bool] = {}  # files say the same name a million times

    def means(self, name: str) -> bool:
        """Whether a name means something."""
        if name not in self._known:
            self._known[name] = is_optimizer(name) or any(parse(name) for parse in self._parsers)
        return self._known[name]

    def computes(self, name: str) -> bool:
        """Whether it computes, by one of the conventions, rather than waits or sends."""
        found = any(named.kind in "FBWU" for parse in self._parsers for named in parse(name))
        return found or is_optimizer(name)


def own(names: Names) -> Convention:
    """A convention from regular expressions; raises TraceError when they cannot be used."""
    patterns: list[tuple[re.Pattern[str], str]] = []
    rules = {names: ""} if isinstance(names, str) else dict(names)
    for text, letter in rules.items():
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise TraceError(f"names: {text!r} is no regular expression: {error}") from None
        unknown = set(pattern.groupindex) - {"kind", "micro_batch", "chunk", "stage"}
        if unknown:
            raise TraceError(
                f"names: {text!r} has the group {sorted(unknown)[0]!r}; groups are kind, "
                "micro_batch, chunk and stage"
            )
        if letter not in (*KINDS, "") or not (letter or "kind" in pattern.groupindex):
            raise TraceError(
                f"names: {text!r} needs a kind: one of {', '.join(KINDS)}, as its value or in a "
                "group called kind"
            )
        patterns.append((pattern, letter))

    def parse(name: str) -> tuple[Named, ...]:
        for pattern, letter in patterns:
            match = pattern.fullmatch(name)
            if not match:
                continue
            groups = {key: text for key, text in match.groupdict().items() if text}
            if pattern.groups == 1 and not groups and (match[1] or "").isdigit():
                groups = {"micro_batch": match[1]}  # the only group: what else could it be?
            kind = letter or groups.pop("kind", "")[:1].upper()
            groups.pop("kind", None)
            if kind not in (*KINDS,):
                return ()
            try:
                numbers: dict[str, Any] = {key: int(text) for key, text in groups.items()}
            except ValueError:
                raise TraceError(f"names: {name!r} has no number where one is expected") from None
            if kind in "GU":
                numbers.setdefault("micro_batch", WHOLE_STEP)
            return (Named(kind, **numbers),)
        return ()

    return Convention("the names given", parse, within=True, optimizer=False)


def from_options(given: list[str] | None) -> dict[str, str] | None:
    """``names`` from what a command line gives for ``--name``: REGEX=KIND; raises TraceError."""
    names = {}
    for text in given or ():
        pattern, equals, kind = text.rpartition("=")
        if not equals or not pattern:
            raise TraceError(f"--name {text!r}: write REGEX=KIND, such as 'fwd (\\d+)=F'")
        names[pattern] = kind
    return names or None

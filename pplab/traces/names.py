"""What ranges are called: from the name of a range to an operation of a pipeline.

Where the names come from:

- pplab: ``F3``, ``B3``, ``W3.1``, ``U``, and ``S``, ``R``, ``G``, ``L`` (``pplab.core.ops``).
- torch.distributed.pipelining (schedules.py of torch 2.13): ``PP:1F0`` is stage, action,
  micro-batch; F, B, I (input half of a backward pass), W, SEND_F, RECV_B, ...; its GPipe has
  ``Forward 0`` and ``Backward 0``. Its single-stage 1F1B names nothing.
- DeepSpeed (``instrument_w_nvtx`` in runtime/engine.py): ``DeepSpeedEngine.forward`` and so on,
  without a number. Its pipeline engine calls them for every forward pass, but for the backward
  pass of the last stage only.
- Megatron-LM's timers: ``forward-compute``, ``backward-compute``, ... In its own NVTX ranges
  (``--nvtx-ranges``) only the phases warmup, steady and cooldown have names.
- any optimizer of PyTorch: ``Optimizer.step#Adam.step``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from pplab.core.ops import KINDS, WHOLE_STEP
from pplab.traces.files import TraceError
from pplab.traces.imported import Names


class Named(NamedTuple):
    """What a name says. None: it does not say. `stage` is the slice of the model; `of` is F or B
    when the range receives a message for that operation; `double` marks a range in which two
    operations overlap."""

    kind: str
    micro_batch: int | None = None
    chunk: int | None = None
    stage: int | None = None
    of: str = ""
    double: bool = False


@dataclass(frozen=True)
class Convention:
    """How one program names its ranges. `within`: its F and B hold the wait for their message."""

    title: str
    parse: Callable[[str], tuple[Named, ...]]
    within: bool = False
    optimizer: bool = True  # PyTorch's own range of the optimizer is its U


def _pplab(name: str) -> tuple[Named, ...]:
    match = re.fullmatch(r"([FBWSRLGU])(\d+)?(?:\.(\d+))?", name)
    if not match or (match[1] in "FBW" and not match[2]):
        return ()
    m = int(match[2]) if match[2] else WHOLE_STEP
    return (Named(match[1], m, int(match[3] or 0)),)


_ACTION = re.compile(r"(\d+)(F|I|B|W|SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)(\d*)")
_ACTION_KIND = {"F": "F", "I": "B", "B": "B", "W": "W", "UNSHARD": "G", "RESHARD": "G"}


def _action(text: str) -> Named | None:
    match = _ACTION.fullmatch(text)
    if not match:
        return None
    stage, action = int(match[1]), match[2]
    m = int(match[3]) if match[3] else WHOLE_STEP
    if action.startswith(("SEND", "RECV")):
        return Named(action[0], m, stage=stage, of=action[-1] if action[0] == "R" else "")
    return Named(_ACTION_KIND.get(action, "G"), m, stage=stage)


def _torch_pipelining(name: str) -> tuple[Named, ...]:
    if not name.startswith("PP:"):
        match = re.fullmatch(r"(Forward|Backward) (\d+)", name)
        return (Named(match[1][0], int(match[2])),) if match else ()
    both = re.fullmatch(r"PP:\((.*)\)OVERLAP_F_B", name)
    if not both:
        action = _action(name[3:])
        return (action,) if action else ()
    found = [_action(part) for part in both[1].split(";")]
    return tuple(part._replace(double=True) for part in found if part)


_DEEPSPEED = {
    "forward": "F",
    "backward": "B",
    "allreduce_gradients": "G",
    "step": "U",
    "_take_model_step": "U",
}


def _deepspeed(name: str) -> tuple[Named, ...]:
    match = re.fullmatch(r"(?:DeepSpeed:)?(?:DeepSpeed|Pipeline)Engine\.(\w+)", name)
    kind = _DEEPSPEED.get(match[1]) if match else None
    return (Named(kind, WHOLE_STEP if kind in "GU" else None),) if kind else ()


_TIMERS = {
    "forward-compute": "F",
    "backward-compute": "B",
    "forward-send": "S",
    "backward-send": "S",
    "forward-recv": "R",
    "backward-recv": "R",
    "all-grads-sync": "G",
    "grads-reduce-scatter": "G",
    "params-all-gather": "G",
    "optimizer": "U",
    "batch-generator": "L",
}


def _megatron(name: str) -> tuple[Named, ...]:
    kind = _TIMERS.get(name)
    return (Named(kind, None if kind in "FBSRL" else WHOLE_STEP),) if kind else ()


CONVENTIONS = (
    Convention("pplab", _pplab, optimizer=False),
    Convention("torch.distributed.pipelining", _torch_pipelining, within=True),
    Convention("Megatron-LM timers", _megatron, optimizer=False),
    Convention("DeepSpeed's engine", _deepspeed),
)

#: Steps: of the PyTorch profiler, ours, and what people write themselves.
_STEP = re.compile(
    r"(?:ProfilerStep#|NsightStep/|(?:training[ _-]?)?(?:step|iteration|iter)[ _:#-]?)(\d+)",
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

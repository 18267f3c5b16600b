"""What programs call the operations of a pipeline.

- pplab: ``F3``, ``B3``, ``W3.1``, ``U``, and ``S``, ``R``, ``G``, ``L`` (``pplab.core.ops``).
- torch.distributed.pipelining (schedules.py of torch 2.13): ``PP:1F0`` is stage, action,
  micro-batch; F, B, I (input half of a backward pass), W, SEND_F, RECV_B, ...; ``1F0`` is how it
  writes an action elsewhere. Its GPipe has ``Forward 0`` and ``Backward 0``. Its single-stage 1F1B
  names nothing.
- DeepSpeed (``instrument_w_nvtx`` in runtime/engine.py): ``DeepSpeedEngine.forward`` and so on,
  without a number. Its pipeline engine calls them for every forward pass, but for the backward
  pass of the last stage only.
- Megatron-LM's timers: ``forward-compute``, ``backward-compute``, ..., and its functions, where
  somebody put ranges around them: ``forward_step``, ``send_forward``, ... In its own NVTX ranges
  (``--nvtx-ranges``) only the phases warmup, steady and cooldown have names.
- Zero Bubble's fork of Megatron-LM (sail-sg/zero-bubble-pipeline-parallelism, zerobubble/
  runtime.py; Primus has it too): ``F3.0.1`` is micro-batch, chunk, piece of the sequence; at the
  end ``W_clear.0.0``, in older versions ``W``, does the weight gradients that are left.
- neuronx-distributed (pipeline/model.py): ``mb_3_ForwardStepTask``.
- where none of them has ranges, the functions of their engines: ``functions``.
"""

from __future__ import annotations

import re

from pplab.core.ops import WHOLE_STEP
from pplab.traces.functions import MEGATRON, called
from pplab.traces.named import Convention, Named

#: The convention that takes no ranges but functions.
FUNCTIONS = "functions of its engine"


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
        return Named(action[0], m, stage=stage, of=action[-1])
    return Named(_ACTION_KIND.get(action, "G"), m, stage=stage)


def _torch_pipelining(name: str) -> tuple[Named, ...]:
    if not name.startswith("PP:"):
        match = re.fullmatch(r"(Forward|Backward) (\d+)", name)
        action = None if match else _action(name)
        return (Named(match[1][0], int(match[2])),) if match else (action,) if action else ()
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
    "forward-compute": Named("F"),
    "backward-compute": Named("B"),
    "forward-send": Named("S", of="F"),
    "backward-send": Named("S", of="B"),
    "forward-recv": Named("R", of="F"),
    "backward-recv": Named("R", of="B"),
    "all-grads-sync": Named("G", WHOLE_STEP),
    "grads-reduce-scatter": Named("G", WHOLE_STEP),
    "params-all-gather": Named("G", WHOLE_STEP),
    "optimizer": Named("U", WHOLE_STEP),
    "batch-generator": Named("L"),
    **MEGATRON,
}


def _megatron(name: str) -> tuple[Named, ...]:
    return (_TIMERS[name],) if name in _TIMERS else ()


def _zero_bubble(name: str) -> tuple[Named, ...]:
    match = re.fullmatch(r"([FBW])(\d+)(?:\.(\d+)(?:\.(\d+))?)?", name)
    if match:
        m, chunk, part = int(match[2]), int(match[3] or 0), int(match[4] or 0)
        return (Named(match[1], m, chunk, part=part),)
    rest = re.fullmatch(r"W(?:_clear\.(\d+)\.\d+)?", name)
    return (Named("W", WHOLE_STEP, int(rest[1] or 0)),) if rest else ()


def _neuronx(name: str) -> tuple[Named, ...]:
    match = re.fullmatch(r"mb_(\d+)_([FB])(?:or|ack)ward(Preprocess|Step|Postprocess)Task", name)
    if not match:
        return ()
    kind, way, m = match[3], match[2], int(match[1])
    return (Named(way, m) if kind == "Step" else Named("RS"[kind == "Postprocess"], m, of=way),)


CONVENTIONS = (
    Convention("pplab", _pplab, optimizer=False),
    Convention("Zero Bubble's Megatron-LM", _zero_bubble),
    Convention("torch.distributed.pipelining", _torch_pipelining, within=True),
    Convention("Megatron-LM timers", _megatron),
    Convention("DeepSpeed's engine", _deepspeed),
    Convention("neuronx-distributed", _neuronx),
    Convention(FUNCTIONS, called),
)
#: What a refusal says of them.
UNDERSTOOD = (
    "Understood without help: F3, B3, W3 and F3.1 (pplab, Zero Bubble), PP:1F3 and Forward 3 "
    "(torch.distributed.pipelining, whose Schedule1F1B names nothing), forward-compute and "
    "forward_step (Megatron-LM), DeepSpeedEngine.forward, mb_3_ForwardStepTask (neuronx). Without "
    "any names, the engines of DeepSpeed, torch and Megatron-LM are understood where the profiler "
    "recorded stacks: torch.profiler.profile(with_stack=True)"
)

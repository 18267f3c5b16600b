"""Passes of pipelines that name none: the Python functions that a profiler with stacks recorded.

``torch.profiler.profile(with_stack=True)`` notes every call of a Python function, as
``deepspeed/runtime/pipe/engine.py(699): _exec_forward_pass``. So there the passes of every rank can
be told, although DeepSpeed's own ranges lack most backward passes, and Schedule1F1B of
torch.distributed.pipelining has none at all. Functions as of DeepSpeed 0.19, torch 2.13 and
Megatron-LM core 0.15; passes have no numbers and are counted. Recording stacks slows Python down.
"""

from __future__ import annotations

import re

from pplab.core.ops import WHOLE_STEP
from pplab.traces.named import Named

_DEEPSPEED = {
    "_exec_forward_pass": Named("F"),
    "_exec_backward_pass": Named("B"),
    "_exec_send_activations": Named("S", of="F"),
    "_exec_send_grads": Named("S", of="B"),
    "_exec_recv_activations": Named("R", of="F"),
    "_exec_recv_grads": Named("R", of="B"),
    "_exec_load_micro_batch": Named("L"),
    "_exec_reduce_tied_grads": Named("G", WHOLE_STEP),
    "_exec_reduce_grads": Named("G", WHOLE_STEP),
    "_exec_optimizer_step": Named("U", WHOLE_STEP),
}
_TORCH = {
    "forward_one_chunk": Named("F"),
    "backward_one_chunk": Named("B"),
    "backward_weight_one_chunk": Named("W"),
}
#: Of the exchanges of 1F1B most of the time is the wait for what is received.
MEGATRON = {
    "forward_step": Named("F"),
    "backward_step": Named("B"),
    "send_forward": Named("S", of="F"),
    "send_backward": Named("S", of="B"),
    "recv_forward": Named("R", of="F"),
    "recv_backward": Named("R", of="B"),
    "send_forward_recv_backward": Named("R", of="B"),
    "send_backward_recv_forward": Named("R", of="F"),
    "send_forward_recv_forward": Named("R", of="F"),
    "send_backward_recv_backward": Named("R", of="B"),
    "finalize_model_grads": Named("G", WHOLE_STEP),
}
_FILES = {
    "deepspeed/runtime/pipe/engine.py": _DEEPSPEED,
    "torch/distributed/pipelining/stage.py": _TORCH,
    "megatron/schedules.py": MEGATRON,
    "megatron/p2p_communication.py": MEGATRON,
    "megatron/core/pipeline_parallel/schedules.py": MEGATRON,
    "megatron/core/pipeline_parallel/p2p_communication.py": MEGATRON,
    "megatron/core/distributed/finalize_model_grads.py": MEGATRON,
}
_NAME = re.compile(r"(?:.*[/\\])?((?:deepspeed|torch|megatron)[/\\].*\.py)\(\d+\): (\w+)")


def called(name: str) -> tuple[Named, ...]:
    """What a Python function of a pipeline does."""
    match = _NAME.fullmatch(name)
    known = _FILES.get(match[1].replace("\\", "/")) if match else None
    named = known.get(match[2]) if match and known else None
    return (named,) if named else ()

"""DeepSpeed's own engine and schedule, recorded but not touched.

DeepSpeed finds the method for an instruction in a dictionary on its class; an instance attribute
of the same name, with each function wrapped in two clock readings, records everything and changes
nothing (facts.md, part a).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from deepspeed.runtime.pipe import schedule as instructions
from deepspeed.runtime.pipe.dualpipev import DualPipeVEngine
from deepspeed.runtime.pipe.engine import PipelineEngine

from pplab.core.ops import WHOLE_STEP, Op
from pplab.runtime.activations import SavedBytes
from pplab.runtime.ranges import Unnamed
from pplab.runtime.recorder import Recorder
from pplab.runtime.status import Slot

KIND: dict[type, str] = {
    instructions.LoadMicroBatch: "L",
    instructions.ForwardPass: "F",
    instructions.BackwardPass: "B",
    instructions.SendActivation: "S",
    instructions.SendGrad: "S",
    instructions.RecvActivation: "R",
    instructions.RecvGrad: "R",
    instructions.ReduceTiedGrads: "G",
    instructions.ReduceGrads: "G",
    instructions.OptimizerStep: "U",
    # DualPipeV's sends and receives only queue; this one starts them all and waits for them
    instructions.CommitP2P: "R",
}


def watch(
    engine: PipelineEngine, recorder: Recorder, status: Slot, named: Unnamed | None = None
) -> Callable[[], None]:
    """Record every instruction of `engine`; call the function returned before each step.

    DeepSpeed's instructions carry a buffer number, not a micro-batch. DualPipeV's buffers are
    numbered phase * micro-batches + micro-batch. 1F1B's go round and round, but each kind of
    instruction comes in the order of the micro-batches, so counting gives the number.
    """
    count: Counter[type] = Counter()
    naming = named or Unnamed()
    saved, engine.measured = SavedBytes(engine.module), {}
    first_step = engine.global_steps  # of this run; not 0 after a checkpoint
    micro_batches = engine.micro_batches

    def wrap(command: type, method: Callable[..., Any]) -> Callable[..., Any]:
        kind, name = KIND[command], command.__name__

        def recorded(self: PipelineEngine, *args: Any, **kwargs: Any) -> Any:
            phase = kwargs.get("phase")
            if "buffer_id" not in kwargs:
                m = WHOLE_STEP
            elif isinstance(engine, DualPipeVEngine):
                m = kwargs["buffer_id"] % micro_batches
            else:
                m = count[command]
                count[command] += 1
            op = Op(kind, m, phase or 0)
            status.say(f"runs DeepSpeed's {name}, micro-batch {m}" if m >= 0 else f"runs {name}")
            counted = kind == "F" and engine.global_steps == first_step
            start = recorder.now()
            with naming(*op), saved if counted else nullcontext():
                result = method(self, *args, **kwargs)
            recorder.add(kind, m, op.chunk, start, recorder.now())
            if counted:
                engine.measured["activation_peak"] = saved.saved.peak
            return result

        return recorded

    methods = type(engine)._INSTRUCTION_MAP
    engine._INSTRUCTION_MAP = {command: wrap(command, fn) for command, fn in methods.items()}
    return count.clear

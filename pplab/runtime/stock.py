"""DeepSpeed's own engine and schedule, recorded but not touched.

DeepSpeed finds the method for an instruction in a dictionary on its class; an instance attribute
of the same name, with each function wrapped in two clock readings, records everything and changes
nothing (facts.md, part a).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from deepspeed.runtime.pipe import schedule as instructions
from deepspeed.runtime.pipe.engine import PipelineEngine

from pplab.core.ops import WHOLE_STEP
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
}


def watch(engine: PipelineEngine, recorder: Recorder, status: Slot) -> Callable[[], None]:
    """Record every instruction of `engine`; call the function returned before each step.

    DeepSpeed's instructions carry a buffer number, not a micro-batch. Its schedules issue each
    kind of instruction in the order of the micro-batches, so counting gives the number.
    """
    count: Counter[type] = Counter()

    def wrap(command: type, method: Callable[..., Any]) -> Callable[..., Any]:
        kind, name = KIND[command], command.__name__

        def recorded(self: PipelineEngine, *args: Any, **kwargs: Any) -> Any:
            m = WHOLE_STEP if kind in "GU" else count[command]
            count[command] += 1
            status.say(f"runs DeepSpeed's {name}, micro-batch {m}" if m >= 0 else f"runs {name}")
            start = recorder.now()
            with torch.profiler.record_function(f"{kind}{m}" if m >= 0 else kind):
                result = method(self, *args, **kwargs)
            recorder.add(kind, m, 0, start, recorder.now())
            return result

        return recorded

    methods = type(engine)._INSTRUCTION_MAP
    engine._INSTRUCTION_MAP = {command: wrap(command, fn) for command, fn in methods.items()}
    return count.clear

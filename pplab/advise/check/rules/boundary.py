"""What crosses from stage to stage. Needs ``boundary``, one entry a tensor of the tuple:

    {"name": "mask", "dtype": "bool", "grad": False, "shape": [4, 128]}

``grad`` says whether it carries a gradient; ``shapes`` (a list) that shapes differ between the
micro-batches of a step; an entry None stands for None in the tuple.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pplab.advise.check.finding import Finding
from pplab.advise.check.job import Job


def _float(tensor: Mapping[str, Any]) -> bool:
    return str(tensor.get("dtype", "")).removeprefix("torch.").startswith(("float", "bfloat", "fp"))


def _called(tensor: Mapping[str, Any], place: int) -> str:
    return str(tensor.get("name", f"tensor {place}"))


def tensors(job: Job) -> Iterator[Finding]:
    """Each tensor by itself."""
    interval = job.get("pipeline.activation_checkpoint_interval", 0)
    reentrant = job.get("pipeline.use_reentrant") is not False
    for place, tensor in enumerate(job.boundary or ()):
        if not isinstance(tensor, Mapping) or not tensor.get("dtype"):
            yield job.finding(
                "boundary-not-tensor", "error", (),
                f"Item {place} between the stages is no tensor: the engine sends tensors only "
                "(None and plain numbers end in an assertion or AttributeError).",
                "Send tensors, and rebuild the rest in the stage that needs it.",
                evidence=("runtime/pipe/engine.py:964", "A37", "A65"),
            )  # fmt: skip
            continue
        name, grad = _called(tensor, place), tensor.get("grad", True)
        if _float(tensor) and grad is False:
            yield job.finding(
                "boundary-float-without-grad",
                "error",
                (),
                f"{name} is a floating-point tensor without gradient: the next stage expects one "
                "for each, so the sender waits for a gradient that never comes, or stops at an "
                "assertion.",
                "Recompute it in each stage (rotary tables), or send it as integers.",
                evidence=("runtime/pipe/engine.py:1107", "A38", "A59"),
            )
        if not _float(tensor) and interval and reentrant:
            yield job.finding(
                "boundary-checkpointed", "error", "pipeline.activation_checkpoint_interval",
                f"{name} ({tensor['dtype']}) carries no gradient, and reentrant checkpointing "
                'stops with "element ... of tensors does not require grad".',
                'Set "use_reentrant": false, or the interval to 0.', evidence=("A34",),
            )  # fmt: skip
        if "bool" in str(tensor["dtype"]):
            yield job.finding(
                "boundary-bool", "risky", (),
                f"{name} is a bool tensor: some versions and tensor parallelism cannot send it.",
                "Send it as integers, or build it in each stage.", evidence=("A60",),
            )  # fmt: skip
        shapes = tensor.get("shapes")
        if shapes and len({tuple(shape) for shape in shapes}) > 1:
            yield job.finding(
                "boundary-shapes",
                "error",
                (),
                f"The shape of {name} differs between micro-batches: shapes are sent with the "
                "first one only, and the next does not fit.",
                "Pad to one length, or PipelineModule(dynamic_shape=True).",
                evidence=("runtime/pipe/engine.py:933", "A56", "A57"),
            )


def order(job: Job) -> Iterator[Finding]:
    """Floating-point tensors come first in a tuple."""
    seen = [t for t in job.boundary or () if isinstance(t, Mapping) and t.get("dtype")]
    kinds = [_float(t) for t in seen]
    if (job.pipe or 3) >= 3 and True in kinds and not kinds[0]:
        yield job.finding(
            "boundary-order",
            "wrong",
            (),
            f"{_called(seen[0], 0)} is no floating-point tensor and comes before one that is: "
            "middle stages reuse receive buffers by size and not by type, and gradients land in an "
            "integer buffer. Training goes on with nonsense.",
            "Put floating-point tensors first.",
            evidence=("runtime/pipe/engine.py:1284", "A63", "facts g8"),
        )


RULES = (tensors, order)

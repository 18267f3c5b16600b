"""What to run: descriptions of models, without torch.

The notebook's kernel only describes a model; the ranks build it (`nets`). Three families: a small
byte-level GPT that learns English for real; *paced* layers, which take a set time by sleeping, so
that eight ranks pipeline truthfully on a two-core laptop; and the learner's own layers, which reach
the ranks by value.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Model:
    """A model description: its family, its numbers, and (family "own") objects to send along."""

    family: str  # "gpt", "paced" or "own"
    settings: dict[str, Any] = field(default_factory=dict)
    payload: Any = field(default=None, repr=False, compare=False)

    @property
    def paced(self) -> bool:
        """True when layer times are set rather than computed."""
        return self.family == "paced"

    def __str__(self) -> str:
        inside = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        return f"{self.family}({inside})"


def gpt(
    layers: int = 8,
    width: int = 128,
    heads: int = 4,
    context: int = 64,
    *,
    head: float = 0,
    tied: bool = False,
    positions: bool = False,
    dropout: float = 0.0,
) -> Model:
    """A byte-level GPT as a list of layers: embedding, `layers` blocks, head (layers + 2 in all).

    width: size of the residual stream; heads: attention heads (must divide width); context: bytes
    per sample; head: extra work of the head, in blocks (the "lopsided model": a large vocabulary
    does this to real models); tied: embedding and head share their weights (``TiedLayerSpec``);
    positions: hand the position ids from layer to layer, so that tuples travel between the stages.
    Trained on English text that ships with Python (``pydoc_data.topics``).
    """
    if layers < 1 or width < 1 or context < 1:
        raise ValueError("a GPT needs at least one layer, and a positive width and context")
    if width % heads:
        raise ValueError(f"heads must divide width: {width} is not a multiple of {heads}")
    settings: dict[str, Any] = {
        "layers": layers,
        "width": width,
        "heads": heads,
        "context": context,
    }
    for name, value in (
        ("head", head),
        ("tied", tied),
        ("positions", positions),
        ("dropout", dropout),
    ):
        if value:
            settings[name] = value
    return Model("gpt", settings)


def paced(
    forward: float | Sequence[float] = 0.010,
    backward: float | Sequence[float] = 0.020,
    *,
    weight: float | Sequence[float] | None = None,
    layers: int | None = None,
    width: int = 64,
) -> Model:
    """Layers that take a set time: seconds of F and of B, one number or one per layer.

    Each layer is a real linear layer with real gradients that then sleeps until its time is over,
    so losses and messages are real and only the clock is set. weight: the part of `backward` that
    W takes when a schedule splits it off (default: half). `layers` defaults to one per stage, or
    per slice where ranks hold several (or to the length of a list given).
    """
    given = {"forward": forward, "backward": backward}
    if weight is not None:
        given["weight"] = weight
    lengths = {len(value) for value in given.values() if not isinstance(value, int | float)}
    if len(lengths) > 1 or (layers and lengths and lengths != {layers}):
        raise ValueError(f"{', '.join(given)} and layers disagree about the number of layers")
    count = lengths.pop() if lengths else layers
    spread = {
        name: [value] * (count or 1) if isinstance(value, int | float) else list(value)
        for name, value in given.items()
    }
    if any(seconds < 0 for times in spread.values() for seconds in times):
        raise ValueError("times are seconds and cannot be negative")
    if weight is not None and any(
        w > b for w, b in zip(spread["weight"], spread["backward"], strict=True)
    ):
        raise ValueError("weight is the part of backward that W takes: it cannot exceed it")
    as_json = {
        name: value if isinstance(value, int | float) else list(value)
        for name, value in given.items()
    }
    return Model("paced", {**as_json, "layers": count, "width": width})


def own(
    layers: Sequence[Any] | Callable[[], Sequence[Any]],
    loss: Callable[..., Any] | None = None,
    data: Any = None,
) -> Model:
    """The learner's own layers, loss and data, defined in a cell.

    layers: a list of ``nn.Module`` / ``LayerSpec`` / functions, or (so that the notebook need not
    import torch) a function that imports what it needs and returns such a list. loss: a function
    ``(outputs, labels) -> scalar``; default mean squared error. data: a function
    ``index -> (inputs, labels)`` giving the index-th micro-batch, or a sequence of
    ``(input, label)`` samples.
    """
    if data is None:
        raise ValueError("own layers need data: a function index -> (inputs, labels), or samples")
    return Model("own", {"source": _source(layers)}, {"layers": layers, "loss": loss, "data": data})


def as_model(model: Any) -> Model:
    """A Model as it is; anything else is refused with a hint."""
    if isinstance(model, Model):
        return model
    raise TypeError(
        f"model is a {type(model).__name__}; use pplab.models.gpt(...), pplab.models.paced(...) "
        "or pplab.models.own(layers, loss, data)"
    )


def _source(layers: Any) -> str:
    """The text of the learner's code for the record, where Python can find it."""
    try:
        return inspect.getsource(layers)
    except (TypeError, OSError):
        return ""

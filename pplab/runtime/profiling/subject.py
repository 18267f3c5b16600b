"""What may be profiled, as the notebook gives it: described and packed without importing torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pplab.runtime import by_value
from pplab.runtime.models import Model

#: Family of everything that comes with a sample instead of a loss and data.
GIVEN = "given"


def describe(model: Any, sample: Any) -> Model:
    """A Model for the job, with what travels to the rank as its payload.

    Raises ValueError when the sample is missing or not wanted, TypeError when `model` cannot be a
    list of layers.
    """
    if isinstance(model, Model):
        if sample is not None:
            raise ValueError(f"{model.family} brings its own micro-batches: leave the sample out")
        if model.family == "paced" and not model.settings["layers"]:
            raise ValueError("say how many paced layers there are: models.paced(..., layers=8)")
        return model
    if isinstance(model, str | Path):
        model = _config_file(Path(model))
    if isinstance(model, dict):
        if "model_type" not in model:
            raise TypeError('a dictionary must be a Hugging Face config, with its "model_type"')
        name = f"Hugging Face {model['model_type']}"
    elif is_config(model):
        name = f"Hugging Face {getattr(model, 'model_type', type(model).__name__)}"
    elif isinstance(model, list | tuple):
        if not model:
            raise ValueError("the list of layers is empty")
        name = f"{len(model)} layers"
    elif callable(model):
        name = getattr(model, "__name__", type(model).__name__)
    else:
        raise TypeError(
            f"{type(model).__name__} cannot be profiled; give pplab.models.gpt(...), .paced(...) "
            "or .own(...), a list of layers, an nn.Sequential, a function that returns one, or a "
            "Hugging Face config"
        )
    if sample is None and isinstance(model, list | tuple):
        raise ValueError("a list of layers needs a sample of its input: profile(layers, sample)")
    return Model(GIVEN, {"name": name}, {"layers": model, "sample": sample})


def is_config(model: Any) -> bool:
    """True for a configuration object of Hugging Face transformers."""
    return any(
        kind.__module__.startswith("transformers.") and kind.__name__.endswith("Config")
        for kind in type(model).__mro__
    )


def pack(model: Model) -> list[bytes]:
    """The payload as bytes for the rank; TypeError says what cannot be sent."""
    if model.payload is None:
        return []
    try:
        return [by_value.dumps(model.payload)]
    except Exception as error:  # cloudpickle raises whatever the object's own methods raise
        raise TypeError(
            f"the model cannot be sent to another process ({type(error).__name__}: {error}); give "
            "a function that makes the layers there"
        ) from error


def _config_file(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} is not the config.json of a Hugging Face model: {error}"
        ) from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not the config.json of a Hugging Face model")
    return found

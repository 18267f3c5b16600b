"""What each slice of a model (stage, or chunk of a stage) asks of its rank's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pplab.core.memory.transformer import Transformer
from pplab.core.partition.deepspeed import partition_uniform
from pplab.core.profile import Profile


@dataclass(frozen=True)
class SliceLoad:
    """One slice on one rank; bytes are for one micro-batch.

    parameters: how many this rank computes with (its tensor-parallel part), and trainable: how many
        of them learn
    activation: bytes kept from F to B
    output:     bytes handed to the next slice; as many come back as gradient
    kept_output: bytes of it that stay on the rank until B (DeepSpeed holds every stage's output;
        with tensor parallelism only the rank's part of it)
    workspace:  bytes on top while one layer runs backward
    largest_layer: parameters of its largest layer on this rank, which ZeRO-3 puts together
    """

    parameters: float
    activation: float
    output: float = 0.0
    kept_output: float = 0.0
    workspace: float = 0.0
    trainable: float | None = None
    largest_layer: float = 0.0


def transformer_slices(
    model: Transformer,
    slices: int,
    micro_batch: int,
    *,
    tensor: int = 1,
    sequence_parallel: bool = False,
    recompute: str = "none",
    bounds: Sequence[int] | None = None,
) -> list[SliceLoad]:
    """The slices of a transformer whose layers are cut at `bounds` (default: DeepSpeed's uniform).

    The embedding belongs to the first slice and is never computed again, the final norm and the
    output projection belong to the last; a tied projection is a second copy of the embedding there
    unless there is one slice only. Raises ValueError when the bounds do not cover the layers.
    """
    cuts = tuple(bounds) if bounds is not None else partition_uniform(model.layers, slices)
    if len(cuts) != slices + 1 or cuts[0] != 0 or cuts[-1] != model.layers:
        raise ValueError(
            f"{slices} slices of {model.layers} layers need bounds 0 .. {model.layers}"
        )
    if any(a > b for a, b in pairwise(cuts)):
        raise ValueError(f"bounds never go down: {cuts}")
    each = model.layer_activation(
        micro_batch, tensor=tensor, sequence_parallel=sequence_parallel, recompute=recompute
    )
    boundary = model.boundary(micro_batch)
    found = []
    for number in range(slices):
        first, last = number == 0, number == slices - 1
        layers = cuts[number + 1] - cuts[number]
        parameters = layers * model.layer_share(tensor)
        activation = layers * each
        if first:
            parameters += model.embedding_share(tensor)
            activation += model.embedding_activation(micro_batch)
        if last:
            parameters += 2 * model.hidden
            activation += model.head_activation(micro_batch, tensor=tensor)
            if not model.tied:
                parameters += model.vocabulary * model.hidden / tensor
            elif slices > 1:  # DeepSpeed's TiedLayerSpec builds the whole embedding again
                parameters += model.embedding_share(tensor)
        workspace = model.workspace(micro_batch, tensor=tensor, recompute=recompute)
        found.append(
            SliceLoad(
                parameters,
                activation,
                output=0.0 if last else boundary,
                kept_output=0.0 if last else boundary / tensor,
                workspace=workspace if layers else 0.0,
                largest_layer=max(
                    model.layer_share(tensor) if layers else 0.0,
                    model.embedding_share(tensor) if first or last else 0.0,
                ),
            )
        )
    return found


def profile_slices(profile: Profile, bounds: Sequence[int]) -> list[SliceLoad]:
    """The slices of a measured model, from its layers' parameters, saved tensors and outputs.

    Parameters are counted from their bytes at 4 bytes each where a layer's count of trainable ones
    is smaller, so that frozen weights are not forgotten. A layer's output is counted as kept by the
    slice that makes it.
    """
    found = []
    layers, cuts = profile.layers, tuple(bounds)
    if cuts[0] != 0 or cuts[-1] != len(layers):
        raise ValueError(f"bounds go from 0 to {len(layers)}, the number of layers")
    for low, high in pairwise(cuts):
        mine = layers[low:high]
        last = high == len(layers)
        trainable = sum(layer.parameters for layer in mine)
        held = max(trainable, sum(layer.parameter_bytes for layer in mine) / 4)
        output = float(mine[-1].output_bytes) if mine and not last else 0.0
        found.append(
            SliceLoad(
                held,
                float(sum(layer.activation_bytes for layer in mine)),
                output=output,
                kept_output=output,
                trainable=trainable,
                largest_layer=max((layer.parameters for layer in mine), default=0),
            )
        )
    return found

"""Builds the layers that a profile measures, in the rank, the way a run would."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from deepspeed.pipe import LayerSpec, TiedLayerSpec
from torch import nn

from pplab.runtime.job import Job
from pplab.runtime.nets.build import base_seed, build, set_seed
from pplab.runtime.plain import to_device
from pplab.runtime.profiling import huggingface
from pplab.runtime.profiling.chain import Chain, Layer, as_inputs
from pplab.runtime.profiling.subject import GIVEN, is_config


def build_chain(job: Job, task: dict[str, Any], device: str) -> Chain:
    """Build a job's layers from the seeds a run would use, and move them to the device."""
    if job.model.family == GIVEN:
        chain = _given(job, task)
    else:
        network = build(job)
        inputs, labels = network.batch(0)
        chain = Chain(_layers(network.layers, job), inputs, network.loss, labels)
    everything = chain.modules()
    everything.to(device).train()
    if job.dtype == "bf16":
        everything.to(torch.bfloat16)
    _mark_shared(chain.layers)
    chain.inputs = to_device(chain.inputs, device)
    chain.labels = to_device(chain.labels, device) if chain.labels is not None else None
    return chain


def _given(job: Job, task: dict[str, Any]) -> Chain:
    """A list of layers, an nn.Sequential, a function that returns one, or a config."""
    set_seed(base_seed(job) - 1)
    what, sample = job.model.payload["layers"], job.model.payload["sample"]
    if callable(what) and not isinstance(what, nn.Module):
        what = what()
    if isinstance(what, dict) or is_config(what):
        return huggingface.chain(what, sample, job, task["context"])
    if isinstance(what, nn.Module) and not isinstance(what, nn.Sequential | nn.ModuleList):
        raise TypeError(
            f"{type(what).__name__} is one module, and a pipeline is cut between layers: give its "
            "layers as a list or an nn.Sequential"
        )
    if isinstance(what, str | bytes) or not isinstance(what, Iterable):
        raise TypeError(f"{type(what).__name__} is not a list of layers")
    layers = list(what)
    if not layers:
        raise ValueError("the list of layers is empty")
    if sample is None:
        raise ValueError("a list of layers needs a sample of its input: profile(layers, sample)")
    return Chain(_layers(layers, job), as_inputs(sample, job.dtype))


def _layers(specs: list[Any], job: Job) -> list[Layer]:
    """Build the layers as DeepSpeed does: layer i from seed base + i, tied ones once."""
    tied: dict[str, nn.Module] = {}
    layers = []
    for i, spec in enumerate(specs):
        set_seed(base_seed(job) + i)
        if isinstance(spec, TiedLayerSpec):
            if spec.key not in tied:
                tied[spec.key] = spec.build()
            module = tied[spec.key]
            call = partial(spec.forward_fn, module) if spec.forward_fn else module
            layers.append(Layer(i, spec.typename.__name__, call, module, spec.key))
        elif isinstance(spec, LayerSpec):
            built = spec.build()
            layers.append(Layer(i, spec.typename.__name__, built, built))
        elif isinstance(spec, nn.Module):
            layers.append(Layer(i, type(spec).__name__, spec, spec))
        elif isinstance(spec, type):
            raise TypeError(
                f"layer {i} is the class {spec.__name__}, not a layer: write {spec.__name__}(...)"
            )
        elif callable(spec):
            layers.append(Layer(i, getattr(spec, "__name__", type(spec).__name__), spec, None))
        else:
            raise TypeError(
                f"layer {i} is {type(spec).__name__}, not an nn.Module, LayerSpec or function"
            )
    return layers


def _mark_shared(layers: list[Layer]) -> None:
    """Layers that have a parameter in common are tied, whoever made them share it."""
    first: dict[int, Layer] = {}
    for layer in layers:
        for parameter in layer.parameters():
            owner = first.setdefault(id(parameter), layer)
            if owner is not layer:
                owner.tied = owner.tied or f"weights of layer {owner.number}"
                layer.tied = layer.tied or owner.tied

"""What must fit: model states under ZeRO, activations of the micro-batches in flight, buffers.

    gpt3 = Transformer(layers=96, hidden=12288, heads=96, sequence=2048, vocabulary=51200)
    transformer_memory(gpt3, stages=8, micro_batches=64, micro_batch=1, tensor=8,
                       zero=1, replicas=8, recompute="selective", sequence_parallel=True)

``states`` holds the ZeRO arithmetic, ``transformer`` the activation formulas, ``slices`` cuts a
model (or a measured profile), ``pipeline`` adds it up per rank for any schedule, and ``options``
lists what fits. All sizes are bytes; decimal units (1 GB = 1e9 bytes) wherever one is printed.
"""

from pplab.core.memory.options import Option, options
from pplab.core.memory.pipeline import (
    PipelineMemory,
    RankMemory,
    pipeline_memory,
    size,
    transformer_memory,
)
from pplab.core.memory.slices import SliceLoad, profile_slices, transformer_slices
from pplab.core.memory.states import PRECISIONS, Precision, States, model_states
from pplab.core.memory.transformer import Transformer

__all__ = [
    "PRECISIONS",
    "Option",
    "PipelineMemory",
    "Precision",
    "RankMemory",
    "SliceLoad",
    "States",
    "Transformer",
    "model_states",
    "options",
    "pipeline_memory",
    "profile_slices",
    "size",
    "transformer_memory",
    "transformer_slices",
]

"""Models as the ranks build them: lists of DeepSpeed LayerSpecs, a loss, and micro-batches."""

from pplab.runtime.nets.build import Network, build

__all__ = ["Network", "build"]

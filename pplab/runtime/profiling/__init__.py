"""What each layer of a model costs, measured in a process of its own.

One file an idea: ``ask`` (the notebook's side), ``subject`` (what may be profiled); and in the rank
``chain`` (layers in a row), ``build`` and ``huggingface`` (how they are made), ``passes`` (one
micro-batch through them, in pieces or at once), ``meters`` (who holds the watch), ``measure``
(repeats and medians).
"""

from pplab.runtime.profiling.ask import profile

__all__ = ["profile"]

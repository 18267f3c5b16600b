"""Real runs with more and more micro-batches, one after the other: throughput, idle time, memory.

    pplab.sweep(schedules.one_f_one_b, models.paced(), micro_batches=(1, 2, 4, 8, 16, 32))

``runner`` runs them, ``growing`` holds one schedule's sweep meanwhile, ``points`` and ``result``
hold what came out, and ``predict`` says beforehand what should.
"""

from pplab.runtime.sweep.points import Point
from pplab.runtime.sweep.result import Sweep, Sweeps
from pplab.runtime.sweep.runner import sweep

__all__ = ["Point", "Sweep", "Sweeps", "sweep"]

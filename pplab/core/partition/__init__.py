"""Cutting a model into stages: DeepSpeed's ways, torchgpipe's, and the best one.

One file an idea: ``cuts`` (bounds), ``minimax`` (the least largest stage, exactly), ``steps`` (how
to get there from a naive snippet), ``deepspeed`` and ``block`` (what others do), ``cluster``
(devices and links), ``problem`` (all costs of all cuts), ``inflight`` (memory), ``stepper`` (step
times of many cuts at once), ``dynamic`` (the best cut when slices differ), ``search`` and
``certify`` (the least step time, and how sure that is), ``order`` (devices in any order), ``fit``
(why nothing fits), ``plan`` (the answer), ``methods`` (the question), ``pipedream`` (a reader),
``examples`` (small cases with known answers).
"""

from pplab.core.partition.cluster import Device, Links, devices
from pplab.core.partition.cuts import PartitionError
from pplab.core.partition.fit import DoesNotFit
from pplab.core.partition.methods import METHODS, compare, partition, problem_of, solve
from pplab.core.partition.minimax import least_maximum, minimax
from pplab.core.partition.plan import Partition, Partitions
from pplab.core.partition.problem import Problem

__all__ = [
    "METHODS",
    "Device",
    "DoesNotFit",
    "Links",
    "Partition",
    "PartitionError",
    "Partitions",
    "Problem",
    "compare",
    "devices",
    "least_maximum",
    "minimax",
    "partition",
    "problem_of",
    "solve",
]

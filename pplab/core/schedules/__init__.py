"""Published schedules, one file each. Add one by copying the nearest."""

from pplab.core.schedules.gpipe import gpipe
from pplab.core.schedules.one_f_one_b import one_f_one_b

__all__ = ["gpipe", "one_f_one_b"]

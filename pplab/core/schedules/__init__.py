"""Published schedules, one file each. Add one by copying the nearest."""

from pplab.core.schedule import ScheduleMaker
from pplab.core.schedules.dualpipev import dualpipev
from pplab.core.schedules.eager_1f1b import eager_1f1b
from pplab.core.schedules.gpipe import gpipe
from pplab.core.schedules.interleaved import interleaved
from pplab.core.schedules.one_f_one_b import one_f_one_b
from pplab.core.schedules.pipedream import pipedream
from pplab.core.schedules.pipedream_2bw import pipedream_2bw
from pplab.core.schedules.zb_h1 import zb_h1
from pplab.core.schedules.zb_h2 import zb_h2

#: Every published schedule by its short name.
SCHEDULES: dict[str, ScheduleMaker] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "eager-1f1b": eager_1f1b,
    "interleaved": interleaved,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
    "dualpipev": dualpipev,
    "pipedream": pipedream,
    "pipedream-2bw": pipedream_2bw,
}

__all__ = [
    "SCHEDULES",
    "dualpipev",
    "eager_1f1b",
    "gpipe",
    "interleaved",
    "one_f_one_b",
    "pipedream",
    "pipedream_2bw",
    "zb_h1",
    "zb_h2",
]

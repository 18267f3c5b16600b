"""Timelines from and to the files of other tools."""

from pplab.traces.chrome import read_chrome, write_chrome
from pplab.traces.files import TraceError
from pplab.traces.imported import Imported, TraceWarning
from pplab.traces.logs import LogRecord, read_log
from pplab.traces.reading import load, read, recognise, write

__all__ = [
    "Imported",
    "LogRecord",
    "TraceError",
    "TraceWarning",
    "load",
    "read",
    "read_chrome",
    "read_log",
    "recognise",
    "write",
    "write_chrome",
]

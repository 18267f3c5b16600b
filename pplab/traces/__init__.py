"""Timelines from and to the files of other tools."""

from pplab.traces.chrome import read_chrome, write_chrome
from pplab.traces.files import TraceError

__all__ = ["TraceError", "read_chrome", "write_chrome"]

"""SQLite files as `nsys export --type=sqlite` lays them out, for tests.

Nsight Systems is not installed where the tests run. Tables and columns are those of its user guide
("SQLite schema reference", 2024) that bear on ranges and kernels, and of its 2019 exports, which
had neither registered strings nor a host's name. As there, a table is made only when it has rows.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

PUSH_POP, MARK, DOMAIN = 59, 34, 75
HARDWARE = 0x2A << 56  # what the upper bits of a globalTid hold is nobody's business


class Nvtx(NamedTuple):
    """A range or mark; ns."""

    text: str
    start: int
    end: int | None
    pid: int = 100
    tid: int = 101
    kind: int = PUSH_POP
    registered: bool = False  # its text is in StringIds, not in the event


class Kernel(NamedTuple):
    """A kernel: when the CPU launched it, and when it ran; ns."""

    launched: int
    start: int
    end: int
    name: str = "gemm"
    pid: int = 100
    tid: int = 101
    stream: int = 7


def global_tid(pid: int, tid: int) -> int:
    """Hardware, process and thread in one number."""
    return HARDWARE | pid << 24 | tid


_NVTX = (
    "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, "
    "category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER"
)
_NVTX_NEW = (
    ", textId INTEGER, domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, "
    "doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL, "
    "jsonTextId INTEGER, jsonText TEXT"
)
_KERNEL = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, "
    "globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL"
)
_RUNTIME = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, "
    "globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER "
    "NOT NULL, callchainId INTEGER"
)


def build(
    path: Path,
    ranges: list[Nvtx],
    kernels: list[Kernel] | None = None,
    *,
    host: str = "",
    epoch: int | None = None,
    old: bool = False,
) -> Path:
    """Write an export; `epoch`: UTC ns of the start of the session."""
    strings: dict[str, int] = {}

    def string(text: str) -> int:
        return strings.setdefault(text, len(strings) + 1)

    with closing(sqlite3.connect(path)) as base:
        if ranges:
            base.execute(f"CREATE TABLE NVTX_EVENTS ({_NVTX}{'' if old else _NVTX_NEW})")
        for item in ranges:
            row = {
                "start": item.start, "end": item.end, "eventType": item.kind,
                "globalTid": global_tid(item.pid, item.tid),
                "text": None if item.registered else item.text,
            }  # fmt: skip
            if item.registered:
                row["textId"] = string(item.text)
            marks = ", ".join("?" * len(row))
            base.execute(f"INSERT INTO NVTX_EVENTS ({', '.join(row)}) VALUES ({marks})",
                         list(row.values()))  # fmt: skip
        if kernels:
            base.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({_KERNEL})")
            base.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME ({_RUNTIME})")
        for number, k in enumerate(kernels or [], 1):
            name, where = string(k.name), global_tid(k.pid, k.tid)
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, ?, ?, ?, ?, ?)",
                (k.start, k.end, k.stream, number, global_tid(k.pid, 0), name, name),
            )
            launch = string("cudaLaunchKernel_v7000")
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0, NULL)",
                (k.launched, k.launched + 5, where, number, launch),
            )
        if strings or not old:
            base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
            base.executemany(
                "INSERT INTO StringIds VALUES (?, ?)", [(n, text) for text, n in strings.items()]
            )
        if host:
            base.execute(
                "CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT "
                "NULL, name TEXT NOT NULL, nameEnum INTEGER NOT NULL, value TEXT NOT NULL)"
            )
            base.execute(
                "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Device 0', 'Hostname', 200, ?)",
                (host,),
            )
        if epoch is not None:
            base.execute(
                "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, "
                "localTime TEXT)"
            )
            base.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", (epoch,))
        base.commit()
    return path

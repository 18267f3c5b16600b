"""Schedules: published bubble rates, the simulator's speed, and every schedule on real ranks."""

from __future__ import annotations

import time
from typing import Any

import pplab
from benchmarks import schedules_real
from benchmarks.report import entry
from pplab.core.schedule import Schedule
from pplab.core.schedules import gpipe, one_f_one_b, zb_table

MILLION = (64, 7813)  # stages, micro-batches: 2 x 64 x 7813 = 1,000,064 operations


def run() -> list[dict[str, Any]]:
    """Every figure of the group."""
    found: list[dict[str, Any]] = []
    for part in (published, speed, schedules_real.run):
        begin = time.perf_counter()
        found += part()
        print(
            f"  {part.__module__}.{part.__name__}: {time.perf_counter() - begin:.0f} s", flush=True
        )
    return found


def published() -> list[dict[str, Any]]:
    """The Zero Bubble paper's table 5, recomputed."""
    rows = zb_table.rows()
    exact = sum(
        round(here, 4) == there for name, here, there in rows if not name.endswith("1F1B-I")
    )
    errors = [abs(zb_table.rate(c, "1F1B-I") - c.published["1F1B-I"]) for c in zb_table.CASES]
    first = [
        abs(zb_table.rate(c, "1F1B-I", wrap="first") - c.published["1F1B-I"])
        for c in zb_table.CASES
    ]
    golden = one_f_one_b(4, 8).simulate(forward=1, backward=1)
    return [
        entry("schedules.zb_table_rows", exact, "of 36", 36, "higher",
              "bubble rates of 1F1B, ZB-H1, ZB-H2 equal to the paper's to 4 decimals, 12 rows"),
        entry("schedules.interleaved_max_error", max(errors), "rate", 0.004, "lower",
              f"1F1B-I, all messages counted; {max(first):.5f} when only the first wrap-around "
              "message of each group takes time, as in the authors' program: the reason"),
        entry("schedules.golden_units", golden.step_time, "units", 22, "lower",
              f"P=4, M=8, F=B=1; bubble {golden.bubble:.6f} (3/11 = {3 / 11:.6f})"),
    ]  # fmt: skip


def speed() -> list[dict[str, Any]]:
    """A million operations, built and simulated; growth; the same by other means."""
    begin = time.perf_counter()
    plan = one_f_one_b(*MILLION)
    plan.simulate(forward=1, backward=2)
    whole = time.perf_counter() - begin
    again = min(_seconds(lambda: plan.simulate(forward=1, backward=2)) for _ in range(5))
    growth, plain = [], []
    for micro_batches in (8, 78, 781, 7813):
        small = one_f_one_b(64, micro_batches)
        small.simulate()
        operations = 2 * 64 * micro_batches
        growth.append(f"{operations:.0e}: {min(_simulate(small) for _ in range(3)) * 1e3:.2f} ms")
        if operations < 2e5:
            plain.append(
                f"{operations:.0e}: {_seconds(lambda p=small: event_loop(p)) * 1e3:.1f} ms"
            )
    return [
        entry("schedules.sim_1m_s", again, "s", 0.2, "lower",
              "a built 1F1B of 1,000,064 operations (P=64), best of 5; over operations: "
              + ", ".join(growth)),
        entry("schedules.build_1m_s", whole, "s", 3, "lower",
              "the same from its generator: build, validate, simulate"),
        entry("schedules.event_loop_ratio", _seconds(lambda: event_loop(one_f_one_b(64, 781)))
              / _simulate(one_f_one_b(64, 781), warm=True), "x", None, "higher",
              "a plain Python event loop over our simulator, 1e5 operations; the loop: "
              + ", ".join(plain)),
        *torch_tables(),
    ]  # fmt: skip


def torch_tables() -> list[dict[str, Any]]:
    """torch.distributed.pipelining's own schedule tables, built for display."""
    try:
        from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops
    except ImportError as error:
        how = f"torch's schedule visualizer is not here: {error}"
        return [entry("schedules.torch_table_ratio", None, "x", None, "higher", how)]
    theirs = _seconds(lambda: get_schedule_ops("GPipe", 16, 512))
    ours = _seconds(lambda: gpipe(16, 512).simulate())
    how = (
        f"torch's table of GPipe (P=16, M=512: {theirs * 1e3:.0f} ms) over ours, built, validated "
        f"and simulated ({ours * 1e3:.0f} ms)"
    )
    return [entry("schedules.torch_table_ratio", theirs / ours, "x", None, "higher", how)]


def event_loop(plan: Schedule) -> float:
    """Makespan by visiting the ranks in turn until all are done: what one would write first."""
    done: dict[tuple[str, int, int], float] = {}
    clock, heads = [0.0] * plan.stages, [0] * plan.stages
    left = sum(map(len, plan.ops))
    while left:
        for rank, ops in enumerate(plan.ops):
            while heads[rank] < len(ops):
                op = ops[heads[rank]]
                other = rank + (-1 if op.kind == "F" else 1)
                ready = 0.0
                if 0 <= other < plan.stages:
                    found = done.get((op.kind, op.micro_batch, other))
                    if found is None:
                        break
                    ready = found
                clock[rank] = max(clock[rank], ready) + (1.0 if op.kind == "F" else 2.0)
                done[op.kind, op.micro_batch, rank] = clock[rank]
                heads[rank] += 1
                left -= 1
    return max(clock)


def _simulate(plan: pplab.Schedule, warm: bool = False) -> float:
    if warm:
        plan.simulate()
    return _seconds(lambda: plan.simulate(forward=1, backward=2))


def _seconds(work: Any) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin

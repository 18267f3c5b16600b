"""A schedule: the operations of every rank, in order, and what is wrong with them.

A schedule is written as a generator that yields the operations of one rank:

    @schedule
    def gpipe(stage, stages, micro_batches):
        for m in range(micro_batches):
            yield F(m)
        for m in range(micro_batches):
            yield B(m)

    plan = gpipe(stages=4, micro_batches=8)

Nothing is refused while it is being built: ``plan.problems`` holds every reason with a sentence,
and ``plan.check()`` (called before a simulation or a run) raises them as one ``ScheduleError``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from pplab.core.layout import Layout
from pplab.core.ops import Op

if TYPE_CHECKING:
    from pplab.core.costs import Costs
    from pplab.core.graph import Graph
    from pplab.core.schedules.theory import Theory
    from pplab.core.timeline import Timeline


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a schedule: a code to test for, a sentence to read, and where it is."""

    code: str
    sentence: str
    rank: int | None = None
    op: Op | None = None
    cycle: tuple[tuple[int, Op], ...] = ()  # (rank, op) of a deadlock, each waiting for the next

    def __str__(self) -> str:
        return self.sentence


class ScheduleError(ValueError):
    """A schedule cannot run; ``problems`` says why, the first one first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        shown = [problem.sentence for problem in self.problems[:5]]
        if len(self.problems) > len(shown):
            shown.append(f"... and {len(self.problems) - len(shown)} more")
        super().__init__("; ".join(shown))


@dataclass(frozen=True)
class Schedule:
    """The operations of every rank of one pipeline for one step.

    `ops[rank]` is what that rank runs, in order. `layout` says which slice of the model each chunk
    of a rank is. Equal schedules compare equal whatever their name.
    """

    name: str = field(compare=False)
    micro_batches: int
    ops: tuple[tuple[Op, ...], ...]
    layout: Layout
    #: What was wrong already while the operations were being collected.
    build_problems: tuple[Problem, ...] = field(default=(), compare=False)

    @classmethod
    def of(
        cls,
        ops: Iterable[Iterable[Op | str]],
        micro_batches: int | None = None,
        *,
        name: str = "custom",
        chunks: int = 1,
        placement: str = "loop",
    ) -> Schedule:
        """A schedule from operations, or their text forms: ``Schedule.of(["F0 F1 B0 B1", ...])``.

        A rank may be one string of operations separated by blanks. `micro_batches` defaults to the
        largest number seen plus one.
        """
        rows = []
        for row in ops:
            items = row.split() if isinstance(row, str) else row
            rows.append(tuple(Op.parse(item) if isinstance(item, str) else item for item in items))
        if micro_batches is None:
            micro_batches = 1 + max((op.micro_batch for row in rows for op in row), default=0)
        layout = Layout(len(rows), chunks, placement)
        return cls(name, micro_batches, tuple(rows), layout)

    @property
    def stages(self) -> int:
        """Ranks of the pipeline (P)."""
        return self.layout.stages

    @property
    def chunks(self) -> int:
        """Slices of the model on each rank (v)."""
        return self.layout.chunks

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """Everything wrong with the schedule, worst first; empty when it can run."""
        from pplab.core.validate import validate

        return self.build_problems or validate(self)

    def check(self) -> Schedule:
        """The schedule itself when nothing is wrong with it; raises ScheduleError otherwise."""
        if self.problems:
            raise ScheduleError(self.problems)
        return self

    @cached_property
    def graph(self) -> Graph:
        """Who waits for whom, as arrays; raises ScheduleError when the schedule is not valid."""
        self.check()
        return self.unchecked_graph

    @cached_property
    def unchecked_graph(self) -> Graph:
        """The graph of operations that are in range and run once each; it may not be complete."""
        from pplab.core.graph import Graph

        return Graph.of(self)

    @property
    def splits_backward(self) -> bool:
        """True when some backward pass is split into B (input gradient) and W (weight gradient)."""
        return any(op.kind == "W" for row in self.ops for op in row)

    def simulate(self, costs: Costs | None = None, **times: Any) -> Timeline:
        """The timeline of this schedule under `costs`, or under ``Costs(**times)``.

        ``plan.simulate(forward=1, backward=2)`` uses plain units; see ``Costs`` for the rest.
        """
        from pplab.core.costs import Costs
        from pplab.core.simulate import simulate

        if costs is not None and times:
            raise TypeError("give either a Costs object or its fields, not both")
        return simulate(self, costs if costs is not None else Costs(**times))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """What a notebook shows: its simulated timeline, or what is wrong and how far it gets."""
        from pplab.view import schedule_bundle  # a display is the one reason to look up

        return schedule_bundle(self)

    def __str__(self) -> str:
        rows = [f"rank {r}: {' '.join(map(str, row))}" for r, row in enumerate(self.ops)]
        head = f"{self.name}: {self.stages} stages, {self.micro_batches} micro-batches"
        if self.chunks > 1:
            head += f", {self.chunks} chunks a rank"
        notes = [f"! {problem}" for problem in self.problems]
        return "\n".join([head, *rows, *notes])

    def __repr__(self) -> str:
        return str(self)


class ScheduleMaker:
    """What ``@schedule`` makes of a generator: call it with stages and micro_batches."""

    def __init__(
        self,
        generator: Callable[..., Iterator[Op]],
        *,
        name: str | None = None,
        chunks: int = 1,
        placement: str = "loop",
        theory: Callable[..., Theory] | None = None,
    ) -> None:
        self.generator = generator
        self.name = name or generator.__name__
        self.chunks = chunks
        self.placement = placement
        self._theory = theory
        self.__doc__ = generator.__doc__
        self.__name__ = generator.__name__
        self.__wrapped__ = generator

    def __call__(
        self, stages: int, micro_batches: int, *, chunks: int | None = None, **options: Any
    ) -> Schedule:
        """The schedule for `stages` ranks and `micro_batches` micro-batches a step."""
        layout = Layout(stages, chunks or self.chunks, self.placement)
        if micro_batches < 1:
            raise ValueError(f"a step needs at least one micro-batch, not {micro_batches}")
        if "chunks" in inspect.signature(self.generator).parameters:
            options = {**options, "chunks": layout.chunks}
        rows, problems = [], []
        for rank in range(stages):
            ops, problem = _collect(
                self.generator(rank, stages, micro_batches, **options), rank, layout, micro_batches
            )
            rows.append(ops)
            if problem:
                problems.append(problem)
        return Schedule(self.name, micro_batches, tuple(rows), layout, tuple(problems))

    def theory(
        self,
        stages: int,
        micro_batches: int,
        *,
        forward: float = 1.0,
        backward: float = 2.0,
        **options: Any,
    ) -> Theory:
        """What the literature promises when all stages take the same time and messages none.

        `forward` and `backward` (the whole of it) are times of one chunk; schedules that split
        the backward pass also take `weight`, the part W has of it (default: half), and those with
        several chunks a rank `chunks`. Raises LookupError when the schedule has no formulas.
        """
        if self._theory is None:
            raise LookupError(f"{self.name} comes without formulas: simulate it")
        return self._theory(stages, micro_batches, forward, backward, **options)

    def __repr__(self) -> str:
        return f"<schedule {self.name}: call it with stages=..., micro_batches=...>"


def _collect(
    yielded: Iterator[Op], rank: int, layout: Layout, micro_batches: int
) -> tuple[tuple[Op, ...], Problem | None]:
    """The operations a generator yields, stopped when it yields something else or never ends."""
    # F, B, W and a U after each: nothing valid is longer
    limit = 4 * micro_batches * layout.chunks + 1
    if not isinstance(yielded, Iterable):
        text = f"rank {rank} gets {yielded!r} instead of operations: yield F(m), B(m) or W(m)"
        return (), Problem("not-an-op", text, rank)
    ops: list[Op] = []
    for op in yielded:
        if not isinstance(op, Op):
            text = f"rank {rank} yields {op!r}, which is not an operation: yield F(m), B(m) or W(m)"
            return tuple(ops), Problem("not-an-op", text, rank)
        ops.append(op)
        if len(ops) > limit:
            text = f"rank {rank} yields more than {limit} operations: does its loop end?"
            return tuple(ops), Problem("endless", text, rank, op)
    return tuple(ops), None


@overload
def schedule(generator: Callable[..., Iterator[Op]], /) -> ScheduleMaker: ...
@overload
def schedule(
    *,
    name: str | None = None,
    chunks: int = 1,
    placement: str = "loop",
    theory: Callable[..., Theory] | None = None,
) -> Callable[[Callable[..., Iterator[Op]]], ScheduleMaker]: ...
def schedule(generator: Callable[..., Iterator[Op]] | None = None, /, **options: Any) -> Any:
    """Decorator: a generator ``(stage, stages, micro_batches)`` of operations becomes a schedule.

    Use it bare, or as ``@schedule(chunks=2, placement="v")`` when ranks hold several chunks.
    `theory` is a function of (stages, micro_batches, forward, backward) with its formulas.
    """
    if generator is not None:
        return ScheduleMaker(generator)
    return lambda function: ScheduleMaker(function, **options)

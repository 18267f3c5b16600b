"""What trains on a rank, whatever the engine: a step to take, and what there is to report of it.

Four kinds, one shape: the plain loop, ZeRO without a pipeline, DeepSpeed's own pipeline schedules,
and any schedule on ``ScheduledEngine``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import deepspeed
import torch
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

from pplab.core.ops import Op
from pplab.core.schedules.weights import updates_midway
from pplab.runtime import layer_states, ranges, stock
from pplab.runtime.chunks import BoundsDualPipe, SlicedPipe, layers_of
from pplab.runtime.engine import ScheduledEngine
from pplab.runtime.faults import Faults, planted
from pplab.runtime.job import Job
from pplab.runtime.nets import Network
from pplab.runtime.nets.batches import stream
from pplab.runtime.nets.build import base_seed, reseed, set_seed
from pplab.runtime.nets.paced import PACE, until
from pplab.runtime.nets.tensor import PARTS
from pplab.runtime.passes import can_be_direct
from pplab.runtime.plain import PlainLoop
from pplab.runtime.stale import StaleLoop
from pplab.runtime.status import Slot
from pplab.runtime.streaming import StreamingEngine
from pplab.runtime.zero.loop import DataParallelLoop

Report = Callable[[dict[str, Any], list[bytes]], None]


@dataclass
class Trainer:
    """One rank's training.

    step: takes one and returns the loss, at least on rank number `teller`; modules: by their number
    in the layer list; measured: bytes found on the way, micro_losses: loss of each micro-batch,
    both filled as steps are taken; traffic: what DeepSpeed sent; whole: a context in which
    parameters are all there (ZeRO-3); engine: DeepSpeed's, of a pipeline.
    """

    step: Callable[[], float | None]
    module: torch.nn.Module
    optimizer: Any
    modules: dict[int, torch.nn.Module]
    measured: dict[str, int] = field(default_factory=dict)
    micro_losses: list[list[float]] = field(default_factory=list)
    stage: int = 0
    replica: int = 0
    teller: int = 0
    traffic: Callable[[], list[dict[str, Any]]] = list
    whole: Callable[[], AbstractContextManager[Any]] = nullcontext
    engine: Any = None


def trainer_of(
    job: Job,
    network: Network,
    place: dict[str, Any],
    status: Slot,
    record: Any,
    report: Report,
    named: ranges.Unnamed,
) -> Trainer:
    """What trains a job's network on this rank; see ``train.train`` for `place`."""
    if job.engine == "plain":
        stale = job.schedule is not None and updates_midway(job.schedule)
        plain = (StaleLoop if stale else PlainLoop)(job, network, record, place["device"])
        module = torch.nn.ModuleList(plain.modules.values())
        return Trainer(
            plain.step, module, plain.optimizer, plain.modules, micro_losses=plain.micro_losses
        )
    status.say("builds its DeepSpeed engine")
    if job.engine == "zero":
        loop = DataParallelLoop(job, network, record, status, place)
        return Trainer(
            loop.step, loop.module, loop.optimizer, loop.modules, loop.measured,
            loop.micro_losses, replica=loop.replica, traffic=loop.traffic.rows, whole=loop.whole,
        )  # fmt: skip
    engine = make_engine(job, network, place)
    if job.resume is not None:
        status.say("loads the checkpoint")
        layer_states.restore(engine, job)
    stage, replica = engine.stage_id, engine.grid.data_parallel_id
    step = follow(job, network, engine, record, status, place, replica, report, named)
    found = Trainer(
        step, engine.module, engine.optimizer, layers_of(engine.module),
        stage=stage, replica=replica, engine=engine,
    )  # fmt: skip
    found.measured = getattr(engine, "measured", found.measured)
    if isinstance(engine, ScheduledEngine):
        found.micro_losses, found.traffic = engine.micro_losses, engine.traffic.rows
        if engine.direct:  # the loss is not sent around: the first of those who compute it tells
            last, _ = job.layout.place_of(job.layout.slices - 1)
            found.teller = min(engine.grid.topology().get_axis_list(axis="pipe", idx=last))
    return found


def make_engine(job: Job, network: Network, place: dict[str, Any]) -> Any:
    """DeepSpeed's pipeline engine for this rank, from the job's DeepSpeed JSON."""
    about: dict[str, Any] = {
        "layers": network.layers,
        "loss_fn": network.loss,
        "seed_layers": True,
        "seed_fn": set_seed,
        "base_seed": base_seed(job),
        "partition_method": "uniform",
        "bounds": network.bounds,
    }
    if job.engine == "dualpipev":
        net = BoundsDualPipe(num_stages=job.stages, **about)
    else:
        topology = None
        if job.tensor > 1:
            topology = PipeModelDataParallelTopology(job.stages, job.tensor, job.replicas)
        net = SlicedPipe(layout=job.layout, topology=topology, **about)
        PARTS.group = net.mpu().slice_proc_group if job.tensor > 1 else None
    net.seed_fn = reseed  # from here on it is called before every layer's forward pass
    trainable = [p for p in net.parameters() if p.requires_grad]
    if not trainable:
        raise ValueError(
            f"no layer of stage {net.stage_id} has a parameter to train, and DeepSpeed wants an "
            "optimizer on every stage: choose other bounds"
        )
    engine, *_ = deepspeed.initialize(
        model=net, model_parameters=trainable, config=job.deepspeed_config()
    )
    set_seed(base_seed(job) - 1 - net.stage_id)  # dropout: not the same in every stage
    return engine


def follow(
    job: Job,
    network: Network,
    engine: Any,
    record: Any,
    status: Slot,
    place: dict[str, Any],
    replica: int,
    report: Report,
    named: ranges.Unnamed,
) -> Callable[[], float | None]:
    """A function that runs one step and returns the loss (see ``Trainer.teller``)."""
    if job.engine != "pplab":
        restart = stock.watch(engine, record, status, named)
        data = stream(network.batch, job, replica)

        def stock_step() -> float:
            restart()
            return float(engine.train_batch(data))

        return stock_step

    assert job.schedule is not None

    def batch(step: int, m: int) -> Any:
        begin = time.perf_counter()
        made = network.batch(job.batch_number(step - job.first_step, m, replica))
        if job.faults is not None and job.faults.loading:
            until(begin + job.faults.loading)
        return made

    kind = StreamingEngine if updates_midway(job.schedule) else ScheduledEngine
    scheduled = kind.adopt(
        engine, job.schedule, batch, record, status,
        direct=can_be_direct(job), staged=place["staged"], named=named,
    )  # fmt: skip
    if job.faults is not None:
        plant(job, job.faults, scheduled, replica, place)
    if isinstance(scheduled, StreamingEngine) and replica == 0:
        scheduled.tell = lambda event: report(event, [])

    def step() -> float | None:
        loss = scheduled.train_batch()
        return None if loss is None else float(loss)

    return step


def plant(
    job: Job, faults: Faults, engine: ScheduledEngine, replica: int, place: dict[str, Any]
) -> None:
    """Make the engine of this rank behave as the faults have it."""
    if any(faults.links(1)) and place["device"] == "cuda" and not place["staged"]:
        raise ValueError(
            "a late link is made by a thread of the CPU, which NCCL's order of messages does not "
            "allow: run it with device='cpu'"
        )
    engine.mail.make_late(planted(faults.links(job.layout.slices - 1), engine.pieces))

    def pace(op: Op) -> None:
        step = engine.global_steps - job.first_step
        PACE.factor = faults.pace(job, engine.stage_id, replica, step, op)

    engine.pace = pace

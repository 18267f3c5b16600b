"""What one rank does in a run: build its part of the model, train, report.

Runs in the rank's own process, under DeepSpeed. The plumbing around it (the connection to the
supervisor, errors, logs) is in ``rank``.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import deepspeed
import numpy as np
import psutil
import torch
import torch.distributed as dist
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
from numpy.typing import NDArray

from pplab.core.ops import Op
from pplab.core.schedules.weights import updates_midway
from pplab.runtime import layer_states, ranges, stock
from pplab.runtime.chunks import BoundsDualPipe, SlicedPipe, layers_of
from pplab.runtime.engine import ScheduledEngine
from pplab.runtime.faults import Faults, planted
from pplab.runtime.hosts.clocks import aligned, compare_clocks
from pplab.runtime.job import Job
from pplab.runtime.nets import Network, build
from pplab.runtime.nets.batches import stream
from pplab.runtime.nets.build import base_seed, reseed, set_seed
from pplab.runtime.nets.paced import PACE, until
from pplab.runtime.nets.tensor import PARTS, gathered
from pplab.runtime.plain import PlainLoop
from pplab.runtime.recorder import SPAN_COLUMNS, recorder
from pplab.runtime.resident import ResidentGrowth
from pplab.runtime.stale import StaleLoop
from pplab.runtime.status import Slot
from pplab.runtime.streaming import StreamingEngine
from pplab.runtime.wire import array_to_blob
from pplab.runtime.zero.loop import DataParallelLoop
from pplab.runtime.zero.owned import owned

Report = Callable[[dict[str, Any], list[bytes]], None]


def train(job: Job, place: dict[str, Any], status: Slot, report: Report) -> None:
    """Train as one rank. `place`: {"rank", "device", "backend", "staged"} and, when profiling,
    "profile" (the file for the trace). Reports each step and, at the end, spans and memory."""
    torch.set_num_threads(job.threads)
    status.say("builds the model")
    part = job.topology.coordinates(place["rank"]).model
    network = build(job, part)
    record = recorder(job.record, place["device"])
    named, warning = ranges.naming(job, place["device"])
    if warning and place["rank"] == 0:
        report({"event": "warning", "text": warning}, [])
    traffic: Callable[[], list[dict[str, Any]]] = list
    whole: Callable[[], Any] = contextlib.nullcontext
    if job.engine == "plain":
        stale = job.schedule is not None and updates_midway(job.schedule)
        loop = (StaleLoop if stale else PlainLoop)(job, network, record, place["device"])
        step: Callable[[], float] = loop.step
        where = {"stage": 0, "replica": 0, "part": 0}
        module: torch.nn.Module = torch.nn.ModuleList(loop.modules.values())
        optimizer = loop.optimizer
        numbered: dict[int, torch.nn.Module] = loop.modules
        measured: dict[str, int] = {}
        micro_losses = loop.micro_losses
    elif job.engine == "zero":
        status.say("builds its DeepSpeed engine")
        parallel = DataParallelLoop(job, network, record, status, place)
        step, where = parallel.step, {"stage": 0, "replica": parallel.replica, "part": 0}
        module, optimizer, numbered = parallel.module, parallel.optimizer, parallel.modules
        measured, micro_losses = parallel.measured, parallel.micro_losses
        traffic, whole = parallel.traffic.rows, parallel.whole
    else:
        status.say("builds its DeepSpeed engine")
        engine = make_engine(job, network, place)
        if job.resume is not None:
            status.say("loads the checkpoint")
            layer_states.restore(engine, job)
        stage, replica = engine.stage_id, engine.grid.data_parallel_id
        where = {"stage": stage, "replica": replica, "part": part}
        step = follow(job, network, engine, record, status, place, replica, report, named)
        module, optimizer = engine.module, engine.optimizer
        numbered, measured = layers_of(engine.module), getattr(engine, "measured", {})
        micro_losses = getattr(engine, "micro_losses", [])
        if hasattr(engine, "traffic"):
            traffic = engine.traffic.rows
    gc.collect()
    gc.disable()  # a collection in the middle of an operation would show as a longer operation
    together = dist.barrier if job.engine != "plain" else lambda: None
    together()
    report({"event": "ready", **where, "bounds": list(network.bounds)}, [])
    clocks = [compare_clocks(place)] if job.distant else []
    grown = ResidentGrowth()
    with profiler(job, place, where):
        for number in range(job.first_step, job.first_step + job.steps):
            record.step = number
            together()
            begin = time.perf_counter()
            with named("step", number):
                loss = step()
            record.end_step()
            together()
            seconds = time.perf_counter() - begin
            gc.collect()
            status.say(f"ends step {number}")
            if place["rank"] == 0:
                report({"event": "step", "step": number, "loss": loss, "seconds": seconds}, [])
    if job.checkpoint:
        status.say("writes a checkpoint")
        layer_states.save(engine, job, place["records"])
    status.say("reports its results")
    memory = {**memory_of(module, optimizer, place["device"]), **measured, **PARTS.sent(job.steps)}
    if (most := grown.bytes()) is not None:
        memory["resident_growth"] = most
    spans = record.spans()
    if clocks:  # moments of several machines: on the clock of rank 0's
        clocks.append(compare_clocks(place))
        spans = aligned(spans, [SPAN_COLUMNS.index(name) for name in ("start", "end")], clocks)
    about, blob = array_to_blob(spans)
    with whole():
        parameters, blobs = parameters_of(numbered, job.tensor) if job.keep_parameters else ({}, [])
    report(
        {
            "event": "result",
            **where,
            "memory": memory,
            "columns": SPAN_COLUMNS,
            "spans": about,
            "parameters": parameters,
            "micro_losses": micro_losses,
            "traffic": traffic(),
            "clock_error": max((reading.error for reading in clocks), default=0) / 1e9,
        },
        [blob, *blobs],
    )
    together()  # nobody leaves while a neighbour may still be sending


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
) -> Callable[[], float]:
    """A function that runs one step and returns the loss."""
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
        engine, job.schedule, batch, record, status, staged=place["staged"], named=named
    )
    if job.faults is not None:
        plant(job, job.faults, scheduled, replica, place)
    if isinstance(scheduled, StreamingEngine) and replica == 0:
        scheduled.tell = lambda event: report(event, [])
    return lambda: float(scheduled.train_batch())


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


def parameters_of(
    modules: dict[int, torch.nn.Module], parts: int = 1
) -> tuple[dict[str, Any], list[bytes]]:
    """Parameters as float32 arrays, named ``layer.name``; sliced ones are put together again."""
    names, blobs = {}, []
    for number, module in modules.items():
        for name, parameter in module.named_parameters():
            array: NDArray[np.float32] = gathered(parameter, parts).float().cpu().numpy()
            about, blob = array_to_blob(array)
            names[f"{number}.{name}"] = about
            blobs.append(blob)
    return names, blobs


def memory_of(module: torch.nn.Module, optimizer: Any, device: str) -> dict[str, Any]:
    """Bytes of this rank between two steps: parameters and optimizer state tensor by tensor; on a
    GPU the allocator's peak, on a CPU the resident size of the process (shared pages too)."""
    found: dict[str, Any] = owned(module, optimizer)
    del found["gradients"], found["buckets"]  # gone between two steps
    found["resident"] = psutil.Process().memory_info().rss
    if device == "cuda":
        found["peak_allocated"] = torch.cuda.max_memory_allocated()
        found["peak_reserved"] = torch.cuda.max_memory_reserved()
    return found


@contextlib.contextmanager
def profiler(job: Job, place: dict[str, Any], where: dict[str, int]) -> Iterator[None]:
    """torch.profiler around all steps, written as a Chrome trace, when the job asks for it."""
    if job.nsys or job.profile:
        notes = ranges.about(job, place, where)
    if job.nsys:
        ranges.mark(notes)
    if not job.profile:
        yield
        return
    activities = [torch.profiler.ProfilerActivity.CPU]
    if place["device"] == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        profile.add_metadata_json("pplab", json.dumps(notes))
        yield
    profile.export_chrome_trace(place["profile"])


def join(job: Job, place: dict[str, Any], store: Any | None) -> None:
    """Join the process group, on `store` (local launcher) or from the launcher's environment."""
    if place["device"] == "cuda":
        torch.cuda.set_device(place["local_rank"] % torch.cuda.device_count())
        os.environ["LOCAL_RANK"] = str(place["local_rank"] % torch.cuda.device_count())
    # DeepSpeed's shared-memory op would be compiled with g++ at the first use (36 s) and leaves
    # 66 MiB a rank in /dev/shm; gloo does not need it. The name is set, not looked up: looking it
    # up runs compilers and asks the GPUs about every op there is.
    deepspeed.ops.__compatible_ops__ = {"deepspeed_shm_comm": False}
    # DeepSpeed calls collectives by names that torch calls old, and torch says so in every rank
    warnings.filterwarnings("ignore", "`torch.distributed", FutureWarning)
    if store is not None:
        dist.init_process_group(
            place["backend"], store=store, rank=place["rank"], world_size=job.world
        )
    deepspeed.init_distributed(dist_backend=place["backend"], verbose=False)
    if place["staged"]:
        _stage_p2p()


def _stage_p2p() -> None:
    """Let DeepSpeed's own sends and receives of GPU tensors go through the CPU (gloo)."""
    from deepspeed.runtime.pipe import p2p

    send, recv = p2p.send, p2p.recv

    def staged_send(tensor: Any, dest_stage: int, async_op: bool = False) -> Any:
        return send(tensor.cpu(), dest_stage, async_op)

    def staged_recv(tensor: Any, src_stage: int, async_op: bool = False) -> Any:
        buffer = torch.empty(tensor.shape, dtype=tensor.dtype)
        result = recv(buffer, src_stage, async_op)
        tensor.data.copy_(buffer)
        return result

    p2p.send, p2p.recv = staged_send, staged_recv

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
from collections.abc import Iterator
from typing import Any

import deepspeed
import numpy as np
import psutil
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from pplab.runtime import layer_states, ranges
from pplab.runtime.hosts.clocks import aligned, compare_clocks
from pplab.runtime.job import Job
from pplab.runtime.nets import build
from pplab.runtime.nets.tensor import PARTS, gathered
from pplab.runtime.recorder import SPAN_COLUMNS, recorder
from pplab.runtime.resident import ResidentGrowth
from pplab.runtime.status import Slot
from pplab.runtime.trainer import Report, trainer_of
from pplab.runtime.wire import array_to_blob
from pplab.runtime.zero.owned import owned


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
    trainer = trainer_of(job, network, place, status, record, report, named)
    where = {"stage": trainer.stage, "replica": trainer.replica, "part": part}
    gc.collect()
    gc.freeze()  # what is there stays: between two steps only what they left is looked through
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
                loss = trainer.step()
            record.end_step()
            together()
            seconds = time.perf_counter() - begin
            gc.collect()
            status.say(f"ends step {number}")
            if place["rank"] == trainer.teller:
                report({"event": "step", "step": number, "loss": loss, "seconds": seconds}, [])
    if job.checkpoint:
        status.say("writes a checkpoint")
        layer_states.save(trainer.engine, job, place["records"])
    status.say("reports its results")
    memory = memory_of(trainer.module, trainer.optimizer, place["device"])
    memory |= trainer.measured | PARTS.sent(job.steps)
    if (most := grown.bytes()) is not None:
        memory["resident_growth"] = most
    spans = record.spans()
    if clocks:  # moments of several machines: on the clock of rank 0's
        clocks.append(compare_clocks(place))
        spans = aligned(spans, [SPAN_COLUMNS.index(name) for name in ("start", "end")], clocks)
    about, blob = array_to_blob(spans)
    parameters: dict[str, Any] = {}
    blobs: list[bytes] = []
    if job.keep_parameters:
        with trainer.whole():
            parameters, blobs = parameters_of(trainer.modules, job.tensor)
    report(
        {
            "event": "result",
            **where,
            "memory": memory,
            "columns": SPAN_COLUMNS,
            "spans": about,
            "parameters": parameters,
            "micro_losses": trainer.micro_losses,
            "traffic": trainer.traffic(),
            "clock_error": max((reading.error for reading in clocks), default=0) / 1e9,
        },
        [blob, *blobs],
    )
    together()  # nobody leaves while a neighbour may still be sending


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
    from deepspeed import comm
    from deepspeed.runtime.pipe import p2p

    send, recv, batch = p2p.send, p2p.recv, comm.batch_isend_irecv

    def staged_send(tensor: Any, dest_stage: int, async_op: bool = False) -> Any:
        return send(tensor.cpu(), dest_stage, async_op)

    def staged_recv(tensor: Any, src_stage: int, async_op: bool = False) -> Any:
        buffer = torch.empty(tensor.shape, dtype=tensor.dtype)
        result = recv(buffer, src_stage, async_op)
        tensor.data.copy_(buffer)
        return result

    def staged_batch(operations: list[Any]) -> list[Any]:
        """DualPipeV's, which waits for all of them at once: here nothing is left to wait for."""
        received = [(one, one.tensor) for one in operations if one.op == "irecv"]
        for one in operations:
            given, receives = one.tensor, one.op == "irecv"
            one.tensor = torch.empty_like(given, device="cpu") if receives else given.cpu()
        for work in batch(operations):
            work.wait()
        for one, tensor in received:
            tensor.data.copy_(one.tensor)
        return []

    p2p.send, p2p.recv, comm.batch_isend_irecv = staged_send, staged_recv, staged_batch

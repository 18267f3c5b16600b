"""torch.distributed.pipelining's 1F1B on the same paced layers: one rank a process, gloo.

``python -m benchmarks.torch_1f1b STAGES MICRO_BATCHES FORWARD BACKWARD STEPS`` starts the ranks
and prints the step times (seconds, barrier to barrier) as JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import time
from typing import Any


def rank(
    number: int, stages: int, micro_batches: int, seconds: tuple[float, float], steps: int,
    port: int, results: Any,
) -> None:  # fmt: skip
    """One stage."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    from pplab.runtime.nets.batches import random_batches
    from pplab.runtime.nets.paced import PacedLayer, distance

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=number, world_size=stages)
    torch.manual_seed(number)
    layer = PacedLayer(64, *seconds, weight=seconds[1] / 2)  # W: not split off here
    size = 4
    example = torch.zeros(size, 64, requires_grad=True)  # so that gradients are sent back
    # output_args given: else the stage would run a forward pass to find the shapes
    stage = PipelineStage(
        layer, number, stages, torch.device("cpu"), input_args=(example,), output_args=(example,)
    )
    schedule = Schedule1F1B(stage, micro_batches, loss_fn=distance)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-3)
    batch = random_batches(size * micro_batches, 64, 0)
    times = []
    for step in range(steps):
        x, labels = batch(step)
        dist.barrier()
        begin = time.perf_counter()
        if number == 0:
            schedule.step(x)
        elif number == stages - 1:
            schedule.step(target=labels, losses=[])
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        times.append(time.perf_counter() - begin)
    if number == stages - 1:  # as in our runs: the rank that knows the loss tells its times
        results.put(times)
    dist.barrier()


def main() -> None:
    """Start the ranks, print the last one's step times."""
    stages, micro_batches, steps = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[5])
    seconds = (float(sys.argv[3]), float(sys.argv[4]))
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [
        context.Process(target=rank, args=(n, stages, micro_batches, seconds, steps, port, results))
        for n in range(stages)
    ]
    for process in ranks:
        process.start()
    times = results.get(timeout=120)
    for process in ranks:
        process.join(10)
        process.kill()
    print(json.dumps(times))


if __name__ == "__main__":
    main()

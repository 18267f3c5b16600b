"""A pipeline of torch.distributed.pipelining under torch.profiler, with nothing of pplab in it.

``python tests/runs/torch_pipeline.py RANK PORT FOLDER``: one of two ranks; gloo, GPipe, 4
micro-batches, two profiled steps.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.profiler import ProfilerActivity, profile, schedule


def main(rank: int, port: str, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    layer = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
    example = torch.zeros(32, 256, requires_grad=True)
    stage = PipelineStage(
        layer, rank, 2, torch.device("cpu"), input_args=(example,), output_args=(example,)
    )
    plan = ScheduleGPipe(stage, 4, loss_fn=torch.nn.functional.mse_loss)
    optimizer = torch.optim.Adam(layer.parameters())
    out = os.path.join(folder, f"worker{rank}.json")
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=2),
        on_trace_ready=lambda done: done.export_chrome_trace(out),
    ) as profiler:
        for _ in range(3):
            data = torch.randn(128, 256)
            plan.step(data) if rank == 0 else plan.step(target=data, losses=[])
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])

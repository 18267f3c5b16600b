"""What a DeepSpeed user writes: the small GPT on a PipelineModule, for the `deepspeed` command.

Used as the other side of spine.warm_vs_stock: same model, micro-batches and steps.
"""

import argparse
import itertools

import deepspeed
import torch
from deepspeed.pipe import PipelineModule

from pplab.runtime.nets.batches import text_batches
from pplab.runtime.nets.gpt import layers, next_byte_loss

parser = argparse.ArgumentParser()
for name in ("stages", "micro_batches", "steps", "layers", "width", "heads", "context", "size"):
    parser.add_argument(f"--{name}", type=int)
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()

deepspeed.init_distributed()
torch.set_num_threads(1)
torch.manual_seed(0)
settings = {name: getattr(args, name) for name in ("layers", "width", "heads", "context")}
net = PipelineModule(
    layers=layers(settings), num_stages=args.stages, loss_fn=next_byte_loss,
    partition_method="uniform",
)  # fmt: skip
config = {
    "train_micro_batch_size_per_gpu": args.size,
    "gradient_accumulation_steps": args.micro_batches,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}
engine, *_ = deepspeed.initialize(
    model=net, model_parameters=[p for p in net.parameters() if p.requires_grad], config=config
)
data = map(text_batches(args.size, args.context, 0), itertools.count())
for _ in range(args.steps):
    loss = engine.train_batch(data)
if engine.global_rank == 0:
    print(f"final loss {float(loss):.4f}", flush=True)

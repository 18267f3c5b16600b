"""Launch commands, and the configs they carry."""

import base64
import json

import pytest

from pplab.advise.check import check
from pplab.advise.check.command import parse

GOOD = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 16,
    "gradient_clipping": 1.0,
    "steps_per_print": 10,
    "zero_optimization": {"stage": 1},
}


def test_base64_as_launchers_pass_it():
    coded = base64.urlsafe_b64encode(json.dumps(GOOD).encode()).decode()
    assert check(coded, ranks=8, stages=4).ok
    assert check(coded.rstrip("=")).name == "base64"
    assert check("not base64 of anything!").exit_code == 2
    report = check(command=f"deepspeed --num_gpus 8 train.py --deepspeed_config {coded} "
                           "--pipe-parallel-size 4")  # fmt: skip
    assert (report.resolved["replicas"], report.resolved["stages"]) == (2, 4)


@pytest.mark.parametrize(
    ("text", "launcher", "ranks", "stages"),
    [
        ("deepspeed --num_gpus=8 --num_nodes 2 train.py --pipeline_parallel_size 4", "deepspeed",
         16, 4),
        ("torchrun --nproc-per-node 4 --nnodes 2 train.py", "torchrun", 8, None),
        ("python -m torch.distributed.launch --nproc_per_node=4 t.py", "torchrun", 4, None),
        ("NCCL_DEBUG=INFO srun -n 16 python train.py --pipeline-model-parallel-size=8", "srun",
         16, 8),
        ("accelerate launch --num_processes 4 train.py", "accelerate", 4, None),
        ("/usr/bin/python3 train.py --deepspeed_config c.json", "python", None, None),
    ],
)  # fmt: skip
def test_commands(text, launcher, ranks, stages):
    parsed = parse(text)
    assert (parsed.launcher, parsed.ranks, parsed.stages) == (launcher, ranks, stages)


def test_what_a_megatron_command_says_is_used():
    command = (
        "deepspeed --num_gpus 8 --num_nodes 64 pretrain_gpt.py --pipeline-model-parallel-size 4 "
        "--tensor-model-parallel-size 2 --num-layers 40 --rampup-batch-size 16 16 5000000"
    )
    config = {"train_batch_size": 1024, "train_micro_batch_size_per_gpu": 1}
    report = check(config, command=command)
    assert report.resolved["replicas"] == 64 and "ramp-up" in report.rules("error")
    assert check(config, command=command, ranks=64).resolved["replicas"] == 8
    alone = check(GOOD | {"zero_optimization": {"stage": 3}},
                  command="deepspeed --num_gpus 4 t.py --no-pipeline-parallel")  # fmt: skip
    assert "zero-with-pipeline" not in alone.rules()
    assert check(GOOD, command="deepspeed 'unbalanced").rules("error") == set()

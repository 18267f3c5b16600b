"""The configs and the command that the two articles print, put together again.

The reading copies have lost quotes, colons and signs on the way; what stood there is clear from
what is left. Keys, values and their nesting are the articles'.
"""

from __future__ import annotations

from typing import Any

#: Article 1: a pipeline with ZeRO-3. Its command asks for 8 GPUs, 4 stages, 2 tensor parts.
FIRST: dict[str, Any] = {
    "train_batch_size": 1024,
    "gradient_accumulation_steps": 32,
    "optimizer": {"type": "AdamW", "params": {"lr": 6e-5}},
    "zero_optimization": {
        "stage": 3,
        "stage3_param_persistence_threshold": 1e6,
        "offload_optimizer": {"device": "cpu"},
    },
    "pipeline": {"activation_checkpointing": True, "partition_method": "parameters"},
}
#: Article 1: how to start it.
COMMAND = (
    "deepspeed --num_gpus=8 train.py --deepspeed_config ds_config.json "
    "--pipeline_parallel_size 4 --model_parallel_size 2"
)
#: Article 2: batch 64, and a pipeline section that asks for 4 stages.
SECOND: dict[str, Any] = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 4,
    "pipeline": {
        "enabled": True,
        "pipe_parallel_size": 4,
        "activation_checkpointing": {"partition_activations": True, "cpu_checkpointing": False},
    },
    "zero_optimization": {"stage": 1},
}

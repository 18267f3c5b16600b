"""Keys of other frameworks, and what DeepSpeed calls the same thing."""

from __future__ import annotations

from pplab.advise.check.schema import simplify

__all__ = [
    "DTYPES", "FOREIGN", "NEOX_SURE", "PIPELINE_WORDS", "STAGES_IN", "STAGE_KEYS", "simplify",
]  # fmt: skip

_STAGES = (
    "DeepSpeed takes the number of stages from the code: PipelineModule(layers, num_stages=N)."
)
_METHOD = 'DeepSpeed takes it from the code: PipelineModule(..., partition_method="parameters").'
_GAS = "In DeepSpeed the number of micro-batches of a step is gradient_accumulation_steps."
_MICRO = "DeepSpeed's key is train_micro_batch_size_per_gpu."
_RECOMPUTE = (
    'DeepSpeed\'s key is "pipeline": {"activation_checkpoint_interval": 1}, or '
    "PipelineModule(activation_checkpoint_interval=1)."
)
_SCHEDULE = "DeepSpeed's schedule is 1F1B; another one needs code (a DualPipeVModule, or your own)."
_TENSOR = (
    "DeepSpeed takes the tensor-parallel size of a pipeline from the code: a topology with a "
    '"model" axis.'
)

#: Top-level keys that are written for the number of stages.
STAGE_KEYS = {
    "pipe_parallel_size", "pipeline_parallel_size", "pipeline_model_parallel_size", "pp_size",
    "pipeline_stages", "num_pipeline_stages", "pipeline_parallel_degree", "pp",
}  # fmt: skip
#: The same inside a "pipeline" section.
STAGES_IN = {"stages", "num_stages", "parallel_size", "size", "pipe_size", "degree", "pp_degree"}

#: Keys of a "pipeline" section that people write, none of which is read -> what to do.
PIPELINE_WORDS = {
    **dict.fromkeys(STAGE_KEYS | STAGES_IN, _STAGES),
    "enabled": "A pipeline is there exactly when a PipelineModule is passed to "
               "deepspeed.initialize; no key turns it on or off.",
    **dict.fromkeys(("partition", "partition_method", "method", "balance", "layer_partition"),
                    _METHOD),
    **dict.fromkeys(("micro_batches", "num_micro_batches", "microbatches", "num_microbatches",
                     "micro_batch_num", "chunks", "gradient_accumulation_steps"), _GAS),
    **dict.fromkeys(("micro_batch_size", "microbatch_size", "pipe_chunk_size", "chunk_size"),
                    _MICRO),
    **dict.fromkeys(("activation_checkpointing", "checkpoint_activations", "recompute",
                     "activation_checkpoint", "gradient_checkpointing"), _RECOMPUTE),
    **dict.fromkeys(("schedule", "engine", "interleave", "interleaved", "pipeline_schedule",
                     "schedule_type", "pipe_schedule", "virtual_stages"), _SCHEDULE),
    "num_layers": "The layers are the list that PipelineModule is given.",
    "layers": "The layers are the list that PipelineModule is given.",
    "seed_layers": "DeepSpeed takes it from the code: PipelineModule(..., seed_layers=True).",
    "loss_fn": "DeepSpeed takes it from the code: PipelineModule(..., loss_fn=...).",
    "topology": "DeepSpeed takes it from the code: PipelineModule(..., topology=...).",
    "elastic": "There is no such feature.",
}  # fmt: skip

#: Top-level keys of other frameworks -> what to do; the reader learns whose word it is.
FOREIGN: dict[str, tuple[str, str]] = {
    **dict.fromkeys(STAGE_KEYS, ("GPT-NeoX, Megatron-LM and others", _STAGES)),
    **dict.fromkeys(("model_parallel_size", "tensor_model_parallel_size", "tensor_parallel_size",
                     "tp_size", "mp_size"), ("Megatron-LM and others", _TENSOR)),
    **dict.fromkeys(("num_microbatches", "num_micro_batches", "micro_batches",
                     "batch_accumulation_per_replica", "accumulate_grad_batches"),
                    ("other frameworks", _GAS)),
    **dict.fromkeys(("micro_batch_size", "microbatch_size", "per_device_train_batch_size",
                     "per_gpu_train_batch_size", "batch_size_per_gpu"),
                    ("other frameworks", _MICRO)),
    **dict.fromkeys(("global_batch_size", "batch_size"),
                    ("other frameworks", "DeepSpeed's key is train_batch_size.")),
    **dict.fromkeys(("partition_method", "pipe_partition_method"), ("other places", _METHOD)),
    "activation_checkpoint_interval": ("the wrong place", _RECOMPUTE),
    **dict.fromkeys(("gradient_checkpointing", "activation_checkpoint", "recompute",
                     "checkpoint_activations"), ("other frameworks", _RECOMPUTE)),
    **dict.fromkeys(("pipeline_parallel", "pipeline_parallelism", "pipeline_config",
                     "pipeline_parallel_config"), ("other frameworks", _STAGES)),
    **dict.fromkeys(("max_grad_norm", "clip_grad", "grad_clip", "gradient_clip_val",
                     "clip_grad_norm"),
                    ("other frameworks", "DeepSpeed's key is gradient_clipping.")),
    "mixed_precision": ("Accelerate", 'DeepSpeed\'s way is "bf16": {"enabled": true}.'),
    "zero_stage": ("Accelerate and scripts", 'DeepSpeed\'s way is "zero_optimization": '
                                             '{"stage": 1}.'),
    "elastic_pipeline": ("nobody", "There is no such feature in any DeepSpeed version."),
    "fp32_allreduce": ("an old DeepSpeed", 'Today it is "communication_data_type": "fp32".'),
    "allreduce_always_fp32": ("an old DeepSpeed", 'Today it is "communication_data_type": "fp32".'),
    "cpu_offload": ("an old DeepSpeed", 'Today it is "zero_optimization": '
                                        '{"offload_optimizer": {"device": "cpu"}}.'),
    **dict.fromkeys(("lr", "learning_rate", "betas", "weight_decay"),
                    ("scripts", "DeepSpeed reads it in optimizer.params.")),
    "warmup_num_steps": ("the wrong place", "DeepSpeed reads it in scheduler.params."),
    "rampup_batch_size": ("Megatron-LM", "DeepSpeed has no ramp-up of its own; the script calls "
                                         "engine.set_train_batch_size."),
}  # fmt: skip

#: Two of these together: the file is a GPT-NeoX config.
NEOX_SURE = {
    "num_layers", "hidden_size", "num_attention_heads", "seq_length", "max_position_embeddings",
    "pos_emb", "no_weight_tying", "pipe_parallel_size", "model_parallel_size", "gpt_j_residual",
    "output_layer_parallelism", "norm", "attention_config", "train_iters", "lr_decay_iters",
    "make_vocab_size_divisible_by", "scaled_upper_triang_masked_softmax_fusion", "vocab_file",
    "rotary_pct", "mlp_type",
}  # fmt: skip
#: Names of number types (``runtime/config.py``, DtypeEnum) -> short name.
DTYPES = {
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp32", "float32", "float", "torch.float32"), "fp32"),
}

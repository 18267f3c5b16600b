"""Keys of other frameworks, and what DeepSpeed calls the same thing."""

from __future__ import annotations

from pplab.advise.check.schema import simplify

__all__ = [
    "DTYPES", "FOREIGN", "INSIDE", "NEOX_SURE", "PIPELINE_WORDS", "STAGES_IN", "STAGE_KEYS",
    "TENSOR", "simplify",
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
TENSOR = (
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
    **dict.fromkeys(("partition", "partition_method", "method", "balance", "layer_partition",
                     "pipe_partition_method"), _METHOD),
    **dict.fromkeys(("micro_batches", "num_micro_batches", "microbatches", "num_microbatches",
                     "micro_batch_num", "chunks", "gradient_accumulation_steps"), _GAS),
    **dict.fromkeys(("micro_batch_size", "microbatch_size", "pipe_chunk_size", "chunk_size"),
                    _MICRO),
    **dict.fromkeys(("activation_checkpointing", "checkpoint_activations", "recompute",
                     "activation_checkpoint", "gradient_checkpointing"), _RECOMPUTE),
    **dict.fromkeys(("schedule", "engine", "interleave", "interleaved", "pipeline_schedule",
                     "schedule_type", "pipe_schedule", "virtual_stages"), _SCHEDULE),
    **dict.fromkeys(("num_layers", "layers", "pipeline_num_layers"),
                    "The layers are the list that PipelineModule is given."),
    "activation_checkpoint_func": "DeepSpeed takes it from the code: "
                                  "PipelineModule(..., activation_checkpoint_func=...).",
    "seed_layers": "DeepSpeed takes it from the code: PipelineModule(..., seed_layers=True).",
    "loss_fn": "DeepSpeed takes it from the code: PipelineModule(..., loss_fn=...).",
    "topology": "DeepSpeed takes it from the code: PipelineModule(..., topology=...).",
    "elastic": "There is no such feature.",
}  # fmt: skip

#: Top-level keys of other frameworks -> what to do; the reader learns whose word it is.
FOREIGN: dict[str, tuple[str, str]] = {
    **dict.fromkeys(STAGE_KEYS, ("GPT-NeoX, Megatron-LM and others", _STAGES)),
    **dict.fromkeys(("model_parallel_size", "tensor_model_parallel_size", "tensor_parallel_size",
                     "tp_size", "mp_size"), ("Megatron-LM and others", TENSOR)),
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
    "lr_scheduler": ("other frameworks", "DeepSpeed's key is scheduler."),
    **dict.fromkeys(("monitor", "monitor_config"),
                    ("other places", 'DeepSpeed reads "tensorboard", "wandb", "csv_monitor" and '
                                     '"comet", each at the top level.')),
    "comms_config": ("other places", 'DeepSpeed\'s section is "comms_logger", which is on as soon '
                                     "as it is there."),
    **dict.fromkeys(("fp8", "int8", "int4"),
                    ("other tools", 'DeepSpeed\'s modes are "fp16", "bf16" and "torch_autocast".')),
    "sequence_parallel": ("other frameworks", "DeepSpeed's key is sequence_parallel_size, a "
                                              "number; the attention is changed in the code."),
}  # fmt: skip

_SCALING = ("bf16 has the range of fp32 and scales no loss; this is a setting of fp16.", "")
_COMPILE = ("The code turns torch.compile on today: engine.compile(backend=...).", "")
#: Key in a section that reads it under another name, or no longer -> (why, its name or "").
INSIDE: dict[str, tuple[str, str]] = {
    **dict.fromkeys((f"bf16.{key}" for key in (
        "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale",
        "consecutive_hysteresis", "dynamic_loss_scale")), _SCALING),
    "bf16.auto_cast": ("With bf16 no input is cast; cast it in the first layer.", ""),
    "bf16.accumulate_grads_via_hooks": ("It has another name today.", "immediate_grad_update"),
    "fp16.dynamic_loss_scale": ("The scale is dynamic when loss_scale is 0, its default.", ""),
    **dict.fromkeys((f"compile.{key}" for key in ("enabled", "disable", "backend", "kwargs")),
                    _COMPILE),
    "tensor_parallel.enabled": ("An autotp_size above 1 turns it on.", ""),
    "tensor_parallel.tp_size": ("It has another name here.", "autotp_size"),
    "aio.thread_count": ("It has another name today.", "intra_op_parallelism"),
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

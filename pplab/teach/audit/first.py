"""The first article: hints for tuning DeepSpeed pipelines, by topic; in our words, not in its own.

Evidence for every verdict is in the cells that are named; numbers are those of the reading copy.
"""

from pplab.teach.audit.claim import Claim

DIAGNOSIS = [
    Claim("1.1", "diagnosis",
          "Beyond ten billion parameters, plain data parallelism runs out of memory and bandwidth.",
          "true",
          "Training with Adam takes 16 bytes a parameter: ten billion need 160 GB on every GPU "
          "before the first activation.",
          ("04: The question",)),
    Claim("1.2", "diagnosis",
          "A picture shows a typical two-GPU pipeline: GPU 0 is back at work after one gap.",
          "false",
          "GPU 0 would run its backward pass before GPU 1 has made the gradient for it. It is "
          "`F . . B` over `. F B .`.",
          ("01: The question",)),
    Claim("1.3", "diagnosis",
          "Bubble = 1 - useful time / total time.",
          "misleading",
          "A good definition of something measured, but not of fill and drain: imbalance, messages "
          "and the optimizer are in it, too. `breakdown()` takes them apart.",
          ("01: Find the formula", "01: Break it: one heavy stage")),
    Claim("1.5", "diagnosis",
          "Micro-batches, the partition and latency decide how large the bubble is.",
          "mostly true",
          "The list lacks the number of stages, which is half of the formula.",
          ("01: Find the formula", "01: Break it: messages that take time")),
    Claim("1.6", "diagnosis",
          "A trace of PyTorch's profiler shows the timelines of all GPUs.",
          "misleading",
          "Each process writes a trace of its own; somebody has to merge them and their clocks.",
          ("01: The same run in PyTorch's profiler",)),
]  # fmt: skip

MICRO_BATCHES = [
    Claim("1.4", "micro-batches",
          "The number of micro-batches is directly related to GAS.",
          "mostly true",
          "It *is* GAS, in each pipeline.",
          ("02: The question", "02: How many micro-batches are these?")),
    Claim("1.7", "micro-batches",
          "GAS is where memory is balanced against efficiency.",
          "misleading",
          "Under GPipe it would be. DeepSpeed runs 1F1B, whose memory does not grow with GAS, not "
          "by one byte, once there are as many micro-batches as stages.",
          ("02: What does it cost?",)),
    Claim("1.8", "micro-batches",
          "The best GAS is `max(2S, batch // 2S)` for S stages.",
          "false",
          "More stages need more micro-batches and get fewer; it ignores replicas and micro-batch "
          "size, so the batch need not even divide; and it contradicts the article's own table.",
          ("02: A published table", "07: The formula for GAS")),
    Claim("1.10", "micro-batches",
          "2S micro-batches keep the pipeline full.",
          "false",
          "They leave 27 % idle with 4 stages and 30 % with 8. Papers say 4S, DeepSpeed's authors "
          "8S.",
          ("01: Find the formula",)),
    Claim("1.33", "micro-batches",
          "Raise GAS until the bubble is below 15 %.",
          "mostly true",
          "A sound rule, and it asks for 18 micro-batches with 4 stages: the 2S and 4S of the "
          "same article fail it.",
          ("02: A trap: which bubble?", "06: A check-list, as code")),
]  # fmt: skip

PARTITIONING = [
    Claim("1.15", "partitioning",
          "Measure the forward and backward time of each layer with the profiler.",
          "true",
          "Do. But nothing in DeepSpeed reads what you have measured.",
          ("03: How DeepSpeed cuts",)),
    Claim("1.16", "partitioning",
          "Then sort the layers by time, and cut.",
          "false",
          "Stages are slices of the layers in the order in which they run. Sorting destroys the "
          "model.",
          ("03: How to find the best cut",)),
    Claim("1.17", "partitioning",
          "Dynamic programming finds the cut with the least slowest stage.",
          "mostly true",
          "It does, and that is the right aim for endlessly many micro-batches. For a few, the "
          "place of the slowest stage counts as well, and memory and messages always do.",
          ("03: The largest stage is not the whole story",)),
    Claim("1.18", "partitioning",
          "Here is the program for it.",
          "misleading",
          "Its value is right. But it says what the best cut costs and not where it is, adds up "
          "the same layers again and again, and says `inf` for more stages than layers.",
          ("03: How to find the best cut", "07: The program, asked for too much")),
    Claim("1.19", "partitioning",
          "On mixed GPUs, give the heavy layers to the fast ones.",
          "misleading",
          "Layers stay in order; what can be chosen is how many each GPU gets, and the order of "
          "the GPUs. DeepSpeed does neither by itself.",
          ("03: When the devices differ",)),
    Claim("1.20", "partitioning",
          "Keep neighbouring stages inside one node.",
          "misleading",
          "Sometimes right, and the opposite of what DeepSpeed does by default: it puts the "
          "replicas of a stage side by side, because their gradients are the larger traffic.",
          ("07: Who sits beside whom?",)),
    Claim("1.21", "partitioning",
          "DeepSpeed's `elastic_pipeline` moves the load while it runs.",
          "false",
          "No such thing. The key is ignored; `elasticity`, which once existed, stops the run. "
          "`pplab.rebalance` does it from a checkpoint.",
          ("07: Keys that do nothing", "03: The real model, and a training that goes on")),
    Claim("1.34", "partitioning",
          "Cut until the times of the stages differ by less than 10 %.",
          "unsupported",
          "A rule of thumb without a reason; but harmless: a stage 10 % too slow costs at most "
          "9.1 %.",
          ("07: What do ten per cent cost?", "06: A check-list, as code")),
]  # fmt: skip

ZERO = [
    Claim("1.13", "ZeRO",
          "ZeRO-2 wants GAS of at least 4S.",
          "false",
          "ZeRO-2 wants no pipeline: DeepSpeed stops. The 4S looks borrowed from GPipe.",
          ("04: With a pipeline",)),
    Claim("1.14", "ZeRO",
          "With ZeRO-3, raise GAS because of its extra communication.",
          "false",
          "Backwards. ZeRO-3 talks on every micro-batch, so more of them mean more traffic. Only "
          "ZeRO-1 gets cheaper.",
          ("04: The price: who talks when?",)),
    Claim("1.22", "ZeRO",
          "10 to 30 billion parameters: a pipeline with ZeRO-2 and GAS = 8S.",
          "false",
          "DeepSpeed stops with an assertion. (8S by itself is fine.)",
          ("04: With a pipeline", "04: The table, corrected")),
    Claim("1.23", "ZeRO",
          "30 to 100 billion: a pipeline with ZeRO-3 and `stage3_param_persistence`.",
          "false",
          "Wrong twice: the same assertion, and there is no such key, which stops the run as well.",
          ("04: With a pipeline", "07: One letter too few")),
    Claim("1.24", "ZeRO",
          "More than 100 billion: a pipeline with ZeRO-3 and offload to NVMe.",
          "false",
          "That is an alternative to a pipeline, never a part of one. ZeRO-1 with the optimizer in "
          "CPU memory does go with it.",
          ("04: Offload",)),
    Claim("1.26", "ZeRO",
          "A config with ZeRO-3 and a pipeline section.",
          "false",
          "It dies of the assertion before the first step.",
          ("07: Their configs, checked", "04: The config, taken apart")),
    Claim("1.27", "ZeRO",
          "`stage3_param_persistence_threshold` can be set to 1e6.",
          "true",
          "The key exists, and a number with an exponent is accepted. (On a large model it changes "
          "nothing.)",
          ("04: A threshold, and what it does",)),
    Claim("1.28", "ZeRO",
          "A threshold that is too small makes ZeRO-3 communicate often.",
          "mostly true",
          "Yes, and one that is too large keeps the whole model on every rank. Neither has "
          "anything to do with pipelines.",
          ("04: A threshold, and what it does",)),
]  # fmt: skip

CONFIG_KEYS = [
    Claim("1.25", "config keys",
          "A config may name the batch (1024) and GAS (32) and leave the micro-batch out.",
          "true",
          "DeepSpeed fills in the third: 32 samples, if there is one replica.",
          ("07: Their configs, checked",)),
    Claim("1.29", "config keys",
          "`pipeline.activation_checkpointing: true` turns activation checkpointing on.",
          "false",
          "Nobody reads that key, and everything is kept as before. The real one is "
          "`pipeline.activation_checkpoint_interval`.",
          ("07: Is it on? Count the bytes",)),
    Claim("1.30", "config keys",
          "`pipeline.partition_method` says how the layers are cut.",
          "false",
          "Ignored. It is an argument of `PipelineModule`, in Python.",
          ("07: The command, run",)),
]  # fmt: skip

LAUNCH = [
    Claim("1.9", "launch",
          "The number of stages is the number of GPUs.",
          "false",
          "GPUs = stages x replicas x tensor-parallel ranks.",
          ("02: Three numbers in a config", "07: Who sits beside whom?")),
    Claim("1.31", "launch",
          "`deepspeed --num_gpus=8 train.py --deepspeed_config ds_config.json` starts it.",
          "true",
          "It does, if train.py calls `deepspeed.add_config_arguments`.",
          ("07: The command, run",)),
    Claim("1.32", "launch",
          "`--pipeline_parallel_size 4 --model_parallel_size 2` set up the pipeline.",
          "false",
          "The launcher does not know them and hands them to your script, which stops: "
          "unrecognized arguments.",
          ("07: The command, run", "06: The launch line that does not exist")),
    Claim("1.35", "launch",
          "Try out the NCCL and MPI backends.",
          "false",
          "There is nothing to choose: `deepspeed.initialize` takes the backend of the device "
          "(NCCL on NVIDIA GPUs), and PyTorch comes without MPI. OpenMPI is a way to "
          "*start* the ranks.",
          ("07: The command, run",)),
]  # fmt: skip

RESULTS = [
    Claim("1.11", "results",
          "A measured table: GAS 8 to 64, throughput 112 to 215, memory 22 to 34 GB.",
          "unsupported",
          "No code, no model, no number of stages; and no synchronous pipeline of any length can "
          "produce these rows together.",
          ("02: A published table",)),
    Claim("1.12", "results",
          "So GAS = 32 is the optimum.",
          "unsupported",
          "At a fixed micro-batch size throughput never falls with GAS; at a fixed batch it may, "
          "but then memory falls, too. In the table it grows.",
          ("02: A published table", "02: Then why not a thousand?")),
    Claim("1.36", "results",
          "The loss curve should be that of a single GPU.",
          "mostly true",
          "Equal to six digits, if layers are seeded one by one and gradients are clipped by the "
          "norm of the whole model (ZeRO-1, or no clipping).",
          ("00: Is it real?",)),
    Claim("1.37", "results",
          "With 175 billion parameters: bubble 38 to 12 %, memory -63 %, 4.2 times as fast.",
          "unsupported",
          "That bubble makes it 1.42 times as fast, and no bubble at all 1.61 times. The rest of "
          "the 4.2 has no cause in the article.",
          ("07: The closing case", "06: The closing case")),
]  # fmt: skip

CLAIMS = [
    *DIAGNOSIS, *MICRO_BATCHES, *PARTITIONING, *ZERO, *CONFIG_KEYS, *LAUNCH, *RESULTS,
]  # fmt: skip

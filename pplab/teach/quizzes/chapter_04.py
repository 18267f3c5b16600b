"""Quiz of chapter 4: what goes with a pipeline, and who needs the memory."""

from pplab.core.memory import model_states
from pplab.teach.question import Choice, Mistake, Number, Option

_STATES = model_states(1e9, zero=1, replicas=4, precision="fp16")

QUESTIONS = (
    Choice(
        "Memory is short. You add ZeRO-3 to your pipeline of 4 stages. What happens?",
        (
            Option(
                "Each rank holds even less.",
                "it never gets that far: DeepSpeed stops with "
                '"ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism".',
                misconception="zero3-saves-more",
            ),
            Option(
                "It works, but talks more.",
                "so it would, on every micro-batch; that is why DeepSpeed refuses it at the start.",
                misconception="zero3-saves-more",
            ),
            Option(
                "DeepSpeed stops with an assertion.",
                "ZeRO-1 is what goes with a pipeline: it talks once a step.",
                right=True,
            ),
        ),
    ),
    Choice(
        'A config has `"pipeline": {"enabled": true, "stages": 4}`, and the model is an '
        "ordinary nn.Module. How many stages run?",
        (
            Option(
                "Four.",
                "no JSON key makes a pipeline: unknown keys are accepted and ignored, "
                "and every rank holds the whole model.",
                misconception="key-turns-it-on",
            ),
            Option(
                "None: every rank holds the whole model.",
                "Only a PipelineModule handed to "
                "deepspeed.initialize makes a pipeline; the keys are silently ignored.",
                right=True,
            ),
            Option(
                "It stops: the key does not exist.",
                "that would be kind. It ignores the key and says nothing.",
            ),
        ),
    ),
    Choice(
        "1F1B, equal stages. Which rank needs the most memory for activations?",
        (
            Option(
                "The last: it also holds the loss.",
                "the last rank holds one micro-batch, rank "
                "0 holds P of them; the loss is a number.",
                misconception="last-stage-most-memory",
            ),
            Option(
                "All the same.", "rank s holds P - s micro-batches: P on the first, 1 on the last."
            ),
            Option(
                "The first.",
                "Rank s holds P - s micro-batches until their gradients come back.",
                right=True,
            ),
        ),
    ),
    Number(
        "A stage of 1 billion parameters, fp16 with Adam (16 bytes a parameter), ZeRO-1 over 4 "
        "replicas. How many GB do parameters, gradients and optimizer take on one rank?",
        (_STATES.parameters + _STATES.gradients + _STATES.optimizer) / 1e9,
        "2 + 2 for parameters and gradients, whole; 12 for the optimizer, divided by 4.",
        (
            Mistake(16, "that is without ZeRO: the 12 bytes of the optimizer are divided by 4."),
            Mistake(
                4,
                "that divides everything by 4, which is ZeRO-3, and that does not go with a "
                "pipeline.",
                "zero3-saves-more",
            ),
            Mistake(
                5.5,
                "that divides the gradients as well, which is ZeRO-2: DeepSpeed refuses "
                "it with a pipeline.",
                "zero3-saves-more",
            ),
        ),
        unit="GB",
        tolerance=0.2,
    ),
    Choice(
        '`"pipeline": {"activation_checkpointing": true}` is in the config. What does it do?',
        (
            Option(
                "It turns recomputation on.",
                "the key DeepSpeed reads is "
                "`pipeline.activation_checkpoint_interval`; this one is ignored.",
                misconception="key-turns-it-on",
            ),
            Option(
                "It shrinks the bubble.",
                "recomputation would lengthen each backward pass and "
                "leave the bubble's share as it is; and this key is ignored.",
                misconception="checkpointing-shrinks-bubble",
            ),
            Option(
                "Nothing.",
                "DeepSpeed reads `pipeline.activation_checkpoint_interval`, and "
                "ignores keys it does not know.",
                right=True,
            ),
        ),
    ),
)

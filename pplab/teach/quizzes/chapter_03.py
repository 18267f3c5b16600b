"""Quiz of chapter 3: time is what is balanced, and where it is lost."""

from itertools import pairwise

from pplab.core.partition.deepspeed import partition_balanced
from pplab.teach.question import Choice, Mistake, Number, Option

_COSTS = (1.0, 4.0, 2.0, 2.0)
_BOUNDS = [int(b) for b in partition_balanced(list(_COSTS), 3)]
_ITS_WORST = max(sum(_COSTS[a:b]) for a, b in pairwise(_BOUNDS))

QUESTIONS = (
    Choice(
        'DeepSpeed\'s `partition_method="parameters"` gives every stage about the same number of '
        "parameters. Do the stages take the same time?",
        (
            Option(
                "Yes: work is proportional to parameters.",
                "an embedding holds many parameters "
                "and only looks rows up; attention works more the longer the context, with the "
                "same parameters.",
                misconception="parameters-are-time",
            ),
            Option(
                "Only by luck.",
                "Parameters are not time. Measure each layer, then cut.",
                right=True,
            ),
            Option(
                "Yes, if all layers have the same type.",
                "embedding, blocks and head are never "
                "of one type; even equal blocks differ where they recompute or shard.",
                misconception="parameters-are-time",
            ),
        ),
    ),
    Number(
        "Layers that take 1, 4, 2 and 2 are cut into three stages. How long does the slowest stage "
        "take in the best cut?",
        4,
        "1 | 4 | 2+2. No cut gets below the largest layer.",
        (
            Mistake(
                _ITS_WORST,
                "that is what DeepSpeed's balancer gives (1+4 | 2 | 2): it looks "
                "at the difference of the largest and the smallest stage, and is content too "
                "early.",
            ),
            Mistake(
                3,
                "9 units over three stages are 3 each, but no cut can be finer than the "
                "largest layer, 4.",
            ),
        ),
    ),
    Choice(
        'An article: "sort the layers by time, then cut". What do you think of it?',
        (
            Option(
                "Good: the cut becomes even.",
                "the layers would run in another order: a stage "
                "is a contiguous piece of the model, and sorting makes another model of it.",
            ),
            Option(
                "It destroys the model.",
                "Stages are contiguous pieces of the order in which layers run.",
                right=True,
            ),
            Option("It makes no difference.", "it changes which layer gets whose output."),
        ),
    ),
    Choice(
        "Three ranks of four show 40 % idle time, rank 2 shows 5 %. Where do you take layers away?",
        (
            Option("From the three idle ranks.", "they are idle because they wait for rank 2."),
            Option("From rank 2.", "Who does not wait is who is waited for.", right=True),
            Option(
                "Nowhere: raise M.",
                "more micro-batches shorten fill and drain; the slowest "
                "stage is slow with every one of them.",
            ),
        ),
    ),
    Choice(
        "The last of four stages takes 30 % longer than the others (M = 8). You move that extra "
        "work to the first stage. The step",
        (
            Option(
                "stays as it is: the sum is the same.",
                "the place matters: a slow last stage "
                "loses all of its excess (17.9 % of throughput), a slow first one part of it "
                "(12.0 %).",
                misconception="excess-lost-in-full",
            ),
            Option(
                "gets shorter.",
                "Part of the first stage's excess falls into time in which the others wait anyway.",
                right=True,
            ),
            Option(
                "gets longer: everybody waits for the first stage.",
                "only for its very first forward pass; 12.0 % of throughput lost, against 17.9 %.",
            ),
        ),
    ),
)

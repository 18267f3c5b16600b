"""Quiz of chapter 2: the batch triangle, memory, and where more micro-batches stop helping."""

from pplab.core.batch import resolve
from pplab.teach.question import Choice, Mistake, Number, Option

QUESTIONS = (
    Number(
        "8 GPUs, 4 stages, micro-batch size 2, gradient_accumulation_steps 8. How many "
        "micro-batches does one pipeline work through in a step?",
        8,
        "M is GAS and nothing else. The two replicas have eight each, of their own.",
        (
            Mistake(
                16,
                "8 GPUs and 4 stages make 2 replicas, and the replicas do not share their "
                "micro-batches: each pipeline sees GAS = 8 of them. 16 would be the "
                "micro-batches of both together (and, by chance, the samples of one).",
                "gas-times-replicas",
            ),
            Mistake(32, "32 is the number of *samples* of a step: 2 x 8 x 2 replicas."),
            Mistake(2, "that is the number of samples in a micro-batch."),
        ),
    ),
    Number(
        "train_batch_size 256, 8 GPUs, 4 stages, micro-batch size 2. Which "
        "gradient_accumulation_steps does DeepSpeed fill in?",
        float(resolve(train=256, micro=2, replicas=2).gas or 0),
        "256 = 2 x GAS x 2 replicas, so 64.",
        (
            Mistake(
                16, "that divides by 8 GPUs. The replicas count, and there are 8/4 = 2 of them."
            ),
            Mistake(128, "that forgets the two replicas: each gets half of the samples."),
        ),
    ),
    Choice(
        "1F1B on 4 stages. You double GAS from 8 to 16 and change nothing else. The memory for "
        "activations on rank 0",
        (
            Option(
                "doubles.",
                "that is GPipe. Under 1F1B rank 0 holds at most P = 4 micro-batches: "
                "each is gone before the fifth begins.",
                misconception="memory-grows-with-m",
            ),
            Option(
                "grows a little.",
                "it does not grow at all: rank 0 holds at most P = 4 micro-batches, of 8 as of 16.",
                misconception="memory-grows-with-m",
            ),
            Option(
                "stays the same.",
                "At most P - s micro-batches are held on rank s. So raise GAS "
                "until the bubble is small enough.",
                right=True,
            ),
            Option(
                "halves.",
                "twice as many micro-batches of the *same* size; half the size would halve it.",
            ),
        ),
    ),
    Choice(
        "You switch activation checkpointing on: each backward pass first repeats its forward "
        "pass. The bubble of your pipeline",
        (
            Option(
                "shrinks: more micro-batches fit.",
                "how many are held is decided by the "
                "schedule (P - s), not by the room there is. The share of idle time stays "
                "(P-1)/(M+P-1).",
                misconception="checkpointing-shrinks-bubble",
            ),
            Option(
                "stays the same share, of a longer step.",
                "F and B + F instead of F and B: the "
                "share (P-1)/(M+P-1) does not depend on them. What it buys is memory.",
                right=True,
            ),
            Option(
                "grows: backward passes are longer.",
                "idle time grows, and useful time grows just as much: the share stays.",
            ),
        ),
    ),
    Number(
        "Four equal stages. From which GAS on does doubling it bring less than 5 % more "
        "throughput?",
        29,
        "Throughput goes with M/(M+3); (2M/(2M+3)) / (M/(M+3)) falls below 1.05 for M > 28.5.",
        (
            Mistake(
                8,
                '8 is the rule "2P keeps the pipeline full": there the bubble is still '
                "27 %, and doubling brings 16 %.",
            ),
            Mistake(57, "57 is where the *bubble* falls to 5 %; doubling stops helping earlier."),
            Mistake(
                60,
                "60 is where (P-1)/M falls to 5 %: that is idle over useful, and it asks "
                "another question.",
                "overhead-is-bubble",
            ),
        ),
        tolerance=0.5,
    ),
)

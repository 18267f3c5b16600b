"""Quiz of chapter 0: reading a timeline, and a run that fails."""

from pplab.teach.question import Choice, Mistake, Number, Option

QUESTIONS = (
    Choice(
        "What is the difference between a rank and a stage?",
        (
            Option(
                "None: two words for one thing.",
                "the words part as soon as there are copies "
                "of the pipeline: then several ranks hold the same stage.",
            ),
            Option(
                "A rank is a process; a stage is the part of the model it holds.",
                "With two copies of a four-stage pipeline there are eight ranks and four stages.",
                right=True,
            ),
            Option(
                "A stage is a process; a rank is one of its layers.",
                "it is the other way round: processes are ranks.",
            ),
        ),
    ),
    Choice(
        "Rank 3 of four is idle at the beginning of a step. What does it wait for?",
        (
            Option(
                "The gradient of micro-batch 0.",
                "gradients come from *behind*; a rank that "
                "has not run a forward pass has no use for one, and rank 3 is the last.",
            ),
            Option(
                "The other ranks, so that all start together.",
                "nobody has to start together: rank 0 starts at once.",
            ),
            Option(
                "The activation of micro-batch 0, which has to pass ranks 0, 1 and 2 first.",
                "Three forward passes come before its first one.",
                right=True,
            ),
        ),
    ),
    Choice(
        "Under 1F1B, rank 0 of four has run F0, F1, F2 and F3 and stops. What does it wait for?",
        (
            Option(
                "The gradient of micro-batch 0, which comes back through ranks 3, 2 and 1.",
                "Its next operation is B0.",
                right=True,
            ),
            Option(
                "The activation of micro-batch 4.",
                "rank 0 reads its inputs itself: nobody sends it activations.",
            ),
            Option(
                "The optimizer step.",
                "the optimizer runs once, after the last backward pass of the step.",
            ),
        ),
    ),
    Number(
        "1F1B with four stages and eight micro-batches: how many forward passes does rank 1 run "
        "before its first backward pass?",
        3,
        "Rank s runs P - s of them: 4, 3, 2, 1. The last rank turns round at once.",
        (
            Mistake(4, "that is rank 0, which runs P = 4 of them; rank s runs P - s."),
            Mistake(
                2, "two it runs ahead of its neighbour, and one more comes before B0: F0 F1 F2 B0."
            ),
            Mistake(8, "that is GPipe: all forward passes first."),
        ),
    ),
    Choice(
        'Three ranks report "connection closed by peer". Where do you look?',
        (
            Option(
                "At the network.",
                "the network is rarely the cause: a connection also closes "
                "when the process behind it has died.",
            ),
            Option(
                "At the first of the three.",
                "all three tell the same thing: somebody else went away.",
            ),
            Option(
                "At the rank that does not report it.",
                "Its failure came first; theirs are consequences.",
                right=True,
            ),
        ),
    ),
)

"""Quiz of chapter 5: what each schedule buys, and what it pays with."""

from pplab.teach.question import Choice, Mistake, Number, Option

QUESTIONS = (
    Choice(
        "What does 1F1B have over GPipe?",
        (
            Option(
                "A smaller bubble.",
                "the bubbles are equal: (P-1)/(M+P-1) both. Put one picture over the other.",
                misconception="1f1b-smaller-bubble",
            ),
            Option(
                "Fewer messages.",
                "both send every activation once down and every gradient once up.",
            ),
            Option("It holds fewer activations.", "P - s on rank s, instead of M.", right=True),
        ),
    ),
    Choice(
        "ZB-H1 splits the backward pass into B and W. Why can W wait, and B cannot?",
        (
            Option("W is shorter.", "they take about the same time."),
            Option(
                "The rank above needs B's result to go on; W's is needed by the optimizer, at "
                "the end of the step.",
                "So W's fill what used to be idle time.",
                right=True,
            ),
            Option(
                "B needs the weights, W does not.",
                "B needs the weights, true, but they do not change before the optimizer step.",
            ),
        ),
    ),
    Choice(
        "A zero-bubble schedule (ZB-H2). When is a rank idle?",
        (
            Option(
                "Never: that is what the name says.",
                "the name speaks of the time between a "
                "rank's own first and last operation. Rank 3 still starts three forward passes "
                "after rank 0.",
                misconception="zero-bubble-zero-idle",
            ),
            Option(
                "Before its first and after its last operation only.",
                "Starts and ends stay "
                "staggered; the next step may begin there, if the optimizer lets it.",
                right=True,
            ),
            Option(
                "While it waits for messages, between operations.",
                "exactly there it is not: "
                "its operations follow each other without a gap, if messages are quick.",
            ),
        ),
    ),
    Choice(
        "Are PipeDream's gradients wrong?",
        (
            Option(
                "Yes: forward and backward pass see different weights.",
                "that is what *weight "
                "stashing* prevents: the backward pass takes out the very weights that the "
                "forward pass used.",
                misconception="pipedream-wrong-gradients",
            ),
            Option(
                "Yes, but it averages out.",
                "there is nothing to average out: each gradient is "
                "exact, for weights that are a few updates old.",
                misconception="pipedream-wrong-gradients",
            ),
            Option(
                "No: exact, for weights that are a few updates old.",
                "The stashed ones. What suffers is how well the step fits the weights of now.",
                right=True,
            ),
        ),
    ),
    Number(
        "PipeDream on four stages: how many versions of its weights does rank 0 hold?",
        4,
        "One for each micro-batch that is under way: P - s, so 4, 3, 2, 1.",
        (
            Mistake(1, "one version is what flushing schedules need, at the price of the bubble."),
            Mistake(2, "two is PipeDream-2BW, which updates every P micro-batches only."),
        ),
    ),
)

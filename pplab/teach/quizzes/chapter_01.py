"""Quiz of chapter 1: what the bubble is, what it is not, and who causes it."""

from pplab.core.batch import ideal_bubble
from pplab.teach.question import Choice, Mistake, Number, Option

QUESTIONS = (
    Number(
        "P = 8 equal stages, M = 8 micro-batches, 1F1B. What is the bubble, in per cent?",
        100 * ideal_bubble(8, 8),
        "(P-1)/(M+P-1) = 7/15. M = P is a floor, not a target.",
        (
            Mistake(
                100 * 7 / 8,
                "that is (P-1)/M = 7/8, idle over *useful* time. The bubble is "
                "idle over *total*: below the line, the fill belongs in as well.",
                "overhead-is-bubble",
            ),
            Mistake(100 * 8 / 15, "that is M/(M+P-1): the useful share. The bubble is the rest."),
            Mistake(50, "there are P - 1 idle slots, not P: 7 of 15."),
        ),
        unit="%",
        tolerance=0.6,
    ),
    Choice(
        "The same stages and micro-batches: which has the smaller bubble, GPipe or 1F1B?",
        (
            Option(
                "1F1B, because it starts its backward passes earlier.",
                "an earlier backward "
                "pass does not end the step earlier: both take (M+P-1)(F+B). What 1F1B saves "
                "is memory.",
                misconception="1f1b-smaller-bubble",
            ),
            Option(
                "GPipe, because it never switches.",
                "switching costs nothing here; both take (M+P-1)(F+B).",
            ),
            Option(
                "Neither.",
                "To the last digit. 1F1B holds P - s activations instead of M.",
                right=True,
            ),
        ),
    ),
    Choice(
        "The first of four stages takes 30 % longer than the others, M = 8. Compared with a slow "
        "*last* stage, throughput falls",
        (
            Option(
                "as much: the slowest stage sets the pace, wherever it is.",
                "it does set the "
                "pace in the middle of the step, but part of a first stage's excess falls into "
                "time in which the others would wait anyway: 12.0 % against 17.9 %.",
                misconception="excess-lost-in-full",
            ),
            Option("less.", "12.0 % against 17.9 %. The two come closer as M grows.", right=True),
            Option(
                "more: everybody waits for the first.",
                "everybody waits for it once, at the "
                "beginning; 12.0 % against 17.9 % for the last.",
            ),
        ),
    ),
    Choice(
        "A monitor shows 100 % utilisation on all GPUs of a pipeline. Can there be a bubble?",
        (
            Option(
                "No: 100 % busy is 0 % idle.",
                "the monitor counts a GPU as busy while it spins "
                "in a receive. Idle, for us, is time without useful work.",
                misconception="busy-means-no-bubble",
            ),
            Option(
                "Only a small one.",
                "of any size: the monitor does not tell work from waiting inside a receive.",
                misconception="busy-means-no-bubble",
            ),
            Option(
                "Yes, a large one too.",
                "A GPU that waits inside a receive counts as busy.",
                right=True,
            ),
        ),
    ),
    Choice(
        "Step times in ms: 900, 310, 305, 308, 306. What do you report?",
        (
            Option(
                "426 ms, the mean.",
                "the first step allocates memory and agrees on shapes; no "
                "later step does. One such step spoils the mean.",
                misconception="warm-up-is-slow",
            ),
            Option(
                "A pipeline that is slow and becomes faster.",
                "it does not become faster: the "
                "first step does other work besides (allocating, agreeing on shapes).",
                misconception="warm-up-is-slow",
            ),
            Option(
                "307 ms, the median without the first.",
                "The first step is a different thing: report it apart, if at all.",
                right=True,
            ),
        ),
    ),
)

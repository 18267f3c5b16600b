"""Quiz of chapter 6: from a slow job to its cause, and what a number in an article is worth."""

from pplab.core.batch import least_micro_batches
from pplab.teach.question import Choice, Mistake, Number, Option

QUESTIONS = (
    Number(
        "Four equal stages. How many micro-batches does it take, at least, to bring the bubble "
        "down to 14 % or less?",
        least_micro_batches(4, 0.14),
        "(P-1)(1-b)/b = 18.4, so 19: 3/22 = 13.6 %.",
        (
            Mistake(
                22,
                "that solves (P-1)/M = 14 %, which is idle over useful. With "
                "(P-1)/(M+P-1), 19 will do.",
                "overhead-is-bubble",
            ),
            Mistake(18, "close: 3/21 is 14.3 %."),
            Mistake(8, '"2P keeps the pipeline full" is a saying: at M = 8 the bubble is 27 %.'),
        ),
        tolerance=0.4,
    ),
    Choice(
        "A job takes 30 s for its first step and 2 s for each later one. Where do you begin?",
        (
            Option(
                "At the first step: it is the slowest.",
                "a slow first step is allocation, "
                "compilation, agreeing on shapes: it happens once.",
                misconception="warm-up-is-slow",
            ),
            Option(
                "At a later step's timeline.",
                "Measure a typical step, name its parts, work on the largest.",
                right=True,
            ),
            Option("At GAS.", "perhaps; first measure where a typical step's time goes."),
        ),
    ),
    Choice(
        "The breakdown of a step: useful 50 %, fill and drain 9 %, imbalance 4 %, messages 30 %. "
        "You have one afternoon.",
        (
            Option(
                "Raise GAS: the bubble is idle time.",
                "that works on the 9 %. Under 1F1B late "
                "messages are late again with every micro-batch, so GAS leaves the 30 %.",
            ),
            Option("Move the cuts.", "that works on the 4 %."),
            Option(
                "Work on the messages: placement of ranks, eager warm-up, message size.",
                "The largest loss first; here it is not what people call the bubble.",
                right=True,
            ),
        ),
    ),
    Choice(
        'An article: "GAS 32 to 64: throughput falls from 215 to 198 samples/s, and memory grows '
        'from 28 to 34 GB" (1F1B, the same micro-batch size). What do you say?',
        (
            Option(
                "Plausible: more micro-batches need more memory.",
                "not under 1F1B: rank s holds P - s micro-batches, of 32 as of 64.",
                misconception="memory-grows-with-m",
            ),
            Option(
                "It cannot be.",
                "At a fixed micro-batch size throughput only rises with M, and "
                "1F1B's memory does not depend on it.",
                right=True,
            ),
            Option(
                "Plausible: scheduling overhead.",
                "overhead per micro-batch is constant, so throughput does not fall with M.",
            ),
        ),
    ),
    Choice(
        "nvidia-smi shows 98 % on all ranks before your change and 98 % after it. What do you "
        "conclude?",
        (
            Option(
                "The change brought nothing.",
                "the number cannot show it: a GPU that waits in a receive counts as busy.",
                misconception="busy-means-no-bubble",
            ),
            Option(
                "Nothing: compare step times and useful time.",
                "Utilisation counts waiting in a receive as work.",
                right=True,
            ),
            Option(
                "There is no bubble to remove.",
                "it says nothing about the bubble: spinning receives count as busy.",
                misconception="busy-means-no-bubble",
            ),
        ),
    ),
)

"""Quiz of chapter 7: what an article's numbers, formulas and keys are worth."""

from pplab.teach.question import Choice, Mistake, Number, Option

_BEFORE, _AFTER = 0.38, 0.12

QUESTIONS = (
    Number(
        "The bubble falls from 38 % to 12 %, and nothing else changes. How many times as fast is "
        "a step?",
        (1 - _AFTER) / (1 - _BEFORE),
        "Useful time stays: (1 - 0.12)/(1 - 0.38) = 1.42. A story of 4.2 times lacks a factor of "
        "three.",
        (
            Mistake(
                _BEFORE / _AFTER,
                "that divides the bubbles, 38/12. The step is useful time over (1 - bubble): "
                "divide the useful shares.",
            ),
            Mistake(
                1 + _BEFORE - _AFTER,
                "that adds the 26 points; a step shrinks by a ratio, of the useful shares 0.88 "
                "and 0.62.",
            ),
            Mistake(4.2, "that is the article's own number; the bubble explains 1.42 of it."),
        ),
        tolerance=0.03,
    ),
    Choice(
        'A config has `"elastic_pipeline": true` at the top level. What does DeepSpeed do?',
        (
            Option("Nothing, and it says nothing.", "It reads top-level keys by name.", right=True),
            Option(
                "It balances the stages while it runs.",
                "there is no such feature in any version; the key is silently ignored.",
                misconception="key-turns-it-on",
            ),
            Option(
                "It stops: the key does not exist.",
                "that would be kind. It is strict inside some sections (zero_optimization), not at "
                "the top level.",
            ),
        ),
    ),
    Choice(
        "An article's rule: GAS = max(2S, batch // 2S) for S stages. Which way does it go?",
        (
            Option(
                "More stages, more micro-batches, as the bubble needs.",
                "for a batch of 1024 it gives 256, 128, 64 and 32 for S = 2, 4, 8 and 16: fewer "
                "and fewer, while the bubble needs more and more.",
            ),
            Option(
                "It does not depend on the stages.",
                "S stands in both parts of it.",
            ),
            Option(
                "More stages, fewer micro-batches: the wrong way.",
                "256, 128, 64, 32 for S = 2, 4, 8, 16 and a batch of 1024.",
                right=True,
            ),
        ),
    ),
    Choice(
        "How do you find out whether activation checkpointing is on?",
        (
            Option(
                "By reading the config.",
                "the config is what somebody wished for; the key may be one that nobody reads.",
                misconception="key-turns-it-on",
            ),
            Option(
                "By counting the bytes that are kept for a micro-batch.",
                "Whether a setting does anything shows in bytes, messages and seconds.",
                right=True,
            ),
            Option(
                "By the bubble: it must have become smaller.",
                "checkpointing leaves the bubble's share as it is; memory is what changes.",
                misconception="checkpointing-shrinks-bubble",
            ),
        ),
    ),
    Choice(
        '"We measured a GPU utilisation of 97 %, so the pipeline was full." What is missing?',
        (
            Option(
                "Useful time per rank: utilisation counts waiting.",
                "A GPU that spins in a receive counts as busy.",
                right=True,
            ),
            Option(
                "Nothing: 97 % busy leaves 3 % of bubble.",
                "busy is not useful: a GPU that spins in a receive counts as busy.",
                misconception="busy-means-no-bubble",
            ),
            Option(
                "The utilisation of the processors.",
                "it would tell about the data loader; the bubble is about useful time per rank.",
            ),
        ),
    ),
)

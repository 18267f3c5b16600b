"""The rules, one subject a file. A rule is a generator: it takes a Job and yields findings.

To add one, write it in the file of its subject (or copy the nearest file) and list it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pplab.advise.check.finding import Finding
from pplab.advise.check.job import Job
from pplab.advise.check.rules import (
    auto,
    batch,
    boundary,
    data,
    engine,
    keys,
    launch,
    layout,
    model,
    optimizer,
    pipeline,
    plain,
    precision,
    reading,
    resume,
    sections,
    switched,
    version,
    zero,
)

Rule = Callable[[Job], Iterator[Finding]]

RULES: tuple[Rule, ...] = tuple(
    rule
    for file in (
        reading, keys, sections, pipeline, auto, batch, layout, zero, precision, optimizer, engine,
        plain, switched, model, data, launch, boundary, resume, version,
    )
    for rule in file.RULES
)  # fmt: skip

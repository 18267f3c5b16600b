"""What the text of the file says beyond its values: duplicate keys, and what is not strict JSON."""

from __future__ import annotations

from collections.abc import Iterator

from pplab.advise.check.finding import Finding
from pplab.advise.check.job import Job
from pplab.advise.check.reader import dotted

WHAT = {
    "comment": "a comment",
    "comma": "a comma too many, or one that is missing at the end of a line",
    "quotes": "a key or text without double quotes",
    "bom": "an invisible byte order mark at its start",
    "braces": "no { } around all of it",
}


def duplicate_keys(job: Job) -> Iterator[Finding]:
    """Two keys of the same name in one section."""
    for path, first, second in job.document.duplicates:
        yield Finding(
            "duplicate-key",
            "error",
            dotted(path),
            f'"{path[-1]}" is written twice, in lines {first} and {second}: DeepSpeed stops with '
            '"Duplicate keys in DeepSpeed config".',
            "Keep the one you mean (the mended file keeps the last).",
            second,
            ("runtime/config_utils.py:211",),
        )


def not_strict_json(job: Job) -> Iterator[Finding]:
    """Liberties that hjson allows and other readers do not."""
    if job.framework:
        return  # GPT-NeoX reads its files as YAML, which allows all of it
    for code, line in job.document.liberties.items():
        if code == "words":
            yield Finding(
                "python-word",
                "error",
                "",
                f"Line {line} has True, False or None as Python writes them: DeepSpeed's reader "
                "takes the rest of the line for a piece of text.",
                "Write true, false or null; the mended file does.",
                line,
                ("runtime/tensor_parallel/init_utils.py:24",),
            )
            continue
        yield Finding(
            "byte-order-mark" if code == "bom" else "not-strict-json",
            "risky",
            "",
            f"The file has {WHAT[code]} (line {line}). DeepSpeed reads it (with hjson); "
            "transformers, Accelerate and any script with json.load stop at it.",
            "Write strict JSON; the mended file is.",
            line,
            ("runtime/tensor_parallel/init_utils.py:24",),
        )


RULES = (duplicate_keys, not_strict_json)

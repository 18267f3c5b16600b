"""Files that are no DeepSpeed config, and where the config may be that they stand for.

Accelerate's YAML, the YAML of a training script, the JSON of one: a file beside them, or a section
in them, is what DeepSpeed gets.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

#: Kind of a text that cannot be read -> what to do; the others can only be mended.
ADVICE = {
    "placeholder": "Fill it in, or check the file that the script makes of it.",
    "yaml": "Write the DeepSpeed part as { ... } with quoted keys.",
    "accelerate": "Save accelerator.state.deepspeed_plugin.deepspeed_config as JSON, and check "
    "that with --no-pipeline.",
    "other-file": "Check that file; with --no-pipeline unless your script makes a PipelineModule.",
    "": "Check another file, or mend this one.",
}
_NAMES = re.compile(
    r"^\s*(?:deepspeed|deepspeed_config|deepspeed_config_file)\s*:\s*[\"']?([^\s\"'#{]+\.json)",
    re.MULTILINE,
)
_ACCELERATE = re.compile(r"^(?:deepspeed_config\s*:\s*$|distributed_type\s*:)", re.MULTILINE)


def block_yaml(text: str) -> tuple[str, int, str] | None:
    """(sentence, line, kind) for block YAML, which hjson would take for pieces of text."""
    rows = [
        (number, row)
        for number, row in enumerate(text.splitlines(), 1)
        if row.strip() and not row.lstrip().startswith(("#", "//"))
    ]
    first = rows[0][1].strip() if rows else ""
    block = re.match(r"(---|[\w.\-\"']+\s*:(\s|$)|- )", first)
    if not rows or not block or first.startswith(("{", "[")) or first.endswith(("{", "[")):
        return None
    nested = next(
        (n for (n, row), (_, after) in pairwise(rows)
         if row.rstrip().endswith(":") and len(after) - len(after.lstrip()) > 0),
        None,
    )  # fmt: skip
    if nested is None and not first.startswith("---") and "," in first:
        return None
    named = _NAMES.search(text)
    if named:
        line = text.count("\n", 0, named.start(1)) + 1
        sentence = f"This is YAML of another program; DeepSpeed is given {named[1]}."
        return sentence, line, "other-file"
    place = nested or rows[0][0]
    if _ACCELERATE.search(text):
        sentence = (
            "This is YAML for Accelerate, which makes DeepSpeed's config of its deepspeed_config "
            "section, and never a pipeline."
        )
        return sentence, place, "accelerate"
    sentence = (
        "This is YAML, and DeepSpeed reads JSON (hjson): it would take a nested line like "
        '"stage: 1" for a piece of text.'
    )
    return sentence, place, "yaml"


def pointer(config: dict[str, Any]) -> str:
    """Where the DeepSpeed config is that another program's file stands for, as a sentence or ""."""
    for key in ("deepspeed", "deepspeed_config", "ds_config", "deepspeed_config_file"):
        value = config.get(key)
        if isinstance(value, str) and value.strip():
            return f'The DeepSpeed config is the file it names in "{key}": {value}.'
        if isinstance(value, dict) and value:
            return f'The DeepSpeed config is its section "{key}": check that by itself.'
    return ""

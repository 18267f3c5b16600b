"""Which values a field takes: pydantic's lax mode, as DeepSpeed's models use it.

Lax means that "true", 1 and "5e8" are taken for a boolean, a whole number and so on, so that a
checker which simply compares types would raise false alarms. ``refusal`` says in words why a value
is not taken; tests compare it with the installed models. Two things happen before: the word "auto"
is dropped with its key (``runtime/config_utils.py:50``), and null is taken only by optional fields.
"""

from __future__ import annotations

import json
import math
from typing import Any

#: What counts as a boolean when written as text.
TRUE, FALSE = {"1", "on", "t", "true", "y", "yes"}, {"0", "off", "f", "false", "n", "no"}


def refusal(value: Any, about: dict[str, Any]) -> str:
    """Why a field described by `about` (see ``derive``) refuses a value; "" when it takes it.

    Sections within sections are not looked into.
    """
    kind = about["type"]
    if value is None:
        return "" if about.get("optional") or kind == "any" else f"must be {_noun(kind)}, not null"
    if isinstance(kind, dict) and "model" in kind:
        return "" if isinstance(value, dict) else f"must be a section {{...}}, not {shown(value)}"
    if isinstance(kind, dict) and "list of" in kind:
        return _items(value, kind["list of"])
    if isinstance(kind, dict):
        return _choice(value, kind["one of"])
    number: float | None = None
    match kind:
        case "bool":
            taken = _is_bool(value)
        case "int":
            number = whole(value)
            taken = number is not None
        case "float":
            number = real(value)
            taken = number is not None
        case "str":
            taken = isinstance(value, str)
        case "list":
            taken = isinstance(value, list)
        case "dict":
            taken = isinstance(value, dict)
        case _:
            taken = True
    if not taken:
        return f"must be {_noun(kind)}, not {shown(value)}"
    return _bounds(number, about) if number is not None else ""


def _items(value: Any, kind: Any) -> str:
    if not isinstance(value, list):
        return f"must be a list, not {shown(value)}"
    bad = next((why for item in value if (why := refusal(item, {"type": kind}))), "")
    return f"is a list, and an item {bad}" if bad else ""


def _bounds(number: float, about: dict[str, Any]) -> str:
    words = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
    holds = {
        "gt": lambda limit: number > limit,
        "ge": lambda limit: number >= limit,
        "lt": lambda limit: number < limit,
        "le": lambda limit: number <= limit,
    }
    for name, word in words.items():
        if name in about and not holds[name](about[name]):
            return f"must be {word} {about[name]}, not {number}"
    return ""


def _choice(value: Any, choices: list[Any]) -> str:
    if all(isinstance(choice, int) for choice in choices):
        number = whole(value)
        if number is not None and number in choices:
            return ""
    elif isinstance(value, str) and value in choices:
        return ""
    return f"must be one of {', '.join(map(str, choices))}, not {shown(value)}"


def _is_bool(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() in TRUE | FALSE
    return isinstance(value, (bool, int, float)) and value in (0, 1)


def truth(value: Any) -> bool:
    """What a boolean field makes of a value that it takes."""
    return value.lower() in TRUE if isinstance(value, str) else bool(value)


def whole(value: Any) -> int | None:
    """The whole number that a value stands for (5e8, "4", true); None when it stands for none."""
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() else None
    if isinstance(value, str):
        text = value.strip()
        sign = text[1:] if text[:1] in "+-" else text
        head, dot, tail = sign.partition(".")
        digits = head.replace("_", "")
        zeros = not dot or (tail and set(tail) == {"0"})
        if head.isascii() and digits.isdigit() and zeros:
            return int(text.partition(".")[0].replace("_", ""))
    return None


def real(value: Any) -> float | None:
    """The number that a value stands for; None when it stands for none."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def shown(value: Any) -> str:
    """A value as JSON would write it, cut short."""
    words = {True: "true", False: "false", None: "null"}
    if isinstance(value, bool) or value is None:
        return words[value]
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _noun(kind: Any) -> str:
    nouns = {
        "bool": "true or false",
        "int": "a whole number",
        "float": "a number",
        "str": "text",
        "list": "a list",
        "dict": "a section {...}",
    }
    if isinstance(kind, dict):
        return "a section {...}" if "model" in kind else "a list" if "list of" in kind else "a word"
    return nouns.get(kind, "something else")

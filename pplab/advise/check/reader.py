"""Reads JSON with the line of every key, and what people put into JSON that is not JSON.

DeepSpeed reads its config with *hjson* (``runtime/tensor_parallel/init_utils.py:23``), which takes
comments, trailing commas, keys and words without quotes. Other tools that open the same file
(transformers, Accelerate, a script's ``json.load``) do not. So all of that is read here too, and
noted; what cannot be meant as a config is refused with its line. Nothing here recurses deeper than
``DEEPEST``, and files beyond ``LARGEST`` are refused unread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pplab.advise.check.other import block_yaml

DEEPEST, LARGEST = 60, 2_000_000

Path = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t\r\n\f\v\u00a0]+")
_COMMENT = re.compile(r"#[^\n]*|//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'')
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?=[\s,\]}:#/]|$)")
_WORD = re.compile(r"[^\s,\[\]{}:\"'#]+")
_BARE_KEY = re.compile(r"[^\s,\[\]{}:\"'#]+(?=\s*:)")
_ROOT_KEY = re.compile(r"(?:\"[^\"\n]*\"|'[^'\n]*'|[A-Za-z_][\w\-]*)\s*:")
_TEMPLATE = re.compile(
    r"\$\{[^}]*\}|\{\{[^}]*\}\}|\$\w+|<[A-Za-z][\w \-]*>|%\([^)]*\)s|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b"
)
#: Python's and YAML's way to write what JSON writes otherwise.
OTHER_WORDS = {"True": True, "False": False, "None": None}


class ReadError(ValueError):
    """Text that is no config; `line` counts from 1, 0 when there is no place. `kind` is a code."""

    def __init__(self, sentence: str, line: int = 0, kind: str = "unreadable") -> None:
        super().__init__(f"line {line}: {sentence}" if line else sentence)
        self.sentence, self.line, self.kind = sentence, line, kind


@dataclass
class Document:
    """A parsed text: the value, the line of each key, and what is not strict JSON about it.

    lines:      path of a key or item -> line
    duplicates: (path, line of the first, line of the second)
    liberties:  line of the first "comment", "comma", "quotes", "words" (True for true), "bom" and
                "braces" (none around all of it)
    """

    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    duplicates: list[tuple[Path, int, int]] = field(default_factory=list)
    liberties: dict[str, int] = field(default_factory=dict)


def read(text: str) -> Document:
    """Parse a config; raises ReadError with a sentence and a line."""
    if len(text) > LARGEST:
        raise ReadError(
            f"{len(text) / 1e6:.1f} MB of text: a DeepSpeed config has a few kilobytes, so this is "
            "another file."
        )
    document = Document()
    if text.startswith("\ufeff"):
        document.liberties["bom"] = 1
        text = text[1:]
    if not text.strip():
        raise ReadError("The file is empty.", 1)
    binary = next((i for i, c in enumerate(text[:4096]) if c < " " and c not in "\t\r\n\f\v"), None)
    if binary is not None:
        raise ReadError("This is binary data, not text.", text.count("\n", 0, binary) + 1)
    yaml = block_yaml(text)
    if yaml:
        raise ReadError(*yaml)
    parser = _Parser(text, document)
    document.value = parser.document()
    if not isinstance(document.value, dict):
        kind = "list" if isinstance(document.value, list) else "single value"
        raise ReadError(f"The file holds a {kind}; a config is a section {{ ... }}.", 1)
    return document


class _Parser:
    """One pass over the text; `at` is where it stands."""

    def __init__(self, text: str, document: Document) -> None:
        self.text, self.out, self.at = text, document, 0
        self.newlines = [i for i, c in enumerate(text) if c == "\n"]
        self.rows = text.split("\n")
        self.crooked: list[tuple[int, int, Path]] = []  # (opened, closed, path): not in line

    def document(self) -> Any:
        """The value, with nothing after it."""
        self.blank()
        if _ROOT_KEY.match(self.text, self.at):
            self.liberty("braces")
            return self.section((), 0, bare=True)
        value = self.value((), 0)
        self.blank()
        if self.at < len(self.text):
            raise self.error(f"There is more after the end of the config: {self.seen()}")
        return value

    # -- places -------------------------------------------------------------------------------

    @property
    def line(self) -> int:
        """Line of the place reached, from 1."""
        low, high = 0, len(self.newlines)
        while low < high:
            middle = (low + high) // 2
            if self.newlines[middle] < self.at:
                low = middle + 1
            else:
                high = middle
        return low + 1

    def error(self, sentence: str, kind: str = "unreadable") -> ReadError:
        """A ReadError at this place."""
        return ReadError(f"{sentence}.", self.line, kind)

    def seen(self) -> str:
        """The text at this place, cut short."""
        rest = self.text[self.at : self.at + 30].split("\n")[0].strip()
        return repr(rest) if rest else "the end of the file"

    def liberty(self, code: str) -> None:
        """Remember that this is not strict JSON."""
        self.out.liberties.setdefault(code, self.line)

    def indent(self, line: int) -> int:
        """Blanks at the start of a line."""
        row = self.rows[line - 1]
        return len(row) - len(row.lstrip())

    def taker(self, opened: int) -> str:
        """Which section took the brace that was to close this one, by how far it is indented."""
        for other, closed, path in self.crooked:
            row = self.rows[closed - 1].lstrip()
            if path and row.startswith("}") and self.indent(closed) == self.indent(opened):
                return (
                    f" The }} of line {closed} stands under it and closes that of line {other} "
                    f'("{path[-1]}"), which lacks its own.'
                )
        return ""

    # -- pieces -------------------------------------------------------------------------------

    def blank(self) -> None:
        """Skip blanks and comments."""
        while True:
            space = _SPACE.match(self.text, self.at)
            if space:
                self.at = space.end()
            comment = _COMMENT.match(self.text, self.at)
            if not comment:
                return
            self.liberty("comment")
            self.at = comment.end()

    def value(self, path: Path, depth: int) -> Any:
        """A value of any kind."""
        if depth > DEEPEST:
            raise self.error(f"Sections lie more than {DEEPEST} deep")
        char = self.text[self.at : self.at + 1]
        if char == "{" and not self.text.startswith("{{", self.at):
            return self.section(path, depth)
        if char == "[":
            return self.list(path, depth)
        if char in ("'", '"'):
            return self.string()
        number = _NUMBER.match(self.text, self.at)
        if number:
            self.at = number.end()
            word = number[0]
            return int(word) if re.fullmatch(r"-?\d+", word) else float(word)
        return self.word(path)

    def word(self, path: Path) -> Any:
        """true, false, null; anything else is a mistake, and said what kind of."""
        match = _WORD.match(self.text, self.at)
        word = match[0] if match else ""
        if word in ("true", "false", "null"):
            self.at += len(word)
            return {"true": True, "false": False, "null": None}[word]
        key = f' after "{path[-1]}"' if path else ""
        if word in OTHER_WORDS:
            self.liberty("words")
            self.at += len(word)
            return OTHER_WORDS[word]
        template = _TEMPLATE.match(self.text, self.at)
        if template:
            raise self.error(
                f"{template[0]}{key} is a placeholder that was never filled in", "placeholder"
            )
        if word in ("NaN", "Infinity", "-Infinity"):
            raise self.error(f"{word}{key} is no JSON number")
        if not word:
            raise self.error(f"A value is missing{key}; here is {self.seen()}")
        raise self.error(f"{self.seen()}{key} is text without quotes, and takes its whole line")

    def string(self) -> str:
        """A quoted string."""
        match = _STRING.match(self.text, self.at)
        if not match:
            raise self.error(f"A quote is never closed: {self.seen()}")
        raw = match[0]
        if raw[0] == "'":
            self.liberty("quotes")
            raw = '"' + raw[1:-1].replace('"', '\\"').replace("\\'", "'") + '"'
        try:
            found = json.loads(raw, strict=False)
        except ValueError as error:
            raise self.error(f"{self.seen()} is not a valid string") from error
        self.at = match.end()
        return found

    def key(self) -> str:
        """A key, quoted or not."""
        if self.text[self.at : self.at + 1] in ("'", '"'):
            return self.string()
        bare = _BARE_KEY.match(self.text, self.at)
        if not bare:
            raise self.error(f"A key was expected, here is {self.seen()}")
        self.liberty("quotes")
        self.at = bare.end()
        return bare[0]

    def section(self, path: Path, depth: int, bare: bool = False) -> dict[str, Any]:
        """{ key: value, ... }; `bare` for a whole text without the braces."""
        opened = self.line
        found: dict[str, Any] = {}
        self.at += 0 if bare else 1
        while True:
            self.blank()
            if self.at >= len(self.text):
                if bare:
                    return found
                sentence = f"The {{ of line {opened} is never closed.{self.taker(opened)}"
                raise ReadError(sentence, opened)
            if self.text[self.at] == "}" and not bare:
                if self.indent(self.line) != self.indent(opened):
                    self.crooked.append((opened, self.line, path))
                self.at += 1
                return found
            line, name = self.line, self.key()
            here = (*path, name)
            self.blank()
            if self.text[self.at : self.at + 1] != ":":
                raise self.error(f'A colon is missing after "{name}", here is {self.seen()}')
            self.at += 1
            self.blank()
            if name in found:
                self.out.duplicates.append((here, self.out.lines[here], line))
            self.out.lines[here] = line
            found[name] = self.value(here, depth + 1)
            self.separator("}", f'after "{name}"')

    def list(self, path: Path, depth: int) -> list[Any]:
        """[ value, ... ]"""
        opened = self.line
        found: list[Any] = []
        self.at += 1
        while True:
            self.blank()
            if self.at >= len(self.text):
                raise ReadError(f"The [ of line {opened} is never closed.", opened)
            if self.text[self.at] == "]":
                self.at += 1
                return found
            here = (*path, len(found))
            self.out.lines[here] = self.line
            found.append(self.value(here, depth + 1))
            self.separator("]", f"after item {len(found)}")

    def separator(self, closing: str, where: str) -> None:
        """A comma; none is needed before the end or, for hjson, at the end of a line."""
        line = self.line
        self.blank()
        char = self.text[self.at : self.at + 1]
        if char == ",":
            self.at += 1
            self.blank()
            if self.text[self.at : self.at + 1] == closing:
                self.liberty("comma")
        elif char and char != closing:
            if self.line == line:
                raise self.error(f"A comma is missing {where}, here is {self.seen()}")
            self.liberty("comma")


def dotted(path: Sequence[str | int]) -> str:
    """A path as people write it: zero_optimization.offload_param.device."""
    return ".".join(map(str, path))

"""The progress of a class: a folder of progress files in, a table and a heat map out.

    pplab progress --class FOLDER [--out map.png] [--pseudonyms]

The files are those that ``progress`` writes, one a learner, however they came here: collected by
hand, or the home folders of a JupyterHub (``--class /home``). They are only read, on this machine,
and nothing is sent anywhere. Answers are not shown. With pseudonyms no name appears, neither in the
table, the picture nor the remarks on files; a learner keeps the same pseudonym on this machine.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pplab.core.words import aligned
from pplab.teach.lab import LABS, open_lab
from pplab.teach.misconceptions import MISCONCEPTIONS
from pplab.teach.progress import FORMAT, RANKED, folder
from pplab.teach.quizzes import CHAPTERS, questions
from pplab.teach.verdict import STATES

#: Where progress files lie in a folder: in it, one level down, or in a home folder.
PLACES = ("*.json", "*/*.json", "*/.local/state/pplab/progress/*.json")
LARGEST = 5 << 20  # bytes; a learner who has done everything has some 20 KB


@dataclass(frozen=True)
class Learner:
    """One learner: the name that is shown, and the items of the file."""

    name: str
    items: dict[str, dict[str, Any]] = field(repr=False)

    def state(self, key: str) -> str:
        """How far a question is: "not attempted", "blocked", "wrong" or "right"."""
        return str(self.items.get(key, {}).get("state", "not attempted"))

    def mark(self, key: str) -> str:
        """What stands in the cell of a question: its sign, the tries when there were several,
        and s when the solution was looked up."""
        item, state = self.items.get(key, {}), self.state(key)
        if state == "not attempted":
            return "s" if item.get("solution") else "·"
        tries = item.get("tries", 1)
        return f"{STATES[state]}{tries if tries > 1 else ''}{'s' if item.get('solution') else ''}"

    @property
    def last(self) -> str:
        """Day of the last thing done, "" when nothing was."""
        return max((str(item.get("last", "")) for item in self.items.values()), default="")[:10]


@dataclass(frozen=True)
class Classroom:
    """A class. ``print`` it for the table; a notebook shows the heat map, a picture and the table.

    learners: in the order of their names; remarks: what is wrong with which files
    """

    learners: tuple[Learner, ...]
    remarks: tuple[str, ...] = ()

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """Chapter or lab that somebody has begun -> keys of its questions."""
        every = {
            f"chapter {c}": [f"quiz {c}.{i}" for i in range(1, len(questions(c)) + 1)]
            for c in CHAPTERS
        }
        every |= {
            f"lab {number}": [f"lab {number}.{name}" for name in open_lab(number).questions]
            for number in LABS
        }
        begun = {key for learner in self.learners for key in learner.items}
        return {name: keys for name, keys in every.items() if begun & set(keys)}

    def rows(self) -> list[list[str]]:
        """The table: a heading, then a row a learner with the right answers of each group."""
        rows = [["learner", *self.groups, "last seen"]]
        for learner in self.learners:
            cells = []
            for keys in self.groups.values():
                right = sum(learner.state(key) == "right" for key in keys)
                tried = any(learner.state(key) != "not attempted" for key in keys)
                cells.append(f"{right} of {len(keys)}" if tried else "-")
            rows.append([learner.name, *cells, learner.last or "-"])
        return rows

    def hardest(self, most: int = 3) -> list[tuple[str, int, int]]:
        """(question, learners who have it right, learners who tried), the hardest first; only
        questions that somebody has tried and not solved."""
        found = []
        for key in (key for keys in self.groups.values() for key in keys):
            states = [learner.state(key) for learner in self.learners]
            tried = len(states) - states.count("not attempted") - states.count("blocked")
            if tried > states.count("right"):
                found.append((key, states.count("right"), tried))
        return sorted(found, key=lambda f: (f[1] / f[2], -f[2]))[:most]

    def beliefs(self) -> Counter[str]:
        """Misconception -> how many learners met it."""
        met: Counter[str] = Counter()
        for learner in self.learners:
            noted = [item.get("misconceptions") for item in learner.items.values()]
            names = {name for tried in noted if isinstance(tried, dict) for name in tried}
            met.update(names & MISCONCEPTIONS.keys())
        return met

    def sentence(self) -> str:
        """What the heat map shows, in a sentence."""
        if not self.learners:
            return "No learners: there is no progress file here."
        keys = [key for keys in self.groups.values() for key in keys]
        states = Counter(learner.state(key) for learner in self.learners for key in keys)
        one = len(self.learners) == 1
        head = f"{len(self.learners)} learner{'' if one else 's'}, {len(keys)} questions begun"
        if not keys:
            return f"{head}."
        share = states["right"] / (len(keys) * len(self.learners))
        stuck = "".join(
            f"; hardest: {key}, right for {right} of {tried} who tried"
            for key, right, tried in self.hardest(1)
        )
        return f"{head}: {share:.0%} of the answers are right, {states['wrong']} wrong{stuck}."

    def __str__(self) -> str:

        lines = [self.sentence()]
        if self.learners:
            lines += ["", aligned(self.rows())]
        if hardest := self.hardest():
            lines += ["", "To talk about:"]
            lines += [f"  {key}: right for {r} of {t} who tried" for key, r, t in hardest]
            lines += [
                f'  "{MISCONCEPTIONS[name].belief}" (met by {count}) {MISCONCEPTIONS[name].fact}'
                for name, count in self.beliefs().most_common(3)
            ]
        return "\n".join([*lines, *(["", *self.remarks] if self.remarks else [])])

    __repr__ = __str__

    def save(self, path: str | Path) -> None:
        """Write the heat map as a PNG; ValueError for another kind of file."""
        path = Path(path)
        if path.suffix.lower() != ".png":
            raise ValueError(f"the heat map is a PNG: call it {path.with_suffix('.png')}")
        from pplab.teach.heat_map import png

        path.write_bytes(png(self))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from pplab.teach.heat_map import html, png
        from pplab.view.show import bundle

        return {**bundle(None, png(self), str(self)), "text/html": html(self)}


def classroom(where: str | Path, *, pseudonyms: bool = False) -> Classroom:
    """Read the progress files in a folder; what cannot be read becomes a remark.

    Raises NotADirectoryError when there is no such folder.
    """
    top = Path(where)
    if not top.is_dir():
        raise NotADirectoryError(f"there is no folder {top} with progress files")
    found: list[tuple[str, Path, dict[str, dict[str, Any]]]] = []
    remarks: list[str] = []
    seen: dict[bytes, Path] = {}
    for path in sorted({path for place in PLACES for path in top.glob(place)}):
        called = "a file" if pseudonyms else str(path.relative_to(top))
        try:
            text = _read(path)
            name, items = _parse(text)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            remarks.append(f"{called} is left out: {reason}")
            continue
        digest = hashlib.sha256(text).digest()
        if items and digest in seen:
            other = "" if pseudonyms else f" of {seen[digest].relative_to(top)}"
            remarks.append(f"{called} is left out: it is a copy{other}")
            continue
        seen[digest] = path
        found.append((name, path.relative_to(top), items))
    shown = _pseudonyms(found) if pseudonyms else _names(found)
    learners = [Learner(name, items) for name, (_, _, items) in zip(shown, found, strict=True)]
    return Classroom(tuple(sorted(learners, key=lambda one: one.name.casefold())), tuple(remarks))


def _read(path: Path) -> bytes:
    if path.stat().st_size > LARGEST:
        raise ValueError("it is far too large for a progress file")
    return path.read_bytes()


def _parse(text: bytes) -> tuple[str, dict[str, dict[str, Any]]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it cannot be read as JSON (is it cut off?)") from None
    if not isinstance(data, dict) or not {"format", "learner", "items"} <= data.keys():
        raise ValueError("it is JSON, but no progress file of pplab")
    if data["format"] != FORMAT:
        raise ValueError(f"it has format {data['format']!r}, and this pplab reads {FORMAT}")
    name, items = data["learner"], data["items"]
    if not isinstance(name, str) or not isinstance(items, dict):
        raise ValueError("its learner or its items are not what pplab writes")
    for item in items.values():
        if not isinstance(item, dict) or item.get("state", RANKED[0]) not in RANKED:
            raise ValueError("an item in it is not what pplab writes")
        if not isinstance(item.get("tries", 1), int):
            raise ValueError("an item in it is not what pplab writes")
    printable = "".join(c for c in name if c.isprintable()).strip()
    return printable[:60] or "(no name)", items


def _names(found: list[tuple[str, Path, Any]]) -> list[str]:
    """Names; learners who share one are told apart by where their files lie."""
    count = Counter(name for name, _, _ in found)
    return [name if count[name] == 1 else f"{name} ({path})" for name, path, _ in found]


def _pseudonyms(found: Iterable[tuple[str, Path, Any]]) -> list[str]:
    """Names that say nothing, the same for the same file each time on this machine."""
    key, given = _key(), []
    for name, path, _ in found:
        digest = hmac.new(key, f"{name}\0{path}".encode(), "sha256").hexdigest().upper()
        length = 4
        while f"learner {digest[:length]}" in given:
            length += 1
        given.append(f"learner {digest[:length]}")
    return given


def _key() -> bytes:
    """A secret of this machine, without which a pseudonym cannot be guessed back."""
    path = folder().parent / "class-key"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = secrets.token_bytes(32)
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
                f.write(new)
        except FileExistsError:
            return path.read_bytes()
        return new

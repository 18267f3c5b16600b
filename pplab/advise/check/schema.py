"""What DeepSpeed reads, as a table: the installed version's where there is one, else a frozen one.

DeepSpeed is never imported: its source is read as text (see ``derive``), in 0.2 s, and only when
the installed version is not the frozen one.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

FROZEN = Path(__file__).with_name("known.json")


def installed_root() -> Path | None:
    """Folder of the installed DeepSpeed package; None when there is none."""
    spec = importlib.util.find_spec("deepspeed")
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) if places else None


def installed_version() -> str:
    """Version of the installed DeepSpeed, "" when there is none."""
    root = installed_root()
    try:
        text = (root / "git_version_info_installed.py").read_text() if root else ""
    except OSError:
        return ""
    found = re.search(r"version\s*=\s*'([^'+]+)", text)
    return found[1] if found else ""


@lru_cache(maxsize=1)
def known() -> Schema:
    """The table to check against."""
    frozen = json.loads(FROZEN.read_text(encoding="utf-8"))
    version, root = installed_version(), installed_root()
    if root is None or version in ("", frozen["version"]):
        return Schema(frozen, "frozen")
    from pplab.advise.check.derive import derive

    try:
        return Schema(derive(root), "installed")
    except (OSError, SyntaxError, LookupError):  # a version this file does not understand
        return Schema(frozen, f"frozen (DeepSpeed {version} could not be read)")


@dataclass(frozen=True)
class Schema:
    """The table of ``derive`` with questions to it; `origin` says where it comes from."""

    table: dict[str, Any]
    origin: str = "frozen"

    @property
    def version(self) -> str:
        """DeepSpeed's version."""
        return self.table["version"]

    @property
    def top(self) -> list[str]:
        """Keys read at the top level."""
        return self.table["top"]

    @property
    def sections(self) -> list[str]:
        """Top-level keys that hold a section."""
        names = {*self.table["sections"], *self.table["plain"]}
        return sorted(
            {name.split(".")[0] for name in names} | {"datastates_ckpt", "data_efficiency"}
        )

    def model(self, name: str) -> dict[str, dict[str, Any]]:
        """Fields of a model by the names a config may use: alias and own name."""
        fields = self.table["models"][name]
        both = {
            about["alias"]: {**about, "name": n} for n, about in fields.items() if "alias" in about
        }
        return {**fields, **both}

    def section_model(self, path: str) -> str | None:
        """The model a section is read into; None for a plain one."""
        return self.table["sections"].get(path)

    def plain(self, path: str) -> list[str] | None:
        """Keys a plain section is asked for; None when it is not one."""
        return self.table["plain"].get(path)

    def names(self, model: str) -> list[str]:
        """What to call the fields of a model: the alias where there is one."""
        fields = self.table["models"][model]
        return [about.get("alias", name) for name, about in fields.items()]

    @lru_cache(maxsize=1)  # noqa: B019 - there is one schema
    def homes(self) -> dict[str, list[str]]:
        """Key -> dotted paths where DeepSpeed reads a key of that name."""
        found: dict[str, list[str]] = {}

        def put(path: str, key: str) -> None:
            found.setdefault(key, []).append(f"{path}.{key}" if path else key)

        def walk(path: str, model: str) -> None:
            for name, about in self.table["models"][model].items():
                if about.get("deprecated"):
                    continue
                put(path, about.get("alias", name))
                if isinstance(about["type"], dict) and "model" in about["type"]:
                    walk(f"{path}.{name}", about["type"]["model"])

        for key in self.top:
            put("", key)
        for path, keys in self.table["plain"].items():
            for key in keys:
                put(path, key)
        for path, model in self.table["sections"].items():
            if path != "bfloat16":
                walk(path, model)
        return found

    def __hash__(self) -> int:
        return id(self)


def closest(word: str, among: Iterable[str], cutoff: float = 0.75) -> str | None:
    """The name nearest to a misspelt one; None when nothing is near.

    Case, blanks, the difference of "-" and "_", and the order of the words do not count.
    """
    plain = {simplify(name): name for name in among}
    bare = simplify(word)
    if bare in plain:
        return plain[bare]
    shuffled = [name for name in plain if sorted(name.split("_")) == sorted(bare.split("_"))]
    near = difflib.get_close_matches(bare, plain, n=3, cutoff=cutoff)
    found = shuffled or [name for name in near if _misspells(bare, name)]
    return plain[found[0]] if found else None


def _misspells(word: str, name: str) -> bool:
    """Whether each word of one stands in the other, be it misspelt.

    Letters alone do not tell: "max_loss_scale" is near to "min_loss_scale" and another thing.
    """
    if _likeness(word.replace("_", ""), name.replace("_", "")) >= 0.9:
        return True  # words run together
    left = name.split("_")
    for part in word.split("_"):
        best = max(left, key=lambda other: _likeness(part, other), default="")
        if _likeness(part, best) < 0.7:
            return False
        left.remove(best)
    return True


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def simplify(name: str) -> str:
    """A key without case, blanks and hyphens."""
    return re.sub(r"[\s\-]+", "_", str(name).strip()).lower()

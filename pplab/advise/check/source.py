"""DeepSpeed's source files as syntax trees: constants, classes, and which keys code asks for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

#: Files with constants, the later ones for names the earlier ones lack.
CONSTANT_FILES = (
    "runtime/constants.py",
    "runtime/config.py",
    "runtime/zero/config.py",
    "runtime/precision_config.py",
    "runtime/activation_checkpointing/config.py",
    "runtime/model_checkpointing/constants.py",
    "runtime/data_pipeline/constants.py",
    "runtime/swap_tensor/constants.py",
    "profiling/constants.py",
    "comm/constants.py",
    "autotuning/constants.py",
    "datastates/config.py",
    "utils/config.py",
)


class Source:
    """Source files of a package, read as text and parsed on first use."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._trees: dict[str, ast.Module] = {}
        self.constants: dict[str, Any] = {}
        for file in CONSTANT_FILES:
            for name, value in constants_of(self.tree(file)):
                self.constants.setdefault(name, value)

    def text(self, file: str) -> str:
        """A file's text."""
        return (self.root / file).read_text(encoding="utf-8")

    def tree(self, file: str) -> ast.Module:
        """A parsed file; a folder is all its files after one another."""
        if file not in self._trees:
            if file.endswith(".py"):
                self._trees[file] = ast.parse(self.text(file))
            else:
                paths = sorted((self.root / file).glob("*.py"))
                bodies = [ast.parse(path.read_text(encoding="utf-8")).body for path in paths]
                self._trees[file] = ast.Module([n for body in bodies for n in body], [])
        return self._trees[file]

    def constant(self, name: str) -> Any:
        """Value of a constant; LookupError when there is none of that name."""
        if name not in self.constants:
            raise LookupError(f"DeepSpeed in {self.root} has no constant {name}")
        return self.constants[name]

    def literal(self, file: str, name: str) -> dict[str, str]:
        """A module-level dict of messages; {} when this version has none."""
        node = assigned(self.tree(file), name)
        if not isinstance(node, ast.Dict):
            return {}
        pairs = zip(node.keys, node.values, strict=True)
        return {str(value_of(k, {})): message_of(v, self.constants) for k, v in pairs if k}

    def classes(self, file: str) -> list[ast.ClassDef]:
        """Classes of a file that have an __init__."""
        nodes = [n for n in self.tree(file).body if isinstance(n, ast.ClassDef)]
        return [n for n in nodes if initializer(n)]

    def arguments(self, file: str, name: str) -> tuple[list[str], list[str]]:
        """(all, required) arguments of a class but for the first, which DeepSpeed passes itself."""
        cls = next((c for c in self.classes(file) if c.name == name), None)
        init = initializer(cls) if cls else None
        if init is None:
            raise LookupError(f"{file} in {self.root} has no class {name}")
        every = [argument.arg for argument in init.args.args][2:]
        return every, every[: len(every) - len(init.args.defaults)]

    def asked(self, file: str, functions: str, names: Iterable[str]) -> Iterator[str]:
        """Keys that code asks one of the dicts `names` for, in functions that start so."""
        wanted = set(names)
        for node in ast.walk(self.tree(file)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith(functions):
                yield from self._keys(node, wanted)

    def _keys(self, function: ast.FunctionDef, names: set[str]) -> Iterator[str]:
        loops: dict[str, list[Any]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.comprehension) and isinstance(node.target, ast.Name):
                loops[node.target.id] = getattr(node.iter, "elts", [])
        for node in ast.walk(function):
            key: ast.expr | None = None
            match node:
                case ast.Call(func=ast.Name(id=name), args=[place, key, *_]) if re.fullmatch(
                    r"get_\w+_param", name
                ) and goes_by(place, names):
                    pass
                case ast.Call(func=ast.Attribute(attr="get", value=place), args=[key, *_]) if (
                    goes_by(place, names)
                ):
                    pass
                case ast.Subscript(value=place, slice=key) if goes_by(place, names):
                    pass
                case ast.Compare(left=key, ops=[ast.In()], comparators=[place]) if goes_by(
                    place, names
                ):
                    pass
                case _:
                    continue
            found = loops.get(key.id, [key]) if isinstance(key, ast.Name) else [key]
            for each in found:
                value = value_of(each, self.constants)
                if isinstance(value, str):
                    yield value


# -- small helpers --------------------------------------------------------------------------------


def goes_by(node: ast.expr, names: set[str]) -> bool:
    """True for ``name``, ``name.keys()`` and ``anything.name``."""
    match node:
        case ast.Call(func=ast.Attribute(attr="keys", value=inner)):
            return goes_by(inner, names)
        case ast.Attribute(attr=attr):
            return attr in names
        case ast.Name(id=name):
            return name in names
    return False


def value_of(node: Any, constants: dict[str, Any]) -> Any:
    """A literal's or constant's value; None for anything else."""
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None


def constants_of(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = value_of(node.value, {})
            plain = isinstance(value, (str, int, float, bool)) and "\n" not in str(value)
            if plain or (isinstance(node.value, ast.Constant) and node.value.value is None):
                yield node.targets[0].id, value


def assigned(tree: ast.Module, name: str) -> ast.expr | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return node.value
    return None


def initializer(cls: ast.ClassDef) -> ast.FunctionDef | None:
    nodes = [n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    return nodes[0] if nodes else None


def message_of(node: ast.expr, constants: dict[str, Any]) -> str:
    """A message, with the constants that are formatted into it."""
    if isinstance(node, ast.JoinedStr):
        parts = (getattr(part, "value", part) for part in node.values)
        values = (part if isinstance(part, str) else value_of(part, constants) for part in parts)
        return "".join(str(value or "") for value in values).strip()
    return str(value_of(node, constants)).strip()

"""The ground floor stands on Python and numpy alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pplab.core

HEAVY = ("torch", "deepspeed", "matplotlib", "IPython", "anywidget", "ipywidgets", "pandas")
CORE = Path(pplab.core.__file__).parent


def loaded_by(code):
    """Which heavy packages are loaded in a fresh interpreter that runs `code`."""
    report = f"import sys; print(*[n for n in {HEAVY} if n in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def test_importing_pplab_loads_nothing_heavy():
    assert loaded_by("import pplab") == []


def test_importing_and_using_the_core_loads_nothing_heavy():
    modules = sorted(
        ".".join(("pplab.core", *path.relative_to(CORE).with_suffix("").parts))
        for path in CORE.rglob("*.py")
        if path.name != "__init__.py"
    )
    code = "\n".join(f"import {module}" for module in modules)
    use = "from pplab.core.schedules import gpipe; str(gpipe(2, 2).simulate())"
    assert loaded_by(f"{code}\n{use}") == []


def imports_of(tree, inside=""):
    """(module, name of the function it is imported in or "") for every import of a file."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module, inside
        else:
            named = isinstance(node, ast.FunctionDef)
            yield from imports_of(node, node.name if named else inside)


def test_the_core_imports_only_itself_numpy_and_the_standard_library():
    """Only how an object shows itself in a notebook looks upwards, and only when it is shown."""
    allowed = {"numpy", "pplab", *sys.stdlib_module_names}
    for path in CORE.rglob("*.py"):
        for name, function in imports_of(ast.parse(path.read_text())):
            assert name.split(".")[0] in allowed, f"{path.name} imports {name}"
            upwards = name.startswith("pplab.") and not name.startswith("pplab.core")
            assert not upwards or function.startswith("_repr_"), f"{path.name} imports {name}"

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


def test_the_core_imports_only_itself_numpy_and_the_standard_library():
    allowed = {"numpy", "pplab", *sys.stdlib_module_names}
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module]
            for name in names:
                assert name.split(".")[0] in allowed, f"{path.name} imports {name}"
                if name.startswith("pplab."):
                    assert name.startswith("pplab.core"), f"{path.name} imports upwards: {name}"

"""One server for a class: ``make hub``, or ``python -m tools.make_hub``.

Brings JupyterHub's proxy from npm, exactly as deploy/package-lock.json says, and starts the hub
with deploy/jupyterhub_config.py, which says what can be set.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from tools.offline import npm_fails

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
CONFIG = DEPLOY / "jupyterhub_config.py"
PROXY = ROOT / "build" / "npm" / "hub"


def proxy(folder: Path = PROXY) -> Path:
    """The program configurable-http-proxy; installed into `folder` when it is not there yet.

    Raises RuntimeError with what to do where npm or Node.js is missing, or npm fails.
    """
    if found := shutil.which("configurable-http-proxy"):
        return Path(found)
    program = folder / "node_modules" / ".bin" / "configurable-http-proxy"
    if program.exists() and shutil.which("node"):
        return program
    npm = shutil.which("npm")
    if not npm or not shutil.which("node"):
        raise RuntimeError(
            "JupyterHub's proxy comes from npm, and npm or node is not here: "
            "apt-get install nodejs npm (Node.js 18 or newer)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(DEPLOY / name, folder)
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder))
    if why := npm_fails(npm, "ci", *options, cwd=folder):
        raise RuntimeError(f"npm could not install the proxy: {why}")
    return program


def main(arguments: list[str] | None = None) -> int:
    """Start the hub; it runs until it is stopped. ``--prepare``: only bring what it needs."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if find_spec("jupyterhub") is None:
        print("JupyterHub is not here: `make hub` installs it", file=sys.stderr)
        return 1
    try:
        where = proxy()
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    if "--prepare" in arguments:
        print(f"ready: {where}")
        return 0
    os.execv(sys.executable, [sys.executable, "-m", "jupyterhub", "-f", str(CONFIG), *arguments])


if __name__ == "__main__":
    sys.exit(main())

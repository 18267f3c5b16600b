"""Pages that need no network: what they would load from one, and files brought from npm."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "npm"
PATIENCE = 90  # seconds for npm: without a network it would try for minutes


def npm_fails(npm: str, *arguments: str, cwd: Path | None = None) -> str:
    """Run npm; why it failed, "" when it did not."""
    command = [npm, *arguments, "--fetch-retries=1", "--fetch-timeout=20000"]
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"no answer within {PATIENCE} s: is there a network?"
    return done.stderr.strip()[-500:] or "no reason given" if done.returncode else ""


#: What makes a browser load something while it shows a page. A link to click on does not.
_LOADS = re.compile(
    r"""(?ix)
    (?: <(?:script|img|iframe|source|video|audio|embed|object|input|track)\b[^>]*?
          \s(?:src|srcset|data|poster)\s*=\s*["']?
      | <link\b(?![^>]*rel=["']?(?:canonical|author|license|help|search|index|next|prev)\b)
          [^>]*?\shref\s*=\s*["']?
      | @import\s+(?:url\()?\s*["']?
      | \burl\(\s*["']?
    )
    ( (?:https?:|wss?:)?//[^\s"'<>)]+ )
    """
)


def external(folder: Path) -> list[str]:
    """What the pages and styles in `folder` would load from other machines: "file: address"."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".html", ".css", ".svg"):
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [f"{path.relative_to(folder)}: {m[1]}" for m in _LOADS.finditer(text)]
    return found


def vendored(package: str, version: str, file: str, cache: Path = CACHE) -> Path:
    """A file out of an npm package of one exact version, kept in build/npm.

    npm checks what it downloads against the registry's own hash; here it is compared again with
    tools/vendored.json, so that the same version is the same file everywhere. RuntimeError says
    what is missing.
    """
    known = json.loads((Path(__file__).parent / "vendored.json").read_text(encoding="utf-8"))
    want = known[f"{package}@{version}"]
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / f"{package.replace('@', '').replace('/', '-')}-{version}.tgz"
    if not archive.exists():
        if not (npm := shutil.which("npm")):
            raise RuntimeError(
                f"{package} comes from npm, which is not here: apt-get install npm, or install "
                "Node.js from nodejs.org"
            )
        ask = ["pack", "--silent", f"{package}@{version}", "--pack-destination", str(cache)]
        if why := npm_fails(npm, *ask):
            raise RuntimeError(f"npm could not bring {package} {version}: {why}")
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if f"sha512-{digest}" != want:
        raise RuntimeError(f"{archive} is not the {package} {version} that is expected: delete it")
    out = cache / archive.stem / file
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as packed:
            member = packed.extractfile(f"package/{file}")
            assert member is not None, f"{file} is not in {archive}"
            out.write_bytes(member.read())
    return out

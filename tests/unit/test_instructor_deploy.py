"""The container and the hub's configuration: what they call is there, in an order that works.

No Docker engine runs here; the steps of the Dockerfile are followed in a scratch copy instead, up
to what each of them would execute (`make -n`): installing 1.6 GB again would show nothing more.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


def steps(text: str | None = None) -> list[tuple[str, str]]:
    """Instructions of the Dockerfile: (name, what follows)."""
    text = DOCKERFILE.read_text() if text is None else text
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [
        (line.split(None, 1)[0], line.split(None, 1)[1].strip())
        for line in joined.splitlines()
        if line.strip()
    ]


def follow(folder: Path) -> list[str]:
    """Follow the Dockerfile in an empty folder; the commands that its targets would run."""
    ran = []
    for name, rest in steps():
        if name == "COPY":
            *sources, target = rest.split()
            for source in sources:
                place = folder / target / (source if target.endswith("/") else "")
                if (ROOT / source).is_dir():
                    ignore = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
                    shutil.copytree(ROOT / source, place, ignore=ignore)
                else:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / source, place)
        elif name in ("RUN", "CMD"):
            command = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
            if command[0] != "make":
                assert command[0] == "apt-get", rest
                continue
            # a make above this one (`make test`) would have its say through the environment
            alone = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
            done = subprocess.run(
                ["make", "-n", *command[1:], f"PYTHON={sys.executable}"],
                cwd=folder, capture_output=True, text=True, check=False, env=alone,
            )  # fmt: skip
            assert done.returncode == 0, (rest, done.stderr)
            ran.append(done.stdout)
            if command[1] == "setup":  # what it leaves behind: the later targets do not repeat it
                (folder / ".venv").mkdir()
                (folder / ".venv" / ".ready").touch()
            elif (folder / ".venv" / ".kit").exists() is False:
                (folder / ".venv" / ".kit").touch()
    return ran


def test_its_steps_work_one_after_the_other(tmp_path):
    ran = follow(tmp_path)
    assert len(ran) == 5
    setup, prepare, book, slides, start = ran
    assert "pip install" in setup and "requirements.txt" in setup and "-e ." in setup
    assert "requirements-kit.txt" in prepare and "tools.make_hub --prepare" in prepare
    for later in (book, slides, start):
        assert "pip install" not in later  # a layer is not undone by the next COPY
    assert "tools.make_book" in book and "tools.make_slides" in slides
    assert start.strip().endswith("-m tools.make_hub")


def test_a_step_that_would_fail_is_noticed(tmp_path, monkeypatch):
    text = DOCKERFILE.read_text().replace("make hub ARGS", "make hubb ARGS")
    monkeypatch.setattr(sys.modules[__name__], "DOCKERFILE", tmp_path / "Dockerfile")
    (tmp_path / "Dockerfile").write_text(text)
    with pytest.raises(AssertionError, match="hubb"):
        follow(tmp_path / "image")


def test_everything_the_copied_parts_read_is_copied(tmp_path):
    follow(tmp_path)
    for name in ("deploy/jupyterhub_config.py", "deploy/package-lock.json", "docs/book/conf.py",
                 "docs/instructor.md", "tools/refresh_notebooks.py", "chapters/01_bubbles.ipynb",
                 "jupyter_config", "README.md"):  # fmt: skip
        assert (tmp_path / name).exists(), name


def test_everything_the_image_needs_from_debian_is_installed():
    (install,) = [rest for name, rest in steps() if name == "RUN" and "apt-get install" in rest]
    assert {"make", "git", "nodejs", "npm", "adduser"} <= set(install.split())


def test_the_proxy_is_pinned_with_all_it_depends_on():
    wanted = json.loads((ROOT / "deploy" / "package.json").read_text())["dependencies"]
    text = (ROOT / "deploy" / "package-lock.json").read_text()
    locked = json.loads(text)["packages"]
    for name, version in wanted.items():
        assert locked[f"node_modules/{name}"]["version"] == version
    assert all("integrity" in about for place, about in locked.items() if place)
    assert "resolved" not in text
    kit = (ROOT / "requirements-kit.txt").read_text()
    assert f"configurable-http-proxy {wanted['configurable-http-proxy']}" in kit


def test_the_kit_is_pinned_with_reasons_and_is_no_need_of_self_study():
    lines = (ROOT / "requirements-kit.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    for line in pins:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9.]+  # \S.{9,}", line), line
    names = {line.split("==")[0] for line in pins}
    base = (ROOT / "requirements.txt").read_text()
    assert not any(re.search(rf"^{name}==", base, re.M) for name in names)
    for path in (ROOT / "pplab").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(import|from) (sphinx|myst_nb|jupyterhub)\b", text, re.M), path


# -- the hub's configuration, read without starting one --------------------------------------------


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """Reads the configuration; its names, with `c`."""
    if find_spec("jupyterhub") is None:
        pytest.skip("jupyterhub is not here: make hub installs it (requirements-kit.txt)")
    from traitlets.config import Config

    def read(**settings: str) -> SimpleNamespace:
        for name in [name for name in os.environ if name.startswith("PPLAB_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(tmp_path))
        defaults = {"PPLAB_HUB_PASSWORD": "long enough", "PPLAB_HUB_HOMES": str(tmp_path / "homes")}
        for name, value in {**defaults, **settings}.items():
            monkeypatch.setenv(name, value)
        path = str(ROOT / "deploy" / "jupyterhub_config.py")
        return SimpleNamespace(**runpy.run_path(path, {"get_config": Config}))

    return read


def test_it_needs_a_password_and_says_so(configured):
    for short in ("", "seven77"):
        with pytest.raises(SystemExit, match="set PPLAB_HUB_PASSWORD"):
            configured(PPLAB_HUB_PASSWORD=short)


def test_it_listens_here_only_unless_told_otherwise(configured):
    assert configured().c.JupyterHub.bind_url == "http://127.0.0.1:8000"
    told = configured(PPLAB_HUB_IP="0.0.0.0", PPLAB_HUB_PORT="9000").c
    assert told.JupyterHub.bind_url == "http://0.0.0.0:9000"
    assert told.ConfigurableHTTPProxy.api_url == "http://127.0.0.1:9002"


def test_no_more_learners_than_fit_are_let_in(configured):
    import psutil

    read = configured(PPLAB_LEARNER_MB="500", PPLAB_MAX_RANKS="3")
    total = psutil.virtual_memory().total / 1e6
    assert read.c.JupyterHub.active_server_limit == max(1, int((total - 1000) // 500))
    assert read.c.Spawner.environment["PPLAB_MAX_RANKS"] == "3"
    assert configured(PPLAB_LEARNER_MB="999999999").c.JupyterHub.active_server_limit == 1


def test_nobody_becomes_root_with_the_password_of_a_class(configured):
    read = configured()
    assert not read.is_a_learner("root") and not read.is_a_learner("daemon")
    assert read.is_a_learner("nobody-has-this-name")
    gate = read.Classroom(user_password="long enough")
    ask = {"username": "root", "password": "long enough"}
    assert asyncio.run(gate.authenticate(None, ask)) is None
    assert asyncio.run(gate.authenticate(None, {**ask, "username": "ada"})) is not None


def test_the_course_is_copied_and_nothing_of_a_learner_is_overwritten(configured, tmp_path):
    read = configured()
    spawner = SimpleNamespace(user=SimpleNamespace(name="ada"))
    read.course_for(spawner)
    mine = tmp_path / "homes" / "ada" / "pplab" / "chapters" / "01_bubbles.ipynb"
    assert mine.read_bytes() == (ROOT / "chapters" / "01_bubbles.ipynb").read_bytes()
    mine.write_text("my work")
    (mine.parent / "00_start_here.ipynb").unlink()
    read.course_for(spawner)
    assert mine.read_text() == "my work" and (mine.parent / "00_start_here.ipynb").exists()

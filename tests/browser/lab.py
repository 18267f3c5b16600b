"""A real JupyterLab in a real browser: what a learner would see, and what went wrong.

    def test_chapter(lab_server, lab_page):
        server = lab_server(folder)
        lab_page.open(server, "01_bubbles.ipynb")
        lab_page.run_all()
        assert lab_page.faults() == []

What makes it steady: it waits for the notebook's own kernel (the indicator says "idle" before there
is one), runs commands of JupyterLab instead of clicking, and reads errors from the notebook's model
instead of the page. Requests that leave this machine are stopped and recorded.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pplab import lab
from tests.runs.processes import answers, shut_down

ROOT = Path(__file__).parents[2]
SCREENS = ROOT / "build" / "screens"
LOCAL = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "about:")
#: Without these, Chromium asks the network for updates, and does not start as root.
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
#: Milliseconds. A loaded two-core machine takes eleven seconds to open a notebook.
OPEN, RUN, REACT = 60_000, 300_000, 15_000

_READY = """async () => {
  const app = window.jupyterapp;
  if (!app) return false;
  await app.restored;
  const panel = app.shell.currentWidget;
  if (!panel || !panel.context) return false;
  await panel.context.ready;
  await panel.context.sessionContext.ready;
  const kernel = panel.context.sessionContext.session?.kernel;
  return kernel?.connectionStatus === 'connected' && kernel.status === 'idle';
}"""
_ERRORS = """() => window.jupyterapp.shell.currentWidget.content.widgets.flatMap((cell, place) => {
  if (cell.model.type !== 'code') return [];
  return cell.model.outputs.toJSON()
    .filter((output) => output.output_type === 'error')
    .map((output) => `cell ${place} stopped with ${output.ename}: ${output.evalue}`);
})"""
_TO_TOP = """() => {
  for (const panel of document.querySelectorAll('.jp-NotebookPanel, .jp-NotebookPanel *')) {
    if (panel.scrollTop) panel.scrollTop = 0;
  }
}"""
_HEIGHT = """() => {
  const panel = document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden)');
  const outer = panel.querySelector('.jp-WindowedPanel-outer');
  const last = [...panel.querySelectorAll('.jp-Cell')].at(-1).getBoundingClientRect();
  return 120 + Math.ceil(outer.scrollTop + last.bottom - outer.getBoundingClientRect().top);
}"""


def cannot(reason: str) -> NoReturn:
    """Skip the test, which says why; in CI, where everything must be there, fail it."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def chromium() -> str:
    """Path of the machine's Chromium; Playwright's own is never downloaded."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if path := shutil.which(name):
            return path
    cannot("no Chromium here: apt-get install chromium")


@dataclass
class Server:
    """A running JupyterLab."""

    url: str
    token: str
    folder: Path

    def page(self, name: str) -> str:
        return f"{self.url}/lab/tree/{name}?reset&token={self.token}"


@contextmanager
def running_lab(folder: Path, private: Path) -> Iterator[Server]:
    """JupyterLab as ``pplab lab`` starts it, on `folder`; it keeps its own files in `private`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    settings = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
        "PPLAB_PROGRESS": "progress",
    }
    environment = lab.environment() | {name: str(private / at) for name, at in settings.items()}
    environment.pop("PYTEST_CURRENT_TEST", None)  # or ipykernel hides what child processes print
    options = [f"--IdentityProvider.token={token}", "--ServerApp.port_retries=0"]
    options += ["--LabApp.expose_app_in_browser=True"]
    log = private / "lab.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*lab.command(folder, port=port), *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + 60
        while not answers(f"http://127.0.0.1:{port}/api?token={token}"):
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}")
            time.sleep(0.1)
        yield Server(f"http://127.0.0.1:{port}", token, folder)
    finally:
        shut_down(server, 15)


@dataclass
class LabPage:
    """One browser page with JupyterLab in it; `page` is Playwright's."""

    page: Any
    external: list[str] = field(default_factory=list)  # requests that would have left the machine
    console: list[str] = field(default_factory=list)  # errors in the browser's console

    def __post_init__(self) -> None:
        self.page.route("**/*", self._route)
        self.page.on("websocket", lambda socket: self._note(socket.url))
        self.page.on("pageerror", lambda error: self.console.append(f"page error: {error}"))
        self.page.on("console", self._on_console)

    def _route(self, route: Any) -> None:
        if self._note(route.request.url):
            route.abort()
        else:
            route.continue_()

    def _note(self, url: str) -> bool:
        if url.startswith(LOCAL):
            return False
        self.external.append(url)
        return True

    def _on_console(self, message: Any) -> None:
        if message.type == "error":
            self.console.append(message.text[:300])

    def open(self, server: Server, name: str) -> None:
        """Open a notebook and wait until its own kernel is ready."""
        self.page.goto(server.page(name))
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=OPEN)
        self.page.wait_for_function(_READY, timeout=OPEN)

    def run_all(self) -> None:
        """Run > Run All Cells, to the end of the last cell."""
        self.page.set_default_timeout(RUN)
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        self.page.wait_for_function(_READY, timeout=RUN)
        self.page.set_default_timeout(REACT)
        self.settle()

    def settle(self) -> None:
        """Wait until the browser has painted."""
        self.page.evaluate(
            "() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))"
        )

    def faults(self) -> list[str]:
        """What must not happen, as sentences: cells that stopped, console errors, requests out."""
        return [
            *self.page.evaluate(_ERRORS),
            *(f"console: {text}" for text in self.console),
            *(f"request to {url}" for url in self.external),
        ]

    def theme(self, name: str) -> None:
        """Change JupyterLab's theme: "JupyterLab Light" or "JupyterLab Dark"."""
        self.page.evaluate(
            "(name) => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})",
            name,
        )
        # "attached": Playwright takes the body for hidden, since JupyterLab's children float
        chosen = f"body[data-jp-theme-name='{name}']"
        self.page.wait_for_selector(chosen, state="attached", timeout=REACT)
        self.settle()

    def screenshot(self, name: str) -> Path:
        """A picture of the whole notebook in build/screens; the path."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        before = self.page.viewport_size
        height = min(16_000, self.page.evaluate(_HEIGHT))
        self.page.set_viewport_size({"width": before["width"], "height": height})
        self.page.evaluate(_TO_TOP)  # running the cells has scrolled to the last one
        self.settle()
        path = SCREENS / f"{name}.png"
        self.page.locator(".jp-NotebookPanel:visible").screenshot(path=path)
        self.page.set_viewport_size(before)
        return path


# -- fixtures -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], Server]]:
    """Give it a folder of notebooks; a server runs there until the module's tests are over."""
    servers: dict[Path, Server] = {}
    with ExitStack() as stack:

        def serve(folder: Path) -> Server:
            if folder not in servers:
                private = tmp_path_factory.mktemp("jupyter")
                servers[folder] = stack.enter_context(running_lab(folder, private))
            return servers[folder]

        yield serve


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium. Of one module, since Playwright keeps an event loop running that others trip on."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        cannot("no playwright here: make test installs it")
    with sync_playwright() as playwright:
        chosen = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_FLAGS)
        yield chosen
        chosen.close()


@pytest.fixture
def lab_page(browser: Any) -> Iterator[LabPage]:
    """An empty browser page, 1400 x 1000."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    yield LabPage(context.new_page())
    context.close()

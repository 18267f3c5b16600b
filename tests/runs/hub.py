"""A real JupyterHub on loopback, with the configuration of deploy/, and what a learner does there.

Also used by benchmarks/hub.py, to measure what a learner takes.
"""

from __future__ import annotations

import contextlib
import http.cookiejar
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from tests.runs.processes import MARK, answers, marked, shut_down
from tools.make_hub import CONFIG, proxy

PASSWORD = "a password of the class"


def missing() -> str:
    """Why no hub can be started here; "" when one can."""
    for module in ("jupyterhub", "jupyterhub_idle_culler"):
        if find_spec(module) is None:
            return f"{module} is not here: make hub installs it (requirements-kit.txt)"
    try:
        proxy()
    except RuntimeError as error:
        return str(error)
    return ""


@dataclass
class Hub:
    """A running hub; `token` may do everything."""

    url: str
    token: str
    mark: str
    homes: Path
    log: Path
    sockets: list[Any] = field(default_factory=list)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request with the token; the JSON of the answer. Raises HTTPError."""
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Authorization", f"token {self.token}")
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read()
        return json.loads(text) if text else None

    def log_in(self, name: str, password: str) -> int:
        """Log in with the form of the page, as a browser does; the status of the last page."""
        jar = http.cookiejar.CookieJar()
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        page = browser.open(f"{self.url}/hub/login", timeout=60).read().decode()
        xsrf = re.search(r'name="_xsrf"\s+value="([^"]+)"', page)
        fields = {"username": name, "password": password, "_xsrf": xsrf[1] if xsrf else ""}
        data = urllib.parse.urlencode(fields).encode()
        # /hub/home: logging in alone, without starting a server
        address = f"{self.url}/hub/login?next=%2Fhub%2Fhome"
        try:
            with browser.open(address, data, timeout=60) as response:
                return response.status if response.url.endswith("/hub/home") else 0
        except urllib.error.HTTPError as error:
            return error.code

    def start(self, *names: str) -> None:
        """Start the servers of learners, at once, and wait for all of them."""
        for name in names:
            with contextlib.suppress(urllib.error.HTTPError):  # there already
                self.ask("POST", f"/hub/api/users/{name}")
            self.ask("POST", f"/hub/api/users/{name}/server")
        end = time.monotonic() + 120
        while not all(self._ready(name) for name in names):
            assert time.monotonic() < end, self.log.read_text()[-3000:]
            time.sleep(0.2)

    def _ready(self, name: str) -> bool:
        return self.ask("GET", f"/hub/api/users/{name}")["servers"].get("", {}).get("ready", False)

    def kernel(self, name: str, notebook: str) -> Kernel:
        """A kernel of a learner, opened for a notebook as JupyterLab opens it."""
        import websocket

        body = {"path": notebook, "name": notebook, "type": "notebook",
                "kernel": {"name": "python3"}}  # fmt: skip
        session = self.ask("POST", f"/user/{name}/api/sessions", body)
        address = f"{self.url}/user/{name}/api/kernels/{session['kernel']['id']}/channels"
        line = websocket.create_connection(
            address.replace("http", "ws", 1),
            header=[f"Authorization: token {self.token}"],
            timeout=120,
        )
        self.sockets.append(line)
        return Kernel(line)

    def processes(self, name: str) -> list[psutil.Process]:
        """The running processes of a learner: server, kernels, process server, ranks."""
        return [p for p in marked(self.mark) if _environment(p).get("JUPYTERHUB_USER") == name]


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


@dataclass
class Kernel:
    """A kernel behind a websocket."""

    line: Any

    def send(self, code: str) -> str:
        """Have a cell executed; the number to wait for."""
        number = uuid.uuid4().hex
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {},
                   "allow_stdin": False, "stop_on_error": True}  # fmt: skip
        header = {"msg_id": number, "msg_type": "execute_request", "username": "",
                  "session": number, "date": "", "version": "5.3"}  # fmt: skip
        self.line.send(json.dumps({"header": header, "parent_header": {}, "metadata": {},
                                   "content": content, "channel": "shell"}))  # fmt: skip
        return number

    def finish(self, number: str) -> str:
        """What a cell printed, and the error it ended with."""
        said = ""
        while True:
            message = json.loads(self.line.recv())
            if message["parent_header"].get("msg_id") != number:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                said += content["text"]
            elif kind == "error":
                said += f"{content['ename']}: {content['evalue']}"
            elif kind == "execute_reply":
                return said

    def run(self, code: str) -> str:
        """Execute a cell and wait for it."""
        return self.finish(self.send(code))


def _free_ports() -> int:
    """The first of three free ports in a row."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for number in range(port, port + 3):
                other = stack.enter_context(socket.socket())
                other.bind(("127.0.0.1", number))
            return int(port)


@contextlib.contextmanager
def running_hub(folder: Path, **settings: str) -> Iterator[Hub]:
    """The hub of deploy/ on free ports, its files in `folder`; `settings` are PPLAB_* variables."""
    token, mark, port = secrets.token_hex(16), uuid.uuid4().hex, _free_ports()
    config = folder / "jupyterhub_config.py"
    config.write_text(
        f"load_subconfig({str(CONFIG)!r})\n"
        "c.JupyterHub.services.append({'name': 'test', 'api_token': " + repr(token) + "})\n"
        "c.JupyterHub.load_roles.append({'name': 'test', 'services': ['test'], 'scopes': "
        "['admin:users', 'admin:servers', 'access:servers', 'list:users']})\n"
        f"c.Spawner.environment.update({{'{MARK}': '{mark}', 'PPLAB_RUNS': "
        f"{str(folder / 'records')!r}}})\n"
    )
    environment = {
        **os.environ,
        "PPLAB_HUB_PASSWORD": PASSWORD,
        "PPLAB_HUB_PORT": str(port),
        "PPLAB_HUB_HOMES": str(folder / "homes"),
        MARK: mark,
        **settings,
    }
    for name in ("PYTEST_CURRENT_TEST", "PPLAB_PROGRESS", "PPLAB_LEARNER"):
        environment.pop(name, None)
    log = folder / "hub.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "-f", str(config)],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    hub = Hub(f"http://127.0.0.1:{port}", token, mark, folder / "homes", log)
    try:
        end = time.monotonic() + 60
        while not answers(f"{hub.url}/hub/api/"):
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield hub
    finally:
        for line in hub.sockets:
            with contextlib.suppress(Exception):
                line.close()
        shut_down(process, 20)
        for left in marked(mark):  # only after a failure
            with contextlib.suppress(psutil.Error):
                left.kill()

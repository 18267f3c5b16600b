"""When something goes wrong: the cause comes first, every process ends, the next run works.

Real processes, killed on purpose. The fixture ``clean`` asserts that only the process server is
left three seconds after each test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import pplab
from pplab.core.schedules import one_f_one_b
from tests.runs.processes import MARK, marked, none_left

MS = 1e-3
PACED = pplab.models.paced(MS, 2 * MS)


def run(plan: pplab.Schedule | None = None, model: Any = None, **settings: Any) -> pplab.Run:
    settings = {"steps": 3, "quiet": True, **settings}
    return pplab.run(plan or one_f_one_b(4, 8), model or PACED, **settings)


def assert_next_run_works() -> None:
    assert len(run(one_f_one_b(2, 2)).losses) == 3


def ranks() -> list[psutil.Process]:
    """The rank processes of this process's server, rank 0 first."""
    found = []
    for supervisor in psutil.Process(pplab.warm().process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += supervisor.children()
    return sorted(found, key=lambda r: r.pid)


def when(condition: Callable[[], Any], act: Callable[[], Any]) -> threading.Thread:
    """Do `act` in the background as soon as `condition` holds."""

    def wait() -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if condition():
                time.sleep(0.4)
                act()
                return
            time.sleep(0.02)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def layers_with(bad: str) -> Callable[[], list[Any]]:
    """Four layers, one a stage; the third does something bad in its fifth forward pass."""

    def layers() -> list[Any]:
        import os
        import time

        import torch
        from torch import nn

        class Bad(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear, self.calls = nn.Linear(8, 8), 0

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.calls += 1
                if self.calls == 5:
                    if bad == "raise":
                        raise ValueError("the fifth one is rotten")
                    if bad == "hang":
                        time.sleep(1000)
                    if bad == "exit":
                        os._exit(7)
                return self.linear(x)

        out = 6 if bad == "shape" else 8
        return [nn.Linear(8, 8), nn.Linear(8, out), Bad(), nn.Linear(8, 8)]

    return layers


def vectors(index: int) -> Any:
    import torch

    return torch.ones(4, 8), torch.ones(4, 8)


def own(bad: str) -> Any:
    return pplab.models.own(layers_with(bad), data=vectors)


def test_a_rank_that_raises_is_named_first(clean: str) -> None:
    with pytest.raises(pplab.RunError) as caught:
        run(model=own("raise"))
    first = str(caught.value).splitlines()[0]
    assert first == "rank 2 failed while running F4: ValueError: the fifth one is rotten"
    assert "the fifth one is rotten" in caught.value.traceback
    assert any("rank 3: waits for F4 of rank 2" in line for line in caught.value.details)
    shown = caught.value._render_traceback_()
    assert shown[0].startswith("RunError: rank 2 failed")
    assert_next_run_works()


def test_kill_9_of_a_rank(clean: str) -> None:
    killer = when(lambda: len(ranks()) == 4, lambda: ranks()[1].kill())
    begin = time.monotonic()
    with pytest.raises(pplab.RunError, match=r"^rank 1 was killed by SIGKILL"):
        run(steps=2000)
    killer.join()
    assert time.monotonic() - begin < 20
    assert_next_run_works()


def test_a_rank_that_exits(clean: str) -> None:
    with pytest.raises(pplab.RunError, match=r"^rank 2 ended by itself with exit code 7 while run"):
        run(model=own("exit"))
    assert_next_run_works()


def test_a_wrong_shape_between_stages(clean: str) -> None:
    with pytest.raises(pplab.RunError) as caught:
        run(model=own("shape"))
    first = str(caught.value).splitlines()[0]
    assert first.startswith("rank 2 failed while running F0: RuntimeError: mat1 and mat2 shapes")
    assert_next_run_works()


def test_a_smaller_last_batch(clean: str) -> None:
    def shrinking(index: int) -> Any:
        import torch

        size = 3 if index == 7 else 4
        return torch.ones(size, 8), torch.ones(size, 8)

    with pytest.raises(pplab.RunError) as caught:
        run(model=pplab.models.own(layers_with("nothing"), data=shrinking))
    first = str(caught.value).splitlines()[0]
    assert "rank 0 failed while running F7" in first and "keep one shape" in first
    assert "(3, 8) float32" in first and "(4, 8) float32" in first


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"zero_optimization": {"stage": 2}}, "ZeRO-2 and ZeRO-3 are incompatible with pipeline"),
        ({"zero_optimization": {"stag": 1}}, "stag / Extra inputs are not permitted"),
        ({"train_batch_size": 7}, "7 != "),
    ],
)
def test_a_bad_config_is_deepspeeds_own_words(
    section: dict[str, Any], says: str, clean: str
) -> None:
    with pytest.raises(pplab.RunError) as caught:
        run(one_f_one_b(2, 2), config=section)
    first = str(caught.value).splitlines()[0]
    assert first.startswith("both ranks failed while building the DeepSpeed engine")
    assert says in first
    assert_next_run_works()


def test_too_few_layers_for_the_stages(clean: str) -> None:
    with pytest.raises(pplab.RunError, match="2 layers cannot fill 4 stages"):
        run(model=pplab.models.paced([MS, MS], [MS, MS]))


def test_a_hang_says_what_each_rank_waits_for(clean: str) -> None:
    with pytest.raises(pplab.RunError) as caught:
        run(model=own("hang"), hang_after=1.5)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("the run hangs: nothing has happened for")
    assert "rank 2 runs F4 and does not come back" in lines[0]
    text = "\n".join(lines)
    assert "rank 3: waits for F4 of rank 2, to run F4" in text
    assert "rank 0: waits for B3 of rank 1, to run B3" in text
    log = (caught.value.directory / "rank-2.log").read_text()
    assert "in forward" in log  # the Python stack of the rank that is stuck
    assert_next_run_works()


def test_a_port_that_is_taken(clean: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        for launcher in ("local", "deepspeed"):
            with pytest.raises(pplab.RunError, match=f"port {port} is taken"):
                run(one_f_one_b(2, 2), port=port, launcher=launcher)
    assert_next_run_works()


def test_interrupt_works_at_once(clean: str) -> None:
    stop = when(lambda: len(ranks()) == 4, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run(steps=5000)
    left = ranks()
    stop.join()
    assert not left  # already gone when the interrupt reaches the caller
    assert_next_run_works()


def test_eight_runs_in_a_row(clean: str) -> None:
    losses = [run(one_f_one_b(2, 2), steps=1).losses for _ in range(8)]
    assert losses == losses[:1] * 8


def test_invalid_input_never_starts_anything() -> None:
    with pytest.raises(pplab.ScheduleError, match="rank 0 never runs B1"):
        run(pplab.Schedule.of(["F0 F1 B0", "F0 B0 F1 B1"]))
    with pytest.raises(ValueError, match="dtype is one of fp32, bf16"):
        run(dtype="int3")
    with pytest.raises(TypeError, match=r"use pplab\.models"):
        run(model="gpt2")
    with pytest.raises(ValueError, match="bounds are 5 rising layer numbers"):
        run(bounds=(0, 3, 2, 4, 4))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here (needs root on Linux)")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_disk_costs_the_record_not_the_run(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, clean: str
) -> None:
    def chatty() -> list[Any]:
        from torch import nn

        print("x" * 200_000, flush=True)
        return [nn.Linear(8, 8) for _ in range(4)]

    monkeypatch.setenv("PPLAB_RUNS", str(small_disk))
    done = run(model=pplab.models.own(chatty, data=vectors))
    assert len(done.losses) == 3 and len(done.timeline)
    assert any("logs are incomplete" in w and "No space left" in w for w in done.warnings)
    assert any("record could not be written" in w for w in done.warnings)
    assert "xxx" in done.logs["rank-0"]  # the end of each log is kept in memory
    monkeypatch.undo()
    assert_next_run_works()


NOTEBOOK = """
import sys, pplab
from pplab.core.schedules import one_f_one_b
pplab.run(one_f_one_b(2, 2), pplab.models.paced(.001, .001), quiet=True, keep=False, steps=1)
print("ready", flush=True)
pplab.run(one_f_one_b(2, 4), pplab.models.paced(.01, .02), quiet=True, keep=False, steps={steps})
print("done", flush=True)
"""


def other_notebook(steps: int) -> tuple[subprocess.Popen[str], str]:
    """Another process, as another notebook's kernel would be, in the middle of a run."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-c", NOTEBOOK.format(steps=steps)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: mark},
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.6)
    return process, mark


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_kernel_restart_leaves_nothing_behind(how: signal.Signals) -> None:
    process, mark = other_notebook(steps=2000)
    assert len(marked(mark)) >= 5  # notebook, server, supervisor, two ranks
    process.send_signal(how)
    process.wait(10)
    assert not none_left(mark)


def test_kill_9_of_the_server_leaves_nothing_behind() -> None:
    process, mark = other_notebook(steps=2000)
    server = next(p for p in marked(mark) if "pplab.runtime.server" in p.cmdline())
    server.kill()
    process.wait(10)
    assert process.returncode != 0
    assert not none_left(mark)


def test_two_notebooks_at_once(clean: str) -> None:
    process, mark = other_notebook(steps=20)
    mine = run(steps=30)
    assert len(mine.losses) == 30
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and out == "done\n"
    assert not none_left(mark)

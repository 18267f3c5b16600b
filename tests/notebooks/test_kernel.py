"""A run inside a real Jupyter kernel: progress, interrupt, restart, a failing cell."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client import BlockingKernelClient, KernelManager

from tests.runs.processes import MARK, marked, none_left

SETUP = """
import pplab
from pplab import models, schedules
plan = schedules.one_f_one_b(stages=2, micro_batches=4)
"""
LONG = "pplab.run(plan, models.paced(.005, .01), steps=100000, keep=False)"
RANKS = 5  # kernel, server, supervisor, two ranks


class Notebook:
    """A kernel and the messages of the cells it runs."""

    def __init__(self, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.manager = KernelManager(kernel_name="python3")
        environment = {**os.environ, MARK: self.mark, "PPLAB_RUNS": str(folder)}
        self.manager.start_kernel(env=environment, cwd=str(folder))
        self.client = self.manager.client()
        self._begin(self.client)

    def _begin(self, client: BlockingKernelClient) -> None:
        client.start_channels()
        client.wait_for_ready(timeout=60)

    def start(self, code: str) -> str:
        """Begin a cell; the id of its messages."""
        return self.client.execute(code)

    def finish(self, cell: str, patience: float = 60) -> list[dict[str, Any]]:
        """The messages of a cell until the kernel is idle again."""
        found, end = [], time.monotonic() + patience
        while time.monotonic() < end:
            message = self.client.get_iopub_msg(timeout=patience)
            if message["parent_header"].get("msg_id") != cell:
                continue
            content = message["content"]
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                return found
            found.append(message)
        raise AssertionError("the cell did not end")

    def run(self, code: str) -> list[dict[str, Any]]:
        """Run a cell to its end."""
        return self.finish(self.start(code))

    def wait_for_ranks(self) -> None:
        """Until a run is under way."""
        end = time.monotonic() + 60
        while len(marked(self.mark)) < RANKS and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(0.5)
        assert len(marked(self.mark)) >= RANKS


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    """A notebook in which pplab is imported; at its end nothing is left of it."""
    book = Notebook(tmp_path)
    book.run(SETUP)
    yield book
    book.client.stop_channels()
    book.manager.shutdown_kernel(now=True)
    assert not none_left(book.mark)


def errors(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [m["content"] for m in messages if m["msg_type"] == "error"]


def test_progress_is_one_output_updated_in_place(notebook: Notebook) -> None:
    messages = notebook.run("run = pplab.run(plan, models.paced(.02, .04), steps=4, keep=False)")
    assert not errors(messages)
    shown = [m["content"] for m in messages if m["msg_type"] == "display_data"]
    updates = [m["content"] for m in messages if m["msg_type"] == "update_display_data"]
    assert len(shown) == 1 and len(updates) >= 4
    assert {u["transient"]["display_id"] for u in updates} == {shown[0]["transient"]["display_id"]}
    texts = [u["data"]["text/plain"] for u in updates]
    assert any("step 2/4, loss 0." in t and "samples/s" in t and "s left" in t for t in texts)
    last = updates[-1]["data"]["text/html"]
    assert "<summary>Output of each rank</summary>" in last and "rank-1" in last


def test_interrupt_stops_the_run_at_once_and_the_kernel_goes_on(notebook: Notebook) -> None:
    cell = notebook.start(LONG)
    notebook.wait_for_ranks()
    notebook.manager.interrupt_kernel()
    begin = time.monotonic()
    found = errors(notebook.finish(cell))
    assert [e["ename"] for e in found] == ["KeyboardInterrupt"]
    assert time.monotonic() - begin < 5
    assert not none_left(notebook.mark, besides=2)  # kernel and server
    messages = notebook.run("print(len(pplab.run(plan, models.paced(.001, .001)).losses))")
    assert not errors(messages)
    assert "3\n" in [m["content"].get("text") for m in messages]


@pytest.mark.parametrize("now", [True, False], ids=["killed", "asked to end"])
def test_restart_in_the_middle_of_a_run_leaves_nothing(notebook: Notebook, now: bool) -> None:
    notebook.start(LONG)
    notebook.wait_for_ranks()
    before = {p.pid for p in marked(notebook.mark)}
    notebook.manager.restart_kernel(now=now)
    notebook.client.wait_for_ready(timeout=60)
    end = time.monotonic() + 3
    while before & {p.pid for p in marked(notebook.mark)} and time.monotonic() < end:
        time.sleep(0.05)
    assert not before & {p.pid for p in marked(notebook.mark)}
    assert not errors(notebook.run(SETUP + "pplab.run(plan, models.paced(.001, .001))"))


def test_a_failing_layer_of_a_cell_is_shown_with_its_line(notebook: Notebook) -> None:
    messages = notebook.run(
        "def layers():\n"
        "    from torch import nn\n"
        "    class Bad(nn.Module):\n"
        "        def forward(self, x):\n"
        "            raise ValueError('rotten')  # the line to find\n"
        "    return [nn.Linear(4, 4), nn.Linear(4, 4), Bad()]\n"
        "def data(k):\n"
        "    import torch\n"
        "    return torch.ones(2, 4), torch.ones(2, 4)\n"
        "pplab.run(plan, models.own(layers, data=data), bounds=(0, 1, 3))\n"
    )
    (error,) = errors(messages)
    shown = "\n".join(error["traceback"])
    assert shown.startswith("RunError: rank 1 failed")
    assert "line 5 of your cell: raise ValueError('rotten')  # the line to find" in shown
    assert "supervisor" not in shown  # nothing of pplab's own plumbing in the kernel

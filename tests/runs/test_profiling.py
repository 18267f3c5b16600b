"""Layers are measured in a process of their own; whatever happens there, nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pplab
from pplab import models
from pplab.core.partition import partition
from pplab.core.profile import Profile
from pplab.core.schedules import one_f_one_b
from tests.runs.processes import MARK, marked, none_left
from tests.runs.test_failures import ranks, when

X = [[1.0] * 8] * 4
GPT = models.gpt(layers=3, width=32, context=32)


def profile(model: Any, sample: Any = None, **options: Any) -> Profile:
    return pplab.profile(model, sample, **{"repeats": 3, "quiet": True, **options})


def assert_the_next_one_works() -> None:
    assert len(profile(models.paced([1e-4], [1e-4]))) == 1


def test_a_gpt_and_the_run_of_it(clean: str) -> None:
    found = profile(GPT)
    plan = one_f_one_b(1, 2)
    run = pplab.run(plan, GPT, steps=1, quiet=True, keep=False, keep_parameters=True)
    assert [layer.kind for layer in found.layers] == ["Embedding", *["Block"] * 3, "Head"]
    assert found.source == "measured: computed, 1 thread, fp32" and found.samples == 4
    counts = np.zeros(len(found), dtype=int)
    for name, value in run.parameters.items():
        counts[int(name.split(".")[0])] += value.size
    assert found.column("parameters").tolist() == counts.tolist()
    assert found.column("parameter_bytes").sum() == run.memory[0]["parameters"]
    assert found.column("activation_bytes").sum() == run.memory[0]["activation_bytes"]
    assert found.layers[1].output_bytes == 4 * 32 * 32 * 4  # samples x bytes x width x float32
    assert (found.forward > 0).all() and (found.backward > 0).all()
    assert partition(found, 2).bounds[0] == 0
    assert Profile.from_json(found.to_json()) == found


def test_tied_layers_and_tuples(clean: str) -> None:
    found = profile(models.gpt(layers=1, width=32, context=16, tied=True, positions=True))
    assert found.tied == {"bytes": (0, 3)}
    positions = 4 * 16 * 8  # int64 ids travel along with the vectors
    assert found.layers[0].output_bytes == 4 * 16 * 32 * 4 + positions


def test_bf16_halves_the_bytes(clean: str) -> None:
    full, half = profile(GPT), profile(GPT, dtype="bf16")
    assert (2 * half.column("parameter_bytes") == full.column("parameter_bytes")).all()
    assert 2 * half.layers[1].output_bytes == full.layers[1].output_bytes
    assert half.source.endswith("bf16")


def test_paced_layers_take_at_least_their_time_and_say_so(clean: str) -> None:
    found = profile(models.paced([0.002, 0.006], [0.004, 0.012]))
    assert found.source == "measured: paced"
    assert (found.forward >= [0.0018, 0.0054]).all()
    assert (found.backward >= [0.0036, 0.0108]).all()


def layers() -> list[Any]:
    from torch import nn

    first, second = nn.Linear(8, 8), nn.Linear(8, 3)
    first.bias.requires_grad_(False)
    return [first, nn.ReLU(inplace=True), second]


def test_layers_made_in_a_function_and_a_sample(clean: str) -> None:
    found = profile(layers, X)
    assert [layer.kind for layer in found.layers] == ["Linear", "ReLU", "Linear"]
    assert found.column("parameters").tolist() == [64, 0, 27]  # the frozen bias is not counted
    assert found.column("parameter_bytes").tolist() == [72 * 4, 0, 27 * 4]
    assert any("layer 1 (ReLU) overwrites the input" in note for note in found.notes)
    assert any("no loss was given" in note for note in found.notes)


def test_a_sequential_from_a_factory_with_integers(clean: str) -> None:
    def net() -> Any:
        from torch import nn

        return nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 2))

    found = profile(net, np.arange(6).reshape(2, 3))
    assert [layer.output_bytes for layer in found.layers] == [2 * 3 * 8 * 4, 2 * 3 * 2 * 4]
    assert found.samples == 2


def test_a_learners_own_model(clean: str) -> None:
    def data(index: int) -> Any:
        import torch

        return torch.ones(4, 8), torch.ones(4, 3)

    found = profile(models.own(layers, data=data))
    assert any("the loss is counted with the last layer" in note for note in found.notes)


def test_modules_of_a_process_that_has_torch() -> None:
    """The kernel may have imported torch itself: objects travel, also specs and a Sequential."""
    code = (
        "import torch, pplab\n"
        "from torch import nn\n"
        "from deepspeed.pipe import LayerSpec, TiedLayerSpec\n"
        "shared = nn.Linear(8, 8)\n"
        "q = dict(repeats=3, quiet=True)\n"
        "x = torch.ones(4, 8)\n"
        "a = pplab.profile([shared, torch.tanh, LayerSpec(nn.Linear, 8, 8), shared], x, **q)\n"
        "b = pplab.profile(nn.Sequential(nn.Linear(8, 2), nn.Softmax(-1)), x, **q)\n"
        "print([layer.kind for layer in a.layers], a.tied)\n"
        "print([layer.kind for layer in b.layers])\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-2:] == [
        "['Linear', 'tanh', 'Linear', 'Linear'] {'weights of layer 0': (0, 3)}",
        "['Linear', 'Softmax']",
    ]


def bad(kind: str) -> Callable[[], list[Any]]:
    """Two layers, the second of which does something bad in its fifth forward pass."""

    def made() -> list[Any]:
        import os
        import time

        from torch import nn

        class Bad(nn.Module):
            calls = 0

            def forward(self, x: Any) -> Any:
                self.calls += 1
                if self.calls == 5:
                    if kind == "raise":
                        raise ValueError("rotten")
                    if kind == "exit":
                        os._exit(7)
                    time.sleep(1000)
                return {"x": x} if kind == "dictionary" else x

        return [nn.Linear(8, 8 if kind != "shape" else 7), Bad(), nn.Linear(8, 8)]

    return made


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("raise", r"^the profile failed while running the forward pass of layer 1 \(Bad\).*"
                  ": ValueError: rotten"),
        ("exit", r"^the profile ended by itself with exit code 7 while running the forward pass of "
                 r"layer 1 \(Bad\)"),
        ("shape", r"^the profile failed while running the forward pass of layer 2 \(Linear\).*"
                  "RuntimeError: mat1 and mat2 shapes"),
        ("dictionary", r"layer 1 \(Bad\) hands on dict; between pipeline layers travels a tensor"),
        ("hang", r"^the profile hangs: nothing has happened for . s; it runs the forward pass of "
                 r"layer 1 \(Bad\).* and does not come back$"),
    ],
)  # fmt: skip
def test_the_layer_that_fails_is_named(kind: str, says: str, clean: str) -> None:
    with pytest.raises(pplab.RunError, match=says):
        profile(bad(kind), X, hang_after=1.0 if kind == "hang" else 60)
    assert_the_next_one_works()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (lambda: [], "the list of layers is empty"),
        (lambda: 3, "int is not a list of layers"),
        (lambda: [3], "layer 0 is int, not an nn.Module, LayerSpec or function"),
        (lambda: [__import__("torch").nn.ReLU], r"layer 0 is the class ReLU.*write ReLU\(\.\.\.\)"),
        (
            lambda: __import__("torch").nn.Linear(8, 8),
            "Linear is one module, and a pipeline is cut",
        ),
        ({"model_type": "no-such-model"}, "no-such-model|needs transformers"),
    ],
)
def test_what_is_no_list_of_layers(model: Any, says: str, clean: str) -> None:
    with pytest.raises(pplab.RunError, match=says):
        profile(model, None if isinstance(model, dict) else X)


def test_no_gpu_is_said() -> None:
    if pplab.hardware().gpus:
        pytest.skip("there is a GPU here")
    with pytest.raises(pplab.RunError, match=r"^the profile could not start: device='cuda'"):
        profile(GPT, device="cuda")


SLOW = models.paced([0.01] * 4, [0.02] * 4)


def test_kill_9_of_the_process_that_measures(clean: str) -> None:
    killer = when(lambda: len(ranks()) == 1, lambda: ranks()[0].kill())
    with pytest.raises(pplab.RunError, match=r"^the profile was killed by SIGKILL"):
        profile(SLOW, repeats=500)
    killer.join()
    assert_the_next_one_works()


def test_an_interrupt_works_at_once(clean: str) -> None:
    stop = when(lambda: len(ranks()) == 1, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        profile(SLOW, repeats=500)
    assert not ranks()
    stop.join()
    assert_the_next_one_works()


def test_it_stops_when_its_time_is_over(clean: str) -> None:
    begin = time.monotonic()
    found = profile(SLOW, repeats=5000, seconds=0.5)
    assert time.monotonic() - begin < 60
    assert found.notes[0].startswith("medians of 5 repeats")


NOTEBOOK = """
import pplab
from pplab import models
pplab.profile(models.paced([.001], [.001]), repeats=3, quiet=True)
print("ready", flush=True)
pplab.profile(models.paced([.01] * 4, [.02] * 4), repeats=5000, quiet=True)
"""


def test_a_kernel_that_dies_takes_the_measurement_along() -> None:
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-c", NOTEBOOK],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: mark},
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.6)
    assert len(marked(mark)) == 4  # kernel, server, supervisor, the process that measures
    process.kill()
    process.wait(10)
    process.stdout.close()
    assert not none_left(mark)

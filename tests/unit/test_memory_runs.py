"""What is counted in the ranks, and what is shown of it: without any processes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pplab
from pplab.core.memory import model_states
from pplab.runtime.hardware import Hardware
from pplab.runtime.job import Job
from pplab.runtime.zero.offload import offload
from pplab.runtime.zero.sent import Sent
from pplab.view.memory import MemoryBars, _alike, compare_memory
from pplab.view.memory_card import COLOURS, picture

torch = pytest.importorskip("torch")


# -- activations ----------------------------------------------------------------------------------


def chain() -> Any:
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8), torch.nn.Tanh()
    )


def test_bytes_are_alive_until_the_backward_pass_and_counted_once() -> None:
    from pplab.runtime.activations import SavedBytes

    net, counter = chain(), None
    counter = SavedBytes(net)
    losses = []
    for _ in range(3):
        with counter:
            losses.append(net(torch.ones(4, 8)).sum())
    # each pass keeps its input and both results of tanh; weights are no activations
    one = 4 * (4 * 8 + 4 * 16 + 4 * 8)
    assert counter.saved.alive == counter.saved.peak == 3 * one
    losses.pop(0).backward()
    assert (counter.saved.alive, counter.saved.peak) == (2 * one, 3 * one)
    losses.clear()  # never run backward: the graph is dropped, and so are its bytes
    assert counter.saved.alive == 0


def test_what_is_held_beside_it_counts_until_it_is_let_go() -> None:
    from pplab.runtime.activations import SavedBytes

    counter = SavedBytes(chain())
    buffer = torch.zeros(10)
    outputs = counter.hold([buffer, buffer[2:5]])  # one storage, twice
    assert counter.held.alive == 40 and counter.saved.alive == 0
    del outputs[0]
    assert counter.held.alive == 40
    outputs.clear()
    assert (counter.held.alive, counter.held.peak) == (0, 40)


def test_gradients_are_the_same_with_and_without_the_hooks() -> None:
    from pplab.runtime.activations import SavedBytes

    torch.manual_seed(0)
    net, x = chain(), torch.randn(4, 8)
    net(x).sum().backward()
    plain = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    with SavedBytes(net):
        loss = net(x).sum()
    loss.backward()
    assert all(torch.equal(p.grad, q) for p, q in zip(net.parameters(), plain, strict=True))


def test_weights_that_move_within_a_pass_are_still_weights() -> None:
    """As under ZeRO-3: a parameter gets its storage just before its layer runs."""
    from pplab.runtime.activations import SavedBytes

    linear = torch.nn.Linear(8, 8)
    whole = linear.weight.data
    linear.weight.data = torch.empty(0)
    gather = linear.register_forward_pre_hook(
        lambda *_: setattr(linear.weight, "data", whole.clone())
    )
    counts = {}
    for moving in (False, True):
        counter = SavedBytes(linear, moving=moving)
        linear.weight.data = torch.empty(0)
        with counter:
            y = linear(torch.ones(2, 8, requires_grad=True))
        counts[moving] = counter.saved.alive
        del y
    gather.remove()
    assert counts == {False: 4 * (64 + 16), True: 4 * 16}


def test_storages_are_counted_once_and_by_kind() -> None:
    from pplab.runtime.zero.owned import owned

    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    found = owned(net, optimizer)
    numbers = 4 * (64 + 8)
    assert found["parameters"] == found["gradients"] == numbers
    assert found["optimizer"] == 2 * numbers + 2 * 4  # two means, and two counters of steps
    flat = torch.zeros(100)  # parameters and gradients in one storage, as ZeRO's buffers are
    net.weight.data, net.bias.data = flat[:64].view(8, 8), flat[64:72]
    net.weight.grad = flat[:64].view(8, 8)
    found = owned(net, optimizer)
    assert found["parameters"] == 400 and found["gradients"] == 32


# -- the calculator -------------------------------------------------------------------------------


def test_zero_copies_its_part_of_fp32_parameters() -> None:
    """Measured in tests/runs/test_zero.py: 8 bytes a parameter without ZeRO, 12 / N with it."""
    assert model_states(1, precision="fp32").optimizer == 8
    for zero in (1, 2, 3):
        assert model_states(1, zero=zero, replicas=4, precision="fp32").optimizer == 3
    assert model_states(1, zero=1, replicas=4, precision="fp16").optimizer == 3


# -- what is said of messages ---------------------------------------------------------------------


def rows() -> list[dict[str, Any]]:
    kinds = [(0, "F", 9, 900), (1, "F", 3, 300), (1, "B", 3, 300), (1, "U", 1, 8)]
    names = ("step", "during", "calls", "bytes")
    more = {"micro_batch": 0, "message": "all-gather", "ns": 5}
    return [dict(zip(names, kind, strict=True)) | more for kind in kinds]


def test_messages_of_the_last_step_add_up() -> None:
    sent = Sent.of(rows(), 4)
    assert (sent.calls(), sent.calls("F"), sent.calls("FB"), sent.calls("G")) == (7, 3, 6, 0)
    assert sent.bytes() == 608 and sent.bytes("U", "all-gather") == 8
    assert sent.calls(message="broadcast") == 0
    lines = str(sent).splitlines()
    assert lines[0] == "one step, 4 micro-batches, as seen from one rank:"
    assert lines[2].split() == ["all-gather", "3", "3", "1", "7", "608", "B"]
    assert "nothing sent" in str(Sent.of([], 4))


# -- pictures -------------------------------------------------------------------------------------


def fake(zero: int, optimizer: float, replicas: int = 4) -> Any:
    memory = {
        "whole_parameters": 1000, "parameters": 4000, "gradients": 4000, "optimizer": optimizer,
        "buckets": 0, "in_buckets": 0,
    }  # fmt: skip
    job = Job(pplab.models.gpt(), 1, 2, engine="zero", zero=zero, replicas=replicas, lr=1e-3)
    return SimpleNamespace(job=job, memory=[dict(memory) for _ in range(replicas)])


def test_bars_say_what_was_predicted_and_what_was_found() -> None:
    bars = compare_memory(fake(0, 8000), fake(1, 3300))
    assert [row.who for row in bars.rows] == ["ranks 0-3, alike"] * 2
    assert bars["ZeRO-0"].error == 0 and bars["ZeRO-1"].told == 11_000
    assert bars.error == pytest.approx(abs(11_000 / 11_300 - 1))
    assert "ZeRO-1, ranks 0-3, alike: 11.3 kB (predicted 11.0 kB)" in str(bars)
    assert all(line.startswith("[measured] ") for line in str(bars).splitlines())
    with pytest.raises(KeyError, match="there are ZeRO-0, ZeRO-1"):
        bars["ZeRO-2"]
    shown = bars._repr_mimebundle_()
    assert base64.b64decode(shown["image/png"]).startswith(b"\x89PNG")
    assert shown["text/plain"] == str(bars)


def test_ranks_that_differ_stay_apart() -> None:
    run = fake(0, 8000)
    run.memory[2]["optimizer"] = 9000
    assert [row.who for row in compare_memory(run).rows] == [
        "ranks 0-1, alike", "rank 2", "rank 3",
    ]  # fmt: skip
    assert len(_alike(list(compare_memory(run, fake(0, 8000)).rows))) == 3


def test_a_pipeline_needs_a_profile() -> None:
    run = fake(0, 8000)
    plan = pplab.schedules.one_f_one_b(2, 4)
    run.job = Job(pplab.models.gpt(), 2, 4, plan)
    run.timeline = SimpleNamespace(schedule="1F1B")
    with pytest.raises(ValueError, match=r"profile=pplab\.profile"):
        compare_memory(run)


def test_every_part_reads_in_black_or_white_and_on_the_page() -> None:
    from pplab.view.colours import WORK, contrast, ink_on, mix

    for colour in COLOURS.values():
        assert contrast(ink_on(colour), colour) >= 4.5
        assert contrast(colour, "#ffffff") >= 3  # the edge of an outlined bar
        assert contrast("#1b1f24", mix("#ffffff", colour, 0.2)) >= 4.5
        assert colour not in WORK.values()
    bars = compare_memory(fake(0, 8000))
    assert picture(bars).get_size_inches()[0] == pytest.approx(8.6)
    assert isinstance(bars, MemoryBars)


# -- offload and jobs -----------------------------------------------------------------------------


def test_offload_is_blocked_for_a_reason_or_possible(tmp_path: Path) -> None:
    laptop = Hardware("cpu", 2, 8 << 30, (), "Linux x86_64")
    cpu, nvme = offload(laptop, headers=[tmp_path / "libaio.h"])
    assert not cpu.possible and "blocked, because there is no GPU" in str(cpu)
    assert not nvme.possible and "libaio" in str(nvme) and "only ZeRO-3" in str(nvme)
    (tmp_path / "libaio.h").touch()
    server = Hardware("cpu", 2, 8 << 30, ("H200",), "Linux x86_64")
    assert all(v.possible for v in offload(server, headers=[tmp_path / "libaio.h"]))


def test_the_job_of_zero_ranks_is_kept_and_says_its_real_stage() -> None:
    job = Job(
        pplab.models.gpt(), 1, 4, engine="zero", zero=3, replicas=4,
        config={"zero_optimization": {"stage": 2}},
    )  # fmt: skip
    assert (job.world, job.zero_stage, job.samples_per_step) == (4, 2, 64)
    again = Job.from_json(json.loads(json.dumps(job.as_json())))
    assert again == job
    with pytest.raises(ValueError, match="has no pipeline"):
        Job(pplab.models.gpt(), 1, 4, pplab.schedules.one_f_one_b(1, 4), engine="zero")

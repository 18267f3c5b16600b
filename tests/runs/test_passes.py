"""Passes without DeepSpeed's wrappers (``pplab/runtime/passes.py``) compute what they compute.

Any DeepSpeed setting of one's own brings the wrappers back: the same run with and without.
"""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import pytest
import torch
from deepspeed.pipe import LayerSpec

import pplab
from pplab.core.schedules import dualpipev, gpipe, interleaved, one_f_one_b, pipedream, zb_h1
from pplab.runtime.job import Job
from pplab.runtime.passes import can_be_direct

SMALL = {"layers": 4, "width": 32, "heads": 2, "context": 16}
WRAPPED = {"steps_per_print": 1_000_000}
#: What is counted in bytes and does not depend on the process it is counted in.
COUNTED = ("activation_bytes", "activation_peak", "held_peak", "gradients", "parameters")


def run(plan: pplab.Schedule, options: dict[str, Any], **settings: Any) -> pplab.Run:
    settings = {"zero": 0, "steps": 3, "keep_parameters": True, "quiet": True, **settings}
    return pplab.run(plan, pplab.models.gpt(**SMALL, **options), keep=False, **settings)


CASES: dict[str, tuple[pplab.Schedule, dict[str, Any], dict[str, Any]]] = {
    "1f1b": (one_f_one_b(3, 5), {}, {}),
    "gpipe": (gpipe(2, 3), {}, {}),
    "one stage": (one_f_one_b(1, 3), {}, {}),
    "two chunks a rank": (interleaved(2, 4), {}, {}),
    "the loss on rank 0": (dualpipev(2, 4), {}, {}),
    "split backward passes": (zb_h1(2, 4), {}, {}),
    "updates midway": (pipedream(2, 4), {}, {}),
    "tied layers": (one_f_one_b(3, 4), {"tied": True}, {}),
    "tuples": (one_f_one_b(3, 4), {"positions": True}, {}),
    "dropout": (one_f_one_b(2, 3), {"dropout": 0.3}, {}),
    "replicas": (one_f_one_b(2, 2), {}, {"replicas": 2}),
    "sliced layers": (one_f_one_b(2, 2), {}, {"tensor": 2}),
    "clipping": (one_f_one_b(1, 4), {}, {"gradient_clipping": 0.05}),
    "recomputed activations": (one_f_one_b(2, 4), {}, {"activation_checkpoint_interval": 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_losses_parameters_and_memory_are_the_same_to_the_last_bit(case: str, clean: str) -> None:
    plan, options, settings = CASES[case]
    direct = run(plan, options, **settings)
    wrapped = run(plan, options, config=WRAPPED, **settings)
    assert direct.losses == wrapped.losses
    assert len(direct.losses) == len(direct.step_times) == 3
    assert direct.micro_losses == wrapped.micro_losses
    for name, value in wrapped.parameters.items():
        np.testing.assert_array_equal(direct.parameters[name], value, err_msg=name)
    for mine, other in zip(direct.memory, wrapped.memory, strict=True):
        assert {k: mine.get(k) for k in COUNTED} == {k: other.get(k) for k in COUNTED}


def test_only_where_deepspeeds_wrappers_have_nothing_to_do() -> None:
    def job(**settings: Any) -> Job:
        model, plan = pplab.models.paced(1e-3, 2e-3), one_f_one_b(2, 4)
        return Job(model=model, schedule=plan, stages=2, micro_batches=4, **settings)

    assert can_be_direct(job(zero=0))
    assert not can_be_direct(job(zero=1))
    assert not can_be_direct(job(zero=0, dtype="bf16"))
    assert not can_be_direct(job(zero=0, config=WRAPPED))


def vectors(index: int) -> Any:
    x = torch.full((2, 4), 1.0 + index)
    return x, x


class Tells(torch.nn.Linear):
    """A layer that prints whether DeepSpeed is among those who called it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        files = [frame.filename for frame in traceback.extract_stack()]
        print("through DeepSpeed" if any("/deepspeed/" in file for file in files) else "straight")
        return super().forward(x)


@pytest.mark.parametrize(("config", "word"), [({}, "straight"), (WRAPPED, "through DeepSpeed")])
def test_who_calls_a_layer(config: dict[str, Any], word: str, clean: str) -> None:
    model = pplab.models.own([LayerSpec(Tells, 4, 4)] * 2, data=vectors)
    done = pplab.run(
        one_f_one_b(2, 2), model, zero=0, steps=1, config=config, quiet=True, keep=False
    )
    for log in done.logs.values():
        said = [line for line in log.splitlines() if line in ("straight", "through DeepSpeed")]
        assert said == [word] * 2


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda y: None, "the loss function must return a tensor, not NoneType"),
        (lambda y: y.sum(1), "the loss must be one number, not a tensor of shape (2,)"),
    ],
)
def test_what_is_no_loss_is_said_so(returned: Any, words: str, zero: int, clean: str) -> None:
    def loss(outputs: Any, labels: Any) -> Any:
        return returned(outputs)

    model = pplab.models.own([LayerSpec(torch.nn.Linear, 4, 4)] * 2, loss=loss, data=vectors)
    with pytest.raises(pplab.RunError) as caught:
        pplab.run(one_f_one_b(2, 2), model, zero=zero, steps=1, quiet=True, keep=False)
    assert str(caught.value).splitlines()[0].startswith("rank 1 failed while running F0")
    assert words in str(caught.value).splitlines()[0]


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize(
    ("made", "words"),
    [
        ((3, 4), "a tensor or a tuple of tensors each, not int"),
        (((torch.ones(2, 4), 3), None), "a tuple of tensors each, not tuple of Tensor, int"),
        (torch.ones(2, 4), "data gives (inputs, labels) for every micro-batch, not a Tensor"),
        (
            (torch.ones(2, 4),),
            "data gives (inputs, labels) for every micro-batch, not a tuple of 1",
        ),
    ],
)
def test_what_is_no_batch_is_said_so(made: Any, words: str, zero: int, clean: str) -> None:
    model = pplab.models.own([LayerSpec(torch.nn.Linear, 4, 4)] * 2, data=lambda index: made)
    with pytest.raises(pplab.RunError) as caught:
        pplab.run(one_f_one_b(2, 2), model, zero=zero, steps=1, quiet=True, keep=False)
    assert words in str(caught.value).splitlines()[0]


@pytest.mark.parametrize("zero", [0, 1])
def test_a_loss_may_do_without_labels(zero: int, clean: str) -> None:
    def small(outputs: Any, labels: Any) -> Any:
        assert labels is None
        return outputs.square().mean()

    layers = [LayerSpec(torch.nn.Linear, 4, 4)] * 2
    model = pplab.models.own(layers, loss=small, data=lambda index: (torch.ones(2, 4), None))
    done = pplab.run(one_f_one_b(2, 2), model, zero=zero, steps=2, lr=0.01, quiet=True, keep=False)
    assert done.losses[1] < done.losses[0]

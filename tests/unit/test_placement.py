"""Which device and backend a job gets, on machines that are not here."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from deepspeed import comm
from deepspeed.runtime.pipe import p2p

from pplab.core.hostfile import Host
from pplab.core.schedules import one_f_one_b
from pplab.runtime import server, train
from pplab.runtime.hosts.network import ADDRESSES
from pplab.runtime.job import Job
from pplab.runtime.launch import placement, ranks_together
from pplab.runtime.models import gpt, paced
from pplab.runtime.nets.paced import PacedLayer


def placed(gpus: int, **settings: Any) -> dict[str, Any]:
    plan = one_f_one_b(2, 4)
    given = {"model": gpt(), "stages": 2, "micro_batches": 4, "schedule": plan, **settings}
    job = Job(**given).as_json()
    environment = {"LOCAL_WORLD_SIZE": "1"}
    crowd = ranks_together({"job": job, "environment": environment})
    return placement(job, {"cuda_devices": gpus}, crowd)


def test_a_gpu_for_each_rank_or_one_for_several() -> None:
    nccl, staged, cpu = placed(2), placed(1), placed(0)
    assert (nccl["device"], nccl["backend"], nccl["staged"]) == ("cuda", "nccl", False)
    assert (staged["device"], staged["backend"], staged["staged"]) == ("cuda", "gloo", True)
    assert (cpu["device"], cpu["why"]) == ("cpu", "CPU and gloo: torch sees no CUDA GPU here")
    assert placed(2, device="cpu")["why"] == "CPU and gloo, as asked"
    assert placed(2, backend="gloo")["staged"]
    with pytest.raises(OSError, match="NCCL needs a GPU per rank: 2 ranks, 1 GPUs"):
        placed(1, backend="nccl")
    with pytest.raises(OSError, match="torch sees no CUDA GPU here"):
        placed(0, device="cuda")


def test_what_a_gpu_is_not_for_stays_on_the_cpu_unless_it_is_asked_for() -> None:
    zero = {"engine": "zero", "schedule": None, "stages": 1, "replicas": 4}
    late = {"model": paced(), "faults": {"link": 0.01}}
    for gpus, settings in ((1, {"model": paced()}), (4, late), (1, zero)):
        where = placed(gpus, **settings)
        assert (where["device"], where["backend"], where["staged"]) == ("cpu", "gloo", False)
        assert "torch sees no" not in where["why"] and "as asked" not in where["why"]
        assert placed(gpus, device="cuda", **settings)["device"] == "cuda"
    assert placed(4, **zero)["backend"] == placed(4, model=paced())["backend"] == "nccl"


def test_ranks_share_the_gpus_of_their_own_machine_only() -> None:
    two = {"launcher": "deepspeed", "hosts": (Host("a", 1), Host("b", 1))}
    assert placed(1, **two)["backend"] == "nccl"
    here = {"launcher": "deepspeed", "hosts": tuple(Host(name, 1) for name in ADDRESSES)}
    assert placed(1, **here)["staged"]  # both "hosts" are this machine


def test_messages_of_dualpipev_are_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    class Arrives:
        def __init__(self, one: Any) -> None:
            self.one = one

        def wait(self) -> None:
            self.one.tensor.fill_(7)

    def batch(operations: list[Any]) -> list[Arrives]:
        sent.extend(one.tensor for one in operations if one.op == "isend")
        return [Arrives(one) for one in operations if one.op == "irecv"]

    monkeypatch.setattr(comm, "batch_isend_irecv", batch)
    for name in ("send", "recv"):  # so that they are put back
        monkeypatch.setattr(p2p, name, getattr(p2p, name))
    train._stage_p2p()
    made, wanted = torch.ones(3), torch.zeros(3, requires_grad=True)
    operations = [comm.P2POp(comm.isend, made, 1), comm.P2POp(comm.irecv, wanted, 1)]
    assert comm.batch_isend_irecv(operations) == []
    assert wanted.tolist() == [7, 7, 7] and wanted.is_leaf
    assert [tensor.tolist() for tensor in sent] == [[1, 1, 1]]


def test_the_time_of_a_paced_layer_begins_when_its_input_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Late(torch.Tensor):
        is_cuda = True

    class Stream:
        def synchronize(self) -> None:
            time.sleep(0.05)

    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    layer = PacedLayer(4, 0.02, 0.02, 0.01)
    begin = time.perf_counter()
    layer(torch.zeros(2, 4).as_subclass(Late))
    assert time.perf_counter() - begin > 0.07


def test_gpus_are_counted_in_a_child_that_starts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    here = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "init", lambda: here.append("touched"))
    assert server.usable_gpus() == 3 and not here

    def too_old() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old")

    monkeypatch.setattr(torch.cuda, "init", too_old)
    assert server.usable_gpus() == 0

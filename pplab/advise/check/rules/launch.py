"""How the job is started: the command, the environment of a rank, the host file.

Needs ``command``, ``env`` (of one rank, or a list with one a rank) or ``hostfile`` (its text).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from pplab.advise.check.command import Command, parse
from pplab.advise.check.finding import Finding
from pplab.advise.check.job import Job
from pplab.core.hostfile import host_lines

NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
#: Options of scripts -> key of the config that DeepSpeed reads instead.
SAME = {
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "train_batch_size": "train_batch_size",
    "global_batch_size": "train_batch_size",
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "per_device_train_batch_size": "train_micro_batch_size_per_gpu",
    "train_micro_batch_size_per_gpu": "train_micro_batch_size_per_gpu",
}


def _command(job: Job) -> Command | None:
    try:
        return parse(job.command) if job.command else None
    except ValueError:
        return None


def command(job: Job) -> Iterator[Finding]:
    """The launcher, and what the command and the config both say."""
    parsed = _command(job)
    if parsed is None:
        return
    if parsed.launcher == "python" and not job.env:
        yield job.finding(
            "no-launcher",
            "error",
            (),
            "A plain python starts one process without RANK, WORLD_SIZE and LOCAL_RANK: DeepSpeed "
            "then looks for MPI, and PipelineModule stops at int(None).",
            "Start it with deepspeed --num_gpus N, torchrun --nproc-per-node N, or srun/mpirun.",
            evidence=("runtime/pipe/module.py:166", "comm/comm.py:889", "A101"),
        )
    if parsed.launcher in ("srun", "mpirun", "mpiexec") and "LOCAL_RANK" not in (job.command or ""):
        yield job.finding(
            "local-rank", "risky", (),
            f"{parsed.launcher} does not set LOCAL_RANK; the same one on every rank of a host puts "
            "all of them on one GPU, and the pipeline hangs at its first message.",
            "Set it in each process: LOCAL_RANK=$SLURM_LOCALID (or $OMPI_COMM_WORLD_LOCAL_RANK).",
            evidence=("runtime/pipe/module.py:166", "A98"),
        )  # fmt: skip
    flags = {"pipeline_parallel_size", "pipe_parallel_size", "model_parallel_size"}
    wrong = sorted(flags & set(parsed.launched)) if parsed.launcher == "deepspeed" else []
    if wrong:
        yield job.finding(
            "launcher-flag", "error", (),
            f"--{wrong[0]} is no flag of the deepspeed launcher.",
            "The number of stages is PipelineModule(num_stages=N).",
            evidence=("launcher/runner.py:177", "claims 1.32"),
        )  # fmt: skip
    for option, key in SAME.items():
        values = parsed.options.get(option, [])
        if not values or not values[0].isdigit():
            continue
        told, there = int(values[0]), job.config.get(key)
        if there is None or (isinstance(there, int) and there != told):
            has = "does not have it" if there is None else f"says {there}"
            yield job.finding(
                "two-sources",
                "wrong",
                key,
                f"The command says --{option} {told}, the config {has}: DeepSpeed reads the config "
                "alone, unless the script writes the number into it.",
                f'Write "{key}": {told} in the config.',
                evidence=("A03",),
            )


def environment(job: Job) -> Iterator[Finding]:
    """Variables of one rank, or of all of them."""
    if job.env is None:
        return
    every = [job.env] if isinstance(job.env, Mapping) else list(job.env)
    first = every[0] if every else {}
    missing = [name for name in NEEDED if name not in first]
    if missing:
        yield job.finding(
            "missing-variable", "error", (),
            f"{', '.join(missing)} not set: DeepSpeed then looks for MPI (mpi4py), and "
            "PipelineModule needs LOCAL_RANK.",
            "Start with deepspeed or torchrun, which set them.",
            evidence=("comm/comm.py:889", "runtime/pipe/module.py:166", "A101"),
        )  # fmt: skip
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "DEEPSPEED_TIMEOUT"):
        if name in first and not re.fullmatch(r"\d+", str(first[name]).strip()):
            yield job.finding(
                "wrong-variable", "error", (),
                f"{name}={first[name]!r} is no whole number.", "Correct it.",
                evidence=("constants.py:19",),
            )  # fmt: skip
    world = str(first.get("WORLD_SIZE", ""))
    if world.isdigit() and job.ranks is not None and int(world) != job.ranks:
        yield job.finding(
            "wrong-world", "error", (),
            f"WORLD_SIZE is {world}, the job was planned for {job.ranks} ranks.",
            "Processes = stages x tensor-parallel size x replicas.", evidence=("A17",),
        )  # fmt: skip
    yield from _together(job, every)


def _together(job: Job, every: list[Mapping[str, str]]) -> Iterator[Finding]:
    """Variables that must differ, or agree, between ranks."""
    if len(every) < 2:
        return

    def host(env: Mapping[str, str]) -> str:
        return next((env[n] for n in ("HOSTNAME", "HOST", "SLURM_NODEID") if n in env), "")

    places = Counter((host(env), env.get("LOCAL_RANK")) for env in every)
    twice = [place for place, n in places.items() if n > 1 and place[1] is not None]
    if twice:
        where = f" of {twice[0][0]}" if twice[0][0] else ""
        yield job.finding(
            "local-rank", "error", (),
            f"{places[twice[0]]} ranks{where} have LOCAL_RANK={twice[0][1]}: they share one GPU "
            "and hang at the first message.",
            "LOCAL_RANK counts the ranks of a host: 0, 1, 2, ...", evidence=("A98",),
        )  # fmt: skip
    hosts = {host(env) for env in every}
    if len(hosts) > 1:
        address = str(every[0].get("MASTER_ADDR", ""))
        if address in ("localhost", "127.0.0.1", "::1"):
            yield job.finding(
                "master-address", "error", (),
                f"MASTER_ADDR is {address}, but the ranks are on {len(hosts)} hosts.",
                "Give the address of the first host.", evidence=("A99",),
            )  # fmt: skip
        names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "CCL_ATL_TRANSPORT")
        if not any(name in every[0] for name in names):
            yield job.finding(
                "network-interface", "risky", (),
                f"{len(hosts)} hosts and no interface named: gloo takes the host name's address, "
                "which is often 127.0.0.1, and every rank waits for minutes.",
                "Set NCCL_SOCKET_IFNAME (GPUs) or GLOO_SOCKET_IFNAME (CPUs), also in "
                ".deepspeed_env.",
                evidence=("A99", "facts h"),
            )  # fmt: skip


def hostfile(job: Job) -> Iterator[Finding]:
    """Lines "host slots=N": readable, each host once, alike."""
    if job.hostfile is None:
        return
    slots: dict[str, int] = {}
    for number, line, host in host_lines(job.hostfile):
        if host is None or host.name in slots:
            why = f"host {host.name} is there twice" if host else f'"{line}" is not "host slots=N"'
            yield job.finding(
                "hostfile", "error", (),
                f"Line {number} of the host file: {why}; the launcher stops.", "Correct it.",
                evidence=("launcher/runner.py:225",),
            )  # fmt: skip
            continue
        slots[host.name] = host.slots
    if not slots:
        yield job.finding(
            "hostfile", "error", (), "The host file names no host.", 'Write "host slots=N".',
            evidence=("launcher/runner.py:225",),
        )  # fmt: skip
        return
    if len(set(slots.values())) > 1:
        told = ", ".join(f"{name} {n}" for name, n in slots.items())
        yield job.finding(
            "uneven-hosts", "risky", (),
            f"Hosts of different size ({told}): replicas and stages do not line up with hosts, and "
            "scripts that save on some ranks only wait for the others.",
            "Use the same number of slots on every host.", evidence=("A100",),
        )  # fmt: skip
    total = sum(slots.values())
    if job.ranks is not None and total != job.ranks:
        yield job.finding(
            "hostfile", "risky", (),
            f"The host file has {total} slots, the job was planned for {job.ranks} ranks.",
            "Make them agree, or pass --num_gpus and --num_nodes.", evidence=("A17",),
        )  # fmt: skip


def owner(job: Job) -> Iterator[Finding]:
    """Keys that another framework wants to set itself; needs ``used_by``."""
    if job.used_by.lower() not in ("lightning", "pytorch-lightning", "pytorch lightning"):
        return
    for key, argument in (
        ("gradient_accumulation_steps", "accumulate_grad_batches"),
        ("gradient_clipping", "gradient_clip_val"),
    ):
        if key in job.config:
            yield job.finding(
                "owned-by-framework", "error", key,
                f"Lightning sets {key} itself and refuses it in a DeepSpeed config.",
                f"Remove it, and give Trainer({argument}=...).", evidence=("A06",),
            )  # fmt: skip


RULES = (command, environment, hostfile, owner)

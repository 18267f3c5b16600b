"""Checkpoints that any cut can continue from, as the notebook sees them (no torch here).

    DIRECTORY/checkpoint/latest, global_step3/   DeepSpeed's own checkpoint, by its own code
    DIRECTORY/checkpoint/any-cut-global_step3/   optimizer state by layer, and about.json

DeepSpeed writes weights by layer, which fit any cut, but optimizer state by rank, which fits the
cut, the number of replicas and the ZeRO stage it was written with: loaded into others it fails,
under ZeRO-1 with a misleading "parameter-alignment layout does not match". (Its universal
checkpoints, `ds_to_universal`, solve that for ZeRO-1 only.) So the ranks write the optimizer state
a second time, layer by layer; see ``layer_states``.

Files live in the record of their run and go when that goes (``record.KEEP`` runs are kept).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pplab.runtime.models import Model

if TYPE_CHECKING:
    from pplab.core.schedule import Schedule
    from pplab.runtime.job import Job
    from pplab.runtime.record import Run

FOLDER = "checkpoint"
FORMAT = 1
LOADERS = ("layers", "deepspeed")

#: What must not change from a run to the one that continues it, and what would go wrong.
FIXED = {
    "micro_batch_size": "micro-batch k would hold other samples",
    "seed": "it decides the order of the data",
    "optimizer": "the state of one optimizer means nothing to another",
    "dtype": "weights and master copies would not be the same numbers",
}

#: Fields of a job that say which part of a training it is, not how it trains.
OF_ONE_RUN = ("model", "schedule", "stages", "micro_batches", "bounds", "resume", "speeds")


@dataclass(frozen=True)
class Resume:
    """Where a run starts that continues another.

    directory: DeepSpeed's checkpoint directory; tag: which of those in it; step: optimizer steps
    done; batches: micro-batches read, over all replicas; loader: "layers" (weights and optimizer
    state layer by layer: any cut, any number of ranks and replicas, ZeRO-0 and 1; nothing in the
    files is executed) or "deepspeed" (DeepSpeed's own ``load_checkpoint``, for the same cut, ranks
    and ZeRO stage only; it unpickles, which runs what a file says: load only what you wrote).
    """

    directory: str
    tag: str
    step: int
    batches: int
    loader: str = "layers"

    def __post_init__(self) -> None:
        if self.loader not in LOADERS:
            raise ValueError(f"loader is one of {', '.join(LOADERS)}, not {self.loader}")

    @property
    def any_cut(self) -> Path:
        """The directory with one file a layer."""
        return any_cut(Path(self.directory), self.tag)


def any_cut(directory: Path, tag: str) -> Path:
    """Where the files by layer of a checkpoint lie."""
    return directory / f"any-cut-{tag}"


def layer_file(directory: Path, number: int) -> Path:
    """The optimizer state of one layer."""
    return directory / f"layer-{number:04d}.pt"


def resume_from(run: Run, loader: str = "layers") -> Resume:
    """Where a run left off. Raises ValueError when it left no checkpoint, or it is gone."""
    if not run.job.checkpoint:
        raise ValueError(
            "this run left no checkpoint to continue from: run it with checkpoint=True"
        )
    if run.directory is None or not (run.directory / FOLDER).is_dir():
        raise ValueError(
            f"the checkpoint of this run is gone: it was in {run.directory}; only the latest "
            "records are kept, so save the run elsewhere if you want to come back to it"
        )
    directory = run.directory / FOLDER
    try:
        about = read_about(directory)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the checkpoint in {directory} is incomplete: {error}") from error
    return Resume(str(directory), about["tag"], about["step"], about["batches"], loader)


def read_about(directory: Path) -> dict[str, Any]:
    """What the last complete checkpoint in a directory says of itself."""
    tag = (directory / "latest").read_text().strip()
    about: dict[str, Any] = json.loads((any_cut(directory, tag) / "about.json").read_text())
    if about["format"] != FORMAT:
        raise ValueError(f"it was written by another version of pplab (format {about['format']})")
    return about


def inherited(
    run: Run, plan: Schedule | None, model: Model | None, settings: dict[str, Any]
) -> dict[str, Any]:
    """Settings of a run that continues `run`: its own, unless said otherwise.

    Schedule and model too and, where the slices lie on the ranks as before, cut and speeds.
    """
    job = run.job
    kept = {name: getattr(job, name) for name in job.__dataclass_fields__ if name not in OF_ONE_RUN}
    same_engine = settings.get("engine", job.engine) == job.engine
    kept["schedule"] = plan or (job.schedule if same_engine else None)
    if kept["schedule"] is None:
        kept |= {"stages": job.stages, "micro_batches": job.micro_batches}
    stages = settings.get("stages", plan.stages if plan else job.stages)
    if stages == job.stages:
        kept["speeds"] = job.speeds
        if same_engine and (plan is None or plan.layout == job.layout):
            kept["bounds"] = run.bounds
    kept["model"] = model or job.model
    if kept["model"].family == "own" and kept["model"].payload is None:
        raise ValueError(
            "a run read from disk has only the text of its own layers: give the model again"
        )
    return kept | settings


def check_continues(run: Run, job: Job) -> None:
    """Raises ValueError when `job` cannot continue `run`, saying why."""
    before = run.job
    if (before.model.family, before.model.settings) != (job.model.family, job.model.settings):
        raise ValueError(
            f"the checkpoint is of {before.model}, and cannot be loaded into {job.model}"
        )
    for name, why in FIXED.items():
        was, wanted = getattr(before, name), getattr(job, name)
        if was != wanted:
            raise ValueError(f"{name} was {was} and cannot become {wanted}: {why}")

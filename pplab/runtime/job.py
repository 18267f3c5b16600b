"""A job: everything a run needs, said once, checked before anything starts, kept as JSON.

The DeepSpeed JSON is derived here, in the notebook, so that it can be read before the run. Every
key in it means what it says (`facts`: DeepSpeed ignores unknown top-level and `pipeline` keys).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pplab.core.hostfile import Host
from pplab.core.layout import Layout
from pplab.core.schedule import Schedule
from pplab.core.topology import Topology
from pplab.runtime.checkpoint import Resume
from pplab.runtime.faults import Faults
from pplab.runtime.job_checks import check
from pplab.runtime.models import Model


@dataclass(frozen=True)
class Job:
    """One run. Times are seconds.

    schedule: what every rank does (engine "pplab"), None for the engine's own; stages x replicas
    x tensor ranks; tensor: how many share every layer of a stage (tensor parallelism);
    micro_batches: per pipeline and step (DeepSpeed's gradient_accumulation_steps);
    bounds: first layer of each slice of the model (stage, or chunk of one) and the number of
    layers, or None for equal layer counts; engine: "pplab" (any schedule), "deepspeed" (its own
    1F1B, untouched), "dualpipev" (DeepSpeed's own DualPipeV, untouched: two slices a rank), "zero"
    (no pipeline: the whole model on each of the replicas, ZeRO-0 to 3) or "plain" (one process, no
    pipeline: the reference; with a schedule that updates the weights within a step, every gradient
    is as old as that schedule makes it); launcher: "local" (warm process server) or "deepspeed"
    (the command); hang_after: seconds without any operation starting or ending before a run is
    stopped; profile: write a trace of torch.profiler per rank; nsys: run under Nsight Systems;
    speeds: how fast each rank of a pipeline takes the
    layers of a paced model (0.5: twice the time), for an emulated mix of devices; checkpoint: leave
    one in the run's record; resume: the checkpoint to continue from; hosts:
    the machines, with their slots (``run(hostfile=...)``); through: how the `deepspeed` command
    reaches them (its --launcher), with what further arguments (launcher_args);
    faults: what is wrong with a paced run on purpose (``Faults``, or its fields as a dictionary).
    """

    model: Model
    stages: int
    micro_batches: int
    schedule: Schedule | None = field(default=None, repr=False)
    steps: int = 3
    micro_batch_size: int = 4
    replicas: int = 1
    tensor: int = 1
    engine: str = "pplab"
    launcher: str = "local"
    device: str = "auto"
    backend: str | None = None
    zero: int = 1
    dtype: str = "fp32"
    lr: float = 1e-3
    optimizer: str = "Adam"
    gradient_clipping: float = 0.0
    activation_checkpoint_interval: int = 0
    bounds: tuple[int, ...] | None = None
    seed: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    threads: int = 1
    record: bool = True
    profile: bool = False
    nsys: bool = False
    keep_parameters: bool = False
    hang_after: float = 60.0
    port: int | None = None
    speeds: tuple[float, ...] | None = None
    checkpoint: bool = False
    resume: Resume | None = None
    hosts: tuple[Host, ...] = ()
    through: str = "pdsh"
    launcher_args: str = ""
    faults: Faults | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "faults", Faults.of(self.faults))
        check(self)

    @property
    def first_step(self) -> int:
        """Number of this run's first step: not 0 when it continues another."""
        return self.resume.step if self.resume else 0

    def batch_number(self, step: int, micro_batch: int, replica: int = 0) -> int:
        """Which micro-batch of the data a pipeline reads, `step` counted from 0 in this run.

        Replicas take turns, step after step; a run that continues another reads on where it ended.
        """
        read = self.resume.batches if self.resume else 0
        return read + (step * self.micro_batches + micro_batch) * self.replicas + replica

    @property
    def layout(self) -> Layout:
        """Which rank runs which slice of the model."""
        if self.schedule is not None and self.engine == "pplab":
            return self.schedule.layout
        return Layout(self.stages, 2, "v") if self.engine == "dualpipev" else Layout(self.stages)

    @property
    def slices(self) -> int:
        """How many slices the model is cut into."""
        return self.schedule.layout.slices if self.schedule is not None else self.layout.slices

    @property
    def world(self) -> int:
        """Number of processes."""
        return self.stages * self.replicas * self.tensor

    @property
    def distant(self) -> bool:
        """True when ranks may be on other machines than the caller, with clocks of their own."""
        return bool(self.hosts) or self.launcher == "torchrun"

    @property
    def topology(self) -> Topology:
        """Which rank does what, numbered as DeepSpeed does."""
        return Topology(self.stages, self.replicas, self.tensor)

    @property
    def zero_stage(self) -> int:
        """The ZeRO stage that DeepSpeed gets: `config` may say another than `zero`."""
        return int(self.deepspeed_config()["zero_optimization"]["stage"])

    @property
    def samples_per_step(self) -> int:
        """Global batch size: micro-batch size x micro-batches x replicas."""
        return self.micro_batch_size * self.micro_batches * self.replicas

    def deepspeed_config(self) -> dict[str, Any]:
        """The DeepSpeed JSON of this job; `config` is merged over it, section by section."""
        optimizer: dict[str, Any] = {"lr": self.lr, "weight_decay": 0.0}
        if self.optimizer.startswith("Adam"):
            # torch_adam: DeepSpeed's fused Adam would compile C++ at the first use
            optimizer |= {"torch_adam": True, "adam_w_mode": self.optimizer == "AdamW"}
        base: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": self.micro_batch_size,
            "gradient_accumulation_steps": self.micro_batches,
            "gradient_clipping": self.gradient_clipping,  # explicit: the default became 1.0
            "optimizer": {"type": self.optimizer, "params": optimizer},
            "zero_optimization": {"stage": self.zero},
        }
        if self.zero and not self.optimizer.startswith("Adam"):
            base["zero_allow_untested_optimizer"] = True  # DeepSpeed knows only Adam under ZeRO
        if self.dtype == "bf16":
            base["bf16"] = {"enabled": True}
            if self.zero == 1:  # else gradients are accumulated in bf16
                base["data_types"] = {"grad_accum_dtype": "fp32"}
        if self.activation_checkpoint_interval:
            base["pipeline"] = {
                "activation_checkpoint_interval": self.activation_checkpoint_interval,
                "use_reentrant": False,  # the reentrant default fails on integer inputs
            }
        if self.tensor > 1:  # DeepSpeed would cut messages up, which ScheduledEngine does not
            base.setdefault("pipeline", {}).update(pipe_partitioned=False, grad_partitioned=False)
        return merged(base, self.config)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values: the record of the run, and what the ranks are told."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        data["model"] = {"family": self.model.family, "settings": self.model.settings}
        data["schedule"] = schedule_as_json(self.schedule) if self.schedule else None
        data["bounds"] = list(self.bounds) if self.bounds else None
        data["speeds"] = list(self.speeds) if self.speeds else None
        data["resume"] = asdict(self.resume) if self.resume else None
        data["faults"] = self.faults.as_json() if self.faults else None
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any], payload: Any = None) -> Job:
        """The job `as_json` wrote; `payload` carries the learner's own objects, if any."""
        data = dict(data)
        data["model"] = Model(**data["model"], payload=payload)
        data["schedule"] = schedule_from_json(data["schedule"]) if data["schedule"] else None
        data["bounds"] = tuple(data["bounds"]) if data["bounds"] else None
        data["hosts"] = tuple(Host(*host) for host in data.get("hosts", ()))
        data["speeds"] = tuple(data["speeds"]) if data.get("speeds") else None
        data["resume"] = Resume(**data["resume"]) if data.get("resume") else None
        return cls(**data)

    def changed(self, **changes: Any) -> Job:
        """A copy with some fields changed."""
        return replace(self, **changes)


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`, dictionaries merged key by key."""
    result = dict(base)
    for key, value in over.items():
        mine = result.get(key)
        both = isinstance(value, dict) and isinstance(mine, dict)
        result[key] = merged(mine, value) if both else value  # type: ignore[arg-type]
    return result


def schedule_as_json(schedule: Schedule) -> dict[str, Any]:
    """A schedule as text: operations in their text form, rank by rank."""
    return {
        "name": schedule.name,
        "micro_batches": schedule.micro_batches,
        "layout": asdict(schedule.layout),
        "ops": [" ".join(map(str, row)) for row in schedule.ops],
    }


def schedule_from_json(data: dict[str, Any]) -> Schedule:
    """The schedule `schedule_as_json` wrote."""
    layout = data["layout"]
    return Schedule.of(
        data["ops"],
        data["micro_batches"],
        name=data["name"],
        chunks=layout["chunks"],
        placement=layout["placement"],
    )

"""A job: everything a run needs, said once, checked before anything starts, kept as JSON.

The DeepSpeed JSON is derived here, in the notebook, so that it can be read before the run. Every
key in it means what it says (`facts`: DeepSpeed ignores unknown top-level and `pipeline` keys).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from pplab.core.layout import Layout
from pplab.core.schedule import Schedule
from pplab.core.schedules.weights import updates_midway
from pplab.runtime.models import Model

DTYPES = ("fp32", "bf16")
ENGINES = ("pplab", "deepspeed", "dualpipev", "plain")
LAUNCHERS = ("local", "deepspeed")
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Job:
    """One run. Times are seconds.

    schedule: what every rank does (engine "pplab"), None for the engine's own; stages x replicas
    ranks; micro_batches: per pipeline and step (DeepSpeed's gradient_accumulation_steps);
    bounds: first layer of each slice of the model (stage, or chunk of one) and the number of
    layers, or None for equal layer counts; engine: "pplab" (any schedule), "deepspeed" (its own
    1F1B, untouched), "dualpipev" (DeepSpeed's own DualPipeV, untouched: two slices a rank) or
    "plain" (one process, no pipeline: the reference; with a schedule that updates the weights
    within a step, every gradient is as old as that schedule makes it); launcher: "local" (warm
    process server) or "deepspeed" (the command); hang_after: seconds without any operation
    starting or ending before a run is stopped.
    """

    model: Model
    stages: int
    micro_batches: int
    schedule: Schedule | None = field(default=None, repr=False)
    steps: int = 3
    micro_batch_size: int = 4
    replicas: int = 1
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
    keep_parameters: bool = False
    hang_after: float = 60.0
    port: int | None = None

    def __post_init__(self) -> None:
        for name, allowed in (
            ("engine", ENGINES),
            ("launcher", LAUNCHERS),
            ("device", DEVICES),
            ("dtype", DTYPES),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} is one of {', '.join(allowed)}, not {getattr(self, name)}"
                )
        for name in ("stages", "micro_batches", "steps", "micro_batch_size", "replicas", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.engine == "plain" and self.world != 1:
            raise ValueError("the plain loop is one process: stages=1, replicas=1")
        if self.engine == "dualpipev" and self.micro_batches < 2 * self.stages:
            raise ValueError(
                f"DualPipeV needs two micro-batches a rank to fill its V: at least "
                f"{2 * self.stages}, not {self.micro_batches}"
            )
        if self.schedule is not None:
            self._check_schedule(self.schedule)
        if self.bounds is not None:
            self._check_bounds(self.bounds)

    def _check_schedule(self, schedule: Schedule) -> None:
        schedule.check()
        if self.engine not in ("pplab", "plain"):
            raise ValueError(f"engine {self.engine!r} has its own schedule; drop the one given")
        stages = schedule.stages if self.engine == "plain" else self.stages
        if (schedule.stages, schedule.micro_batches) != (stages, self.micro_batches):
            raise ValueError(
                f"the schedule is for {schedule.stages} stages and {schedule.micro_batches} "
                f"micro-batches, the run for {self.stages} and {self.micro_batches}"
            )
        if self.engine == "pplab":
            self._check_needs(schedule)

    def _check_needs(self, schedule: Schedule) -> None:
        """What a schedule asks of DeepSpeed and cannot have: refused before anything starts."""
        config = self.deepspeed_config()
        recomputes = config.get("pipeline", {}).get("activation_checkpoint_interval", 0)
        if schedule.splits_backward and recomputes:
            raise ValueError(
                f"{schedule.name} splits backward passes into B and W, and DeepSpeed's activation "
                "checkpointing works in undivided ones only: each half would have to compute the "
                "activations again; run it with activation_checkpoint_interval=0"
            )
        if not updates_midway(schedule):
            return
        why = f"{schedule.name} updates the weights while micro-batches are in flight"
        if config["zero_optimization"]["stage"] != 0:
            raise ValueError(
                f"{why} and so keeps several versions of them; ZeRO-1 keeps one, in a flat buffer "
                "that it steps once a batch: run it with zero=0"
            )
        if self.dtype != "fp32":
            raise ValueError(
                f"{why}; DeepSpeed's {self.dtype} optimizer keeps one fp32 copy of the weights "
                "and steps once a batch: run it with dtype='fp32'"
            )
        if config["gradient_clipping"]:
            raise ValueError(
                f"{why}, each rank at its own time; the norm of all gradients, which clipping "
                "needs, never exists: run it with gradient_clipping=0"
            )

    def _check_bounds(self, bounds: tuple[int, ...]) -> None:
        rising = all(a < b for a, b in pairwise(bounds))
        if len(bounds) != self.slices + 1 or bounds[0] != 0 or not rising:
            raise ValueError(
                f"bounds are {self.slices + 1} rising layer numbers from 0 to the number of "
                f"layers, not {list(bounds)}"
            )

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
        return self.stages * self.replicas

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
        return merged(base, self.config)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values: the record of the run, and what the ranks are told."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        data["model"] = {"family": self.model.family, "settings": self.model.settings}
        data["schedule"] = schedule_as_json(self.schedule) if self.schedule else None
        data["bounds"] = list(self.bounds) if self.bounds else None
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any], payload: Any = None) -> Job:
        """The job `as_json` wrote; `payload` carries the learner's own objects, if any."""
        data = dict(data)
        data["model"] = Model(**data["model"], payload=payload)
        data["schedule"] = schedule_from_json(data["schedule"]) if data["schedule"] else None
        data["bounds"] = tuple(data["bounds"]) if data["bounds"] else None
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

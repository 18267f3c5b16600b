"""What a config is checked against: the ranks, the stages, the model, how it is launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pplab.advise.check import words
from pplab.advise.check.finding import Edit, Finding
from pplab.advise.check.lax import truth, whole
from pplab.advise.check.reader import Document, dotted
from pplab.advise.check.schema import Schema, known
from pplab.core.batch import Batch, BatchError, replicas_of, resolve

if TYPE_CHECKING:
    from pplab.core.profile import Profile


@dataclass(frozen=True)
class Job:
    """A config and everything known about the run around it; see ``check`` for the fields."""

    config: dict[str, Any]
    ranks: int | None = None
    stages: int | None = None
    tensor: int | None = None
    pipeline: bool = True
    layers: int | None = None
    model: Profile | None = None
    partition: str = "parameters"
    parts: Sequence[int] | None = None
    schedule: str = "1f1b"
    chunks: int = 1
    env: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None
    command: str | None = None
    hostfile: str | None = None
    version: str | None = None
    ramp_up: Sequence[int] | None = None
    samples: int | None = None
    steps: int | None = None
    eval_micro_batch: int | None = None
    boundary: Sequence[Mapping[str, Any]] | None = None
    saved: Mapping[str, int] | None = None
    used_by: str = ""
    device_bytes: float = 80e9
    document: Document = field(default_factory=Document)
    schema: Schema = field(default_factory=known)

    # -- reading the config -----------------------------------------------------------------------

    def get(self, path: str, default: Any = None) -> Any:
        """The value at a dotted path."""
        here: Any = self.config
        for name in path.split("."):
            if not isinstance(here, dict) or name not in here:
                return default
            here = here[name]
        return here

    def section(self, name: str) -> dict[str, Any]:
        """A section; {} when it is missing or is none."""
        value = self.config.get(name)
        return value if isinstance(value, dict) else {}

    def enabled(self, section: str) -> bool:
        """Whether a section's "enabled" is on."""
        return self.switched_on(section, "enabled")

    def switched_on(self, section: str, key: str, default: bool = False) -> bool:
        """Whether a boolean is on; "auto" is as good as missing, as DeepSpeed drops it."""
        value = self.section(section).get(key, default)
        if value == "auto":
            return default
        return isinstance(value, (bool, int, float, str)) and truth(value)

    def finding(
        self,
        rule: str,
        severity: str,
        path: str | Sequence[str],
        message: str,
        fix: str = "",
        *,
        evidence: Sequence[str] = (),
        repair: Sequence[Edit] = (),
    ) -> Finding:
        """A finding with its line; `path` is dotted, or a tuple where a key holds a dot."""
        steps = tuple(path.split(".")) if isinstance(path, str) else tuple(path)
        line = self.document.lines.get(steps, 0)
        where = dotted(steps)
        return Finding(rule, severity, where, message, fix, line, tuple(evidence), tuple(repair))

    # -- the shape of the job ---------------------------------------------------------------------

    @cached_property
    def framework(self) -> str:
        """ "gpt-neox" when the config is written in that framework's words, else ""."""
        names = {words.simplify(key) for key in self.config}
        return "gpt-neox" if len(names & words.NEOX_SURE) >= 2 else ""

    @property
    def deepspeed(self) -> str:
        """The DeepSpeed version the job runs with."""
        return self.version or self.schema.version

    @cached_property
    def intended(self) -> int | None:
        """Stages that keys DeepSpeed ignores ask for; None when there are none."""
        places = (self.section("pipeline"), self.config)
        for place in places:
            for key, value in place.items():
                name = words.simplify(key)
                wanted = whole(value)
                fits = name in words.STAGE_KEYS or (place is places[0] and name in words.STAGES_IN)
                if fits and wanted and wanted > 0 and not isinstance(value, bool):
                    return wanted
        return None

    @property
    def neox(self) -> dict[str, Any]:
        """The config by simplified key when it is GPT-NeoX's, else {}."""
        if self.framework != "gpt-neox":
            return {}
        return {words.simplify(key): value for key, value in self.config.items()}

    @cached_property
    def pipe(self) -> int | None:
        """Stages: as given, else as the config seems to want them; None when nobody says."""
        if self.stages is not None:
            return self.stages
        if not self.pipeline:
            return 1
        return self.intended

    @cached_property
    def slices(self) -> int:
        """Tensor-parallel size, 1 when nobody says."""
        if self.tensor is not None:
            return self.tensor
        wanted = whole(self.neox.get("model_parallel_size", 1)) if self.neox else 1
        return wanted if wanted and wanted > 0 else 1

    @cached_property
    def sequence(self) -> int:
        """Ranks that share a sequence without a pipeline; a pipeline's grid knows of none."""
        size = whole(self.config.get("sequence_parallel_size", 1))
        return size if size and size > 0 and not self.pipeline else 1

    @cached_property
    def replicas(self) -> int | None:
        """d = ranks / (stages * tensor * sequence); None when these are not known or do not
        divide (``runtime/config.py:470``)."""
        if self.ranks is None:
            return None
        try:
            return replicas_of(self.ranks, self.pipe or 1, self.slices * self.sequence)
        except BatchError:
            return None

    @cached_property
    def written(self) -> dict[str, int | None]:
        """The three batch numbers as written, None where one is missing or is no whole number."""
        names = {
            "train": "train_batch_size",
            "micro": "train_micro_batch_size_per_gpu",
            "gas": "gradient_accumulation_steps",
        }
        found: dict[str, int | None] = {}
        for name, key in names.items():
            value = self.config.get(key)
            usable = isinstance(value, (int, float, str)) and not isinstance(value, bool)
            found[name] = whole(value) if usable else None
        return found

    @cached_property
    def batch(self) -> Batch | None:
        """The resolved triangle; None while the number of replicas is open and matters."""
        replicas = self.replicas
        if replicas is None:
            train, micro, gas = self.written["train"], self.written["micro"], self.written["gas"]
            if train and micro and gas and train % (micro * gas) == 0:
                replicas = train // (micro * gas)
            else:
                return None
        return resolve(**self.written, replicas=replicas)

    @cached_property
    def micro_batches(self) -> int | None:
        """M, which is GAS; None when it depends on ranks that are not known."""
        if self.written["gas"] is not None:
            return self.written["gas"]
        if self.batch is not None and self.batch.ok:
            return self.batch.gas
        only = self.written["train"] is None or self.written["micro"] is None
        return 1 if only and any(self.written.values()) else None

    @cached_property
    def zero(self) -> int:
        """ZeRO stage as DeepSpeed reads it; 0 when it is not readable."""
        value = self.config.get("zero_optimization")
        if isinstance(value, bool):
            return int(value)
        stage = whole(value.get("stage", 0)) if isinstance(value, dict) else 0
        return stage if stage in (0, 1, 2, 3) else 0

    @cached_property
    def dtype(self) -> str:
        """fp16, bf16 or fp32: what the model computes in."""
        if self.enabled("fp16"):
            return "fp16"
        return "bf16" if self.enabled("bf16") or self.enabled("bfloat16") else "fp32"

    @cached_property
    def accumulation(self) -> str:
        """In what gradients are summed over micro-batches: data_types.grad_accum_dtype or dtype."""
        wanted = words.DTYPES.get(str(self.get("data_types.grad_accum_dtype", "")).lower())
        return wanted or self.dtype

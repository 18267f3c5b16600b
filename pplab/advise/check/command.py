"""A launch command, taken apart: which launcher, how many ranks, what the script is told."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from pplab.advise.check.schema import simplify

#: Launchers, and the options that say how many ranks: (per node, nodes).
LAUNCHERS = {
    "deepspeed": (("num_gpus", "num_accelerators"), ("num_nodes",)),
    "torchrun": (("nproc_per_node", "nproc-per-node"), ("nnodes",)),
    "accelerate": (("num_processes",), ()),
    "srun": (("n", "ntasks"), ()),
    "mpirun": (("n", "np"), ()),
    "mpiexec": (("n", "np"), ()),
}
#: Options of scripts (Megatron-LM, Megatron-DeepSpeed) -> what they set.
STAGES = ("pipeline_model_parallel_size", "pipe_parallel_size", "pipeline_parallel_size")
TENSOR = ("tensor_model_parallel_size", "model_parallel_size", "tensor_parallel_size")


@dataclass(frozen=True)
class Command:
    """launcher: a key of LAUNCHERS or "python"; options of the launcher and of the script, by
    simplified name (values as text, [] for a flag); config: the DeepSpeed config it is given."""

    launcher: str
    script: str = ""
    launched: dict[str, list[str]] = field(default_factory=dict)
    options: dict[str, list[str]] = field(default_factory=dict)

    @property
    def config(self) -> str:
        """--deepspeed_config, "" when there is none."""
        values = self.options.get("deepspeed_config") or self.options.get("deepspeed") or [""]
        return values[0]

    @property
    def ranks(self) -> int | None:
        """Processes it starts; None when it does not say."""
        each, nodes = LAUNCHERS.get(self.launcher, ((), ()))
        per_node = self.number(each, self.launched)
        if per_node is None:
            return None
        return per_node * (self.number(nodes, self.launched) or 1)

    def number(
        self, names: tuple[str, ...], where: dict[str, list[str]] | None = None
    ) -> int | None:
        """The first of these options that is there and is a number."""
        options = self.options if where is None else where
        for name in names:
            values = options.get(simplify(name), [])
            if values and re.fullmatch(r"\d+", values[0]):
                return int(values[0])
        return None

    @property
    def stages(self) -> int | None:
        """Pipeline stages the script is told."""
        return self.number(STAGES)

    @property
    def tensor(self) -> int | None:
        """Tensor-parallel size the script is told."""
        return self.number(TENSOR)

    @property
    def ramp_up(self) -> list[int] | None:
        """Megatron's --rampup-batch-size start increment samples."""
        values = self.options.get("rampup_batch_size", [])
        numbers = [int(value) for value in values if value.isdigit()]
        return numbers if len(numbers) >= 2 else None


def parse(text: str) -> Command:
    """Take a command apart; raises ValueError for unbalanced quotes or an empty one."""
    words = [word for word in shlex.split(text, comments=True) if word != "\\"]
    if not words:
        raise ValueError("the command is empty")
    while words and re.fullmatch(r"\w+=.*", words[0]):  # FOO=bar before the program
        words.pop(0)
    launcher, start = "python", 0
    for place, word in enumerate(words):
        name = word.rsplit("/", 1)[-1]
        if name in LAUNCHERS and launcher == "python":
            launcher, start = name, place + 1
        if word in ("torch.distributed.run", "torch.distributed.launch"):
            launcher, start = "torchrun", place + 1
        if word.endswith((".py", ".sh")):
            break
    script = next((i for i, w in enumerate(words) if w.endswith(".py") and i >= start), len(words))
    options = words[script + 1 :]
    name = words[script] if script < len(words) else ""
    return Command(launcher, name, _options(words[start:script]), _options(options))


def _options(words: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        match = re.match(r"--?([A-Za-z][\w\-]*)(?:=(.*))?$", word)
        if match:
            name = simplify(match[1])
            found[name] = [match[2]] if match[2] is not None else []
        elif name:
            found[name].append(word)
    return found

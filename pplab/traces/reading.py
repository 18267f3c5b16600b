"""One way in for every trace, one way out: the format is recognised by content, not by name.

A format is a module with ``FORMAT`` (its name in words), ``recognises(sample) -> bool`` and
``read_files(paths, options) -> Imported``. To add one, write the module and name it in FORMATS.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from pplab.core.timeline import Timeline
from pplab.traces.files import TraceError
from pplab.traces.imported import Imported, Names, Options, Sample, TraceWarning
from pplab.traces.log_lines import KNOWN
from pplab.traces.rows import natural

#: Modules of the formats, asked in this order; the ones that are surest come first.
FORMATS = (
    "pplab.traces.nsys",
    "pplab.traces.tables",
    "pplab.traces.straggler_files",
    "pplab.traces.ours",
    "pplab.traces.kineto",
    "pplab.traces.logs",
)
#: Byte order marks of UTF-16.
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
Paths = str | Path | Iterable[str | Path]


def read(
    paths: Paths,
    *,
    names: Names | None = None,
    stages: int | None = None,
    align: bool | str = "auto",
    progress: bool | None = None,
) -> Timeline:
    """The timeline in one trace file, in one file per rank, or in a directory of them.

    Reads: what ``write`` wrote (Chrome JSON, CSV, Parquet, npz), traces of the PyTorch profiler
    (Chrome/Kineto JSON, gzipped or not), the SQLite export of Nsight Systems, the traces of
    ByteDance's StragglerAnalysis.
    names: how ranges are called when pplab does not know the names: regular expression -> letter
    (F, B, W, U, S, R, G, L; see ``pplab.core.ops``), e.g. ``{r"fwd_(\\d+)": "F"}``. The only group
    is the micro-batch; of several, those called micro_batch, chunk and stage count. Without a
    number, micro-batches are counted in the order in which they run.
    stages: ranks of one pipeline, when the files do not say (in names of stages, or in the groups
    of ranks that torch lists); the ranks are then numbered as DeepSpeed and Megatron number them
    (all replicas of stage 0 first). Without it, ranks that run the same micro-batches at the same
    time are told to be replicas, and a note says so.
    align: shift clocks so that no message arrives before it was sent: "auto" where one would, or
    where ranks ran on several hosts; True always; False never.
    progress: show a bar; by default for files that take some seconds.

    What is worth knowing (a missing rank, a file that is cut short, clocks that were shifted) is
    issued as TraceWarning; ``load`` returns the same as notes. Raises TraceError, with a sentence,
    when there is nothing to show.
    """
    found = load(paths, names=names, stages=stages, align=align, progress=progress)
    for note in found.notes:
        warnings.warn(note, TraceWarning, stacklevel=2)
    return found.timeline


def load(
    paths: Paths,
    *,
    names: Names | None = None,
    stages: int | None = None,
    align: bool | str = "auto",
    progress: bool | None = None,
) -> Imported:
    """As ``read``, with the format, notes and missing ranks beside the timeline."""
    if stages is not None and stages < 1:
        raise TraceError(f"a pipeline has at least one stage, not {stages}")
    if align not in (True, False, "auto"):
        raise TraceError(f"align is True, False or 'auto', not {align!r}")
    found, notes = _by_format(paths)
    if len(found) > 1:
        kinds = "; ".join(f"{m.FORMAT}: {_listed(files)}" for m, files in found.items())
        raise TraceError(f"these files are of different formats, read them one by one: {kinds}")
    ((module, files),) = found.items()
    result: Imported = module.read_files(files, Options(names, stages, align, progress))
    if not notes:
        return result
    from dataclasses import replace

    return replace(result, notes=(*notes, *result.notes))


def recognise(path: str | Path) -> ModuleType:
    """The module of the format that a file has; raises TraceError when none knows it."""
    sample = Sample.of(Path(path))
    if sample.head.startswith(UTF_16):
        raise TraceError(
            f"{path} is text in UTF-16, as PowerShell writes it, and pplab reads UTF-8: convert it "
            f"with `iconv -f UTF-16 -t UTF-8 {Path(path).name}`"
        )
    for name in FORMATS:
        module = importlib.import_module(name)
        if module.recognises(sample):
            return module
    raise TraceError(
        f"{path} is in no format that pplab reads; it begins with {_beginning(sample)}. Known: "
        "Chrome traces (JSON) of pplab and of the PyTorch profiler, the SQLite export of Nsight "
        "Systems (nsys export --type=sqlite), pplab's CSV, Parquet and npz, logs of Megatron-LM "
        f"and DeepSpeed ({KNOWN})"
    )


def _by_format(paths: Paths) -> tuple[dict[ModuleType, list[Path]], list[str]]:
    """Files by the module that reads them; of a directory, those of its best format."""
    given = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if not given:
        raise TraceError("no file was given")
    found: dict[ModuleType, list[Path]] = {}
    notes: list[str] = []
    for path in given:
        if not path.exists():
            raise TraceError(f"{path} does not exist")
        if path.is_dir():
            module, files, left = _in_directory(path)
            found.setdefault(module, []).extend(files)
            if left:
                notes.append(f"in {path} only the {module.FORMAT} was read, not {_listed(left)}")
        else:
            found.setdefault(recognise(path), []).append(path)
    by_number = {module: sorted(set(files), key=_order) for module, files in found.items()}
    return by_number, notes


def _in_directory(path: Path) -> tuple[ModuleType, list[Path], list[Path]]:
    """The format to read in a directory, its files, and what else could have been read there."""
    known: dict[ModuleType, list[Path]] = {}
    why = ""
    for file in sorted(p for p in path.iterdir() if p.is_file()):
        try:
            known.setdefault(recognise(file), []).append(file)
        except (TraceError, OSError) as error:
            why = why or str(error)
    if not known:
        text = f"no file in {path} is in a format that pplab reads"
        folders = sorted((p.name for p in path.iterdir() if p.is_dir()), key=natural)
        if folders:  # torchtitan, for one, makes a folder for every iteration that it profiles
            more = ", ..." if len(folders) > 4 else ""
            text += f"; folders in it are read one by one: {', '.join(folders[:4])}{more}"
        elif why:
            text += f". The first of them: {why}"
        raise TraceError(text)
    # ranks' own traces before tables of them, logs last
    order = ["nsys", "kineto", "straggler_files", "ours", "tables", "logs"]
    best = min(known, key=lambda m: order.index(_last(m)))
    left = [f for m, files in known.items() if m is not best and order.index(_last(m)) < 5
            for f in files]  # fmt: skip
    return best, known[best], left


def _order(file: Path) -> list[tuple[int, str]]:
    """trace_2 before trace_10."""
    return natural(str(file))


def _last(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def _listed(files: list[Path], most: int = 4) -> str:
    shown = ", ".join(str(file.name) for file in files[:most])
    return shown + (f" and {len(files) - most} more" if len(files) > most else "")


def _beginning(sample: Sample) -> str:
    start = sample.start()[:24]
    text = start.decode("utf-8", errors="replace")
    return repr(text) if text.isprintable() or text.isascii() else start.hex(" ")


def write(timeline: Timeline, path: str | Path) -> None:
    """Write a timeline in the format that the name asks for; ``read`` gives it back exactly.

    .json and .json.gz: Chrome trace for ui.perfetto.dev, with an arrow for every message;
    .csv, .parquet (needs pyarrow), .npz: the table of spans with its labels.
    Raises TraceError for other names, or when the format cannot hold the timeline.
    """
    path = Path(path)
    name = path.name.lower()
    if name.endswith((".json", ".json.gz")):
        from pplab.traces.chrome import write_chrome

        return write_chrome(timeline, path)
    from pplab.traces import tables

    for ending, writer in tables.WRITERS.items():
        if name.endswith(ending):
            return writer(timeline, path)
    endings = ", ".join((".json", ".json.gz", *tables.WRITERS))
    raise TraceError(f"{path.name}: the name says the format, and has to end in one of {endings}")

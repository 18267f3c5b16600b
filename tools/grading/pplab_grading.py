"""How nbgrader runs a submission of pplab's labs, so that one bad answer costs one question.

nbgrader 0.9.6 gives up on a whole submission when its kernel dies or cannot be interrupted, and it
takes a check that was never run for a right answer. Here the cell that did it is left out, and the
notebook is run again from its beginning: every other answer is measured as if it stood alone.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from nbgrader import utils
from nbgrader.api import Gradebook
from nbgrader.preprocessors import Execute, NbGraderPreprocessor
from traitlets import Integer


class Ended(Exception):
    """A cell after which the kernel is of no use."""

    def __init__(self, place: int, why: str) -> None:
        super().__init__(f"cell {place}: {why}")
        self.place, self.why = place, why


class PatientExecute(Execute):
    """Execute, which survives endless loops, dead kernels and cells that end them.

    What the runs and checks of pplab keep goes to a folder that is removed afterwards: neither the
    progress nor the runs of whoever grades are touched.
    """

    iopub_timeout = Integer(
        10, help="Seconds that a kernel has to fall silent after a cell has ended or was stopped."
    ).tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any, km: Any = None) -> Any:
        """Run all cells, from the beginning for each cell that has to be left out."""
        self.left_out: dict[int, str] = {}
        self.wants_exit = False
        with tempfile.TemporaryDirectory(
            prefix="pplab-grading-", ignore_cleanup_errors=True
        ) as own:
            self.environment = {
                **os.environ,
                "PPLAB_PROGRESS": os.path.join(own, "progress"),
                "PPLAB_RUNS": os.path.join(own, "runs"),
                "PPLAB_LEARNER": "submission",
                "PPLAB_STRICT": "",
                "IPYTHONDIR": os.path.join(own, "ipython"),
            }
            while True:
                try:
                    return super().preprocess(nb, resources, km)
                except Ended as end:
                    place = self._to_blame(nb, end)
                    self.left_out[place] = end.why
                    self.log.warning("Cell %d %s. Running again without it.", place, end.why)

    def setup_kernel(self, **kwargs: Any) -> Any:
        """A kernel with an environment of its own; that of nbgrader stays as it is."""
        return super().setup_kernel(env=self.environment, **kwargs)

    def preprocess_cell(self, cell: NotebookNode, resources: Any, index: int) -> Any:
        """Run one cell; raises Ended when the kernel cannot go on after it."""
        if index in self.left_out:
            why = f"This cell {self.left_out[index]}; the others were marked without it."
            cell.outputs = [new_output("error", ename="LeftOut", evalue=why, traceback=[why])]
            return cell, resources
        try:
            done = super().preprocess_cell(cell, resources, index)
        except DeadKernelError as error:
            raise Ended(index, "ended the kernel") from error
        except CellTimeoutError as error:  # neither its time nor an interrupt has stopped it
            raise Ended(index, "could not be stopped") from error
        if self.wants_exit:
            self.wants_exit = False
            raise Ended(index, "asked the kernel to exit")
        if utils.is_grade(cell):  # nbgrader takes any word on stderr for a wrong answer
            for output in cell.get("outputs", []):
                if output.get("name") == "stderr":
                    output["name"] = "stdout"
        return done

    def on_cell_executed(self, **kwargs: Any) -> None:
        """Note what a reply says of the kernel: it exits only after having answered."""
        super().on_cell_executed(**kwargs)
        payload = kwargs["execute_reply"]["content"].get("payload", [])
        self.wants_exit = any(item.get("source") == "ask_exit" for item in payload)

    def _to_blame(self, nb: NotebookNode, end: Ended) -> int:
        """The cell to leave out: of the learner's since the check before, the last one.

        A check that still ends the kernel without them is left out itself, and brings no points.
        Raises Ended when a cell of the course does it: that is no answer, and must not cost points.
        """
        for place in range(end.place, -1, -1):
            cell = nb.cells[place]
            if utils.is_grade(cell) and place != end.place:
                break
            if (
                cell.cell_type == "code"
                and not utils.is_locked(cell)
                and place not in self.left_out
            ):
                return place
        if utils.is_grade(nb.cells[end.place]):
            return end.place
        raise end


class PutBack(NbGraderPreprocessor):
    """Put back what a learner has deleted: checks, which would bring points, and locked cells.

    nbgrader's own option puts back checks alone, and fails where the cell before is gone as well.
    The places follow from the ids, which begin with a number.
    """

    def preprocess(self, nb: NotebookNode, resources: Any) -> Any:
        about = resources["nbgrader"]
        with Gradebook(about["db_url"]) as gradebook:
            source = gradebook.find_notebook(about["notebook"], about["assignment"])
            points = {cell.name: cell.max_score for cell in source.grade_cells}
            wanted = {cell.name: cell for cell in source.source_cells if cell.locked}
            for name in sorted(wanted):
                ids = [cell.metadata.get("nbgrader", {}).get("grade_id", "") for cell in nb.cells]
                if name not in ids:
                    nb.cells.insert(
                        _place(name, ids, name in points), _cell(wanted[name], points.get(name))
                    )
                    self.log.warning("Cell %s was missing and is put back", name)
        return nb, resources


def _place(name: str, ids: list[str], is_check: bool) -> int:
    """Where a missing cell goes: a check behind all that may answer it, another one before it."""
    if is_check:
        return next((place for place, other in enumerate(ids) if other > name), len(ids))
    return 1 + max((place for place, other in enumerate(ids) if other and other < name), default=-1)


def _cell(source: Any, points: float | None) -> NotebookNode:
    """A locked code cell of the gradebook as a cell of a notebook."""
    metadata = {
        "schema_version": 3,
        "grade_id": source.name,
        "locked": True,
        "solution": False,
        "task": False,
        "grade": points is not None,
        "cell_type": "code",
        "checksum": source.checksum,
    }
    if points is not None:
        metadata["points"] = points
    return new_code_cell(source.source, metadata={"nbgrader": metadata})

"""nbgrader's settings of this course; written by tools/make_nbgrader.py, yours to change."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # pplab_grading.py lies here

from nbconvert.preprocessors import ClearMetadataPreprocessor  # noqa: E402
from nbgrader.preprocessors import (  # noqa: E402
    AssignLatePenalties,
    CheckCellMetadata,
    ClearOutput,
    DeduplicateIds,
    IgnorePattern,
    LimitOutput,
    OverwriteCells,
    OverwriteKernelspec,
    SaveAutoGrades,
)
from pplab_grading import PatientExecute, PutBack  # noqa: E402

c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "pplab"
c.CourseDirectory.root = str(HERE)
c.ClearSolutions.code_stub = {"python": "# YOUR CODE HERE"}
c.KernelManager.transport_encryption = "auto"

# Seconds that one cell may take; a check may train on real ranks, twice.
c.PatientExecute.timeout = 120

# As nbgrader has them, but for the two of pplab_grading.py.
c.Autograde.sanitize_preprocessors = [
    ClearOutput,
    DeduplicateIds,
    OverwriteKernelspec,
    PutBack,
    OverwriteCells,
    CheckCellMetadata,
]
c.Autograde.autograde_preprocessors = [
    PatientExecute,
    IgnorePattern,
    ClearMetadataPreprocessor,
    LimitOutput,
    SaveAutoGrades,
    AssignLatePenalties,
    CheckCellMetadata,
]

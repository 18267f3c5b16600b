"""What two articles on DeepSpeed pipelines claim, claim by claim: ``pplab.audit()``.

    pplab.audit()                          # the picture: how many of the claims hold
    pplab.audit("schedules")               # one topic as a table
    pplab.audit("ZeRO", "false")           # ... of one verdict
    pplab.audit()["1.8"]                   # one claim

The claims are in ``first`` and ``second``, a table of them in ``page``, their picture in
``picture``, and the articles' own configs in ``configs``.
"""

from pplab.teach.audit.claim import CHAPTERS, MEANING, SIGNS, TOPICS, VERDICTS, Claim, Place
from pplab.teach.audit.page import Audit, audit

__all__ = [
    "CHAPTERS", "MEANING", "SIGNS", "TOPICS", "VERDICTS", "Audit", "Claim", "Place", "audit",
]  # fmt: skip

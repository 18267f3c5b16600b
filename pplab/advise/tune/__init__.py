"""Tuning: from a model and a machine to ranked plans, verified on real ranks.

    found = pplab.tune(models.gpt(layers=8), ranks=2, batch=64, verify=3)
    found.best.run()                 # or found.best.deepspeed_config(), found.best.call()

One file an idea: ``ask`` (the call), ``subject`` and ``sizes`` (what the layers cost at any
micro-batch size), ``machine``, ``candidates`` (everything that could be run), ``probes`` and
``known`` (short runs that measure overheads), ``price`` (step, bubble and memory of a candidate),
``rank`` (the order, and why the others are out), ``plan``, ``verify``, ``accept`` (the check-list),
``tuning`` (the result).
"""

from pplab.advise.tune.accept import Acceptance, accept
from pplab.advise.tune.ask import tune
from pplab.advise.tune.machine import Machine
from pplab.advise.tune.plan import Plan
from pplab.advise.tune.tuning import Tuning
from pplab.advise.tune.verify import Verified

__all__ = ["Acceptance", "Machine", "Plan", "Tuning", "Verified", "accept", "tune"]

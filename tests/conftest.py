"""What holds for every test."""

from __future__ import annotations

import os

from hypothesis import settings

# The same examples for everyone in CI, so that a submission fails for its own change only; new ones
# on every run at home. No deadline: the machine has two cores and other work.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("home", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "home")

# Pictures are drawn without a screen, whatever the shell says.
os.environ["MPLBACKEND"] = "Agg"

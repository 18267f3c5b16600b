"""Every ratio the project claims, measured: ``python -m benchmarks [--only GROUP]``."""

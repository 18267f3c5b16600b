"""Real runs: models, jobs, the process server, the ranks and their DeepSpeed engine.

What the notebook's kernel imports (`job`, `models`, `client`, `record`, `progress`) knows neither
torch nor DeepSpeed; what the ranks import (`rank`, `engine`, `nets`, `batches`) needs both.
"""

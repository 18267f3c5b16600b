"""ZeRO for real: data-parallel ranks without a pipeline, what they hold, and what they say.

``loop`` trains on DeepSpeed's plain engine under ZeRO-0 to 3, ``owned`` counts what a rank really
holds, and ``traffic`` every message between the ranks that DeepSpeed sends.
"""

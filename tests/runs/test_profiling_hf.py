"""Profiles of Hugging Face configs: built from random weights, cut into layers, measured.

`make kit` installs transformers, an extra, and runs these.
"""

from __future__ import annotations

from typing import Any

import pytest

import pplab
from tests.runs.test_profiling import profile

pytest.importorskip("transformers", reason="not installed: pip install -e .[hf], or make kit")

SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_layer": 2, "n_embd": 32, "n_head": 2},
    "llama": {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64,
              "num_attention_heads": 2, "num_key_value_heads": 1},
    "bert": {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64,
             "num_attention_heads": 2},
}  # fmt: skip


@pytest.mark.parametrize("kind", SIZES)
def test_a_config_becomes_layers(kind: str, clean: str) -> None:
    config = {"model_type": kind, "vocab_size": 99, **SIZES[kind]}
    found = profile(config, context=16)
    assert [found.layers[i].kind for i in (0, -1)] == ["Embedding", "Head"]
    assert len(found) == 4 and (found.backward > 0).all()
    assert (found.tied == {"weights of layer 0": (0, 3)}) == (kind != "llama")
    assert found.layers[1].output_bytes == 4 * 16 * 32 * 4
    ids = profile(config, [[1, 2, 3]])
    assert ids.samples == 1 and ids.layers[1].output_bytes == 3 * 32 * 4


def test_configs_that_cannot_be_taken_apart(clean: str) -> None:
    small = {"vocab_size": 99, "n_layers": 1, "dim": 32, "n_heads": 2, "hidden_dim": 32}
    with pytest.raises(pplab.RunError, match="DistilBertForMaskedLM has another shape"):
        profile({"model_type": "distilbert", **small})
    with pytest.raises(pplab.RunError, match="t5 is neither a causal nor a masked"):
        profile({"model_type": "t5"})
    with pytest.raises(pplab.RunError, match="token ids lie between 0 and 98; the sample has 500"):
        profile({"model_type": "gpt2", "vocab_size": 99, **SIZES["gpt2"]}, [[500]])

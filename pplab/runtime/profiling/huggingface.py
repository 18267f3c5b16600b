"""A Hugging Face config as pipeline layers: embedding, one layer a block, head with its norm.

The model is built from the config with random weights; nothing is downloaded. Three shapes of
language model are known: GPT-2 (learned positions), LLaMA (rotary positions; Mistral, Qwen and
others are alike) and BERT (an encoder with a head for masked words; RoBERTa is alike). Whether the
layers in a row are the model is not taken for granted: both compute one sample, and a model whose
scores differ is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from pplab.runtime.job import Job
from pplab.runtime.nets.build import base_seed, set_seed
from pplab.runtime.profiling.chain import Chain, Layer, as_inputs

CONTEXT = 128  # tokens of a sample when nothing is said
Call = Callable[[Any], Any]


def chain(given: Any, sample: Any, job: Job, context: int | None) -> Chain:
    """The model of a config (object or dictionary) as a Chain with its loss.

    sample: token ids (b, t), or None for random ones. Raises ImportError without transformers,
    ValueError for a model that cannot be taken apart.
    """
    model, causal = build(given, job)
    ids, note = _ids(model.config, sample, job, context)
    layers = [Layer(i, *part) for i, part in enumerate(parts(model))]
    _check_same(model, layers, ids)
    notes = [f"{type(model).__name__} built from its config, with random weights"]
    labels = ids.roll(-1, dims=1) if causal else ids
    return Chain(layers, ids, token_loss, labels, notes + ([note] if note else []))


def build(given: Any, job: Job) -> tuple[Any, bool]:
    """The language model of a config; and whether it predicts the next token."""
    try:
        import transformers
        from transformers.models.auto import modeling_auto as auto
    except ImportError as error:
        raise ImportError(
            f"a Hugging Face config needs transformers ({error}): pip install 'pplab[hf]'"
        ) from None
    config = given
    if isinstance(given, dict):
        if given["model_type"] not in transformers.CONFIG_MAPPING:
            raise ValueError(f"transformers knows no model_type {given['model_type']!r}")
        config = transformers.AutoConfig.for_model(**given)
    kind = config.model_type
    masked = kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(
        config, "is_decoder", False
    )
    if not masked and kind not in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ValueError(f"{kind} is neither a causal nor a masked language model: {KNOWN}")
    set_seed(base_seed(job))
    maker = transformers.AutoModelForMaskedLM if masked else transformers.AutoModelForCausalLM
    return maker.from_config(config), not masked


KNOWN = (
    "models like GPT-2, LLaMA (Mistral, Qwen) and BERT (RoBERTa) can be taken apart into layers; "
    "for others give a list of layers and a sample"
)


def parts(model: Any) -> list[tuple[str, Call, nn.Module]]:
    """(kind, what to call, module with its parameters) of each layer, in order."""
    base = getattr(model, model.base_model_prefix, None)
    heads = [child for child in model.children() if child is not base]
    if base is None or len(heads) != 1:
        raise _unknown(model)
    head = heads[0]
    if _has(base, "wte", "wpe", "drop", "h", "ln_f"):
        return _like_gpt2(base, head)
    if _has(base, "embed_tokens", "layers", "norm", "rotary_emb"):
        return _like_llama(base, head)
    if _has(base, "embeddings", "encoder") and hasattr(base.encoder, "layer"):
        return _like_bert(base, head)
    raise _unknown(model)


def _has(base: Any, *names: str) -> bool:
    """Whether these, and no other modules, make up a model."""
    return {name for name, _ in base.named_children()} == set(names)


def _unknown(model: Any) -> ValueError:
    return ValueError(f"{type(model).__name__} has another shape than those known here: {KNOWN}")


def _like_gpt2(base: Any, head: nn.Module) -> list[tuple[str, Call, nn.Module]]:
    def embed(ids: Tensor) -> Tensor:
        return base.drop(base.wte(ids) + base.wpe(torch.arange(ids.shape[1], device=ids.device)))

    return [
        ("Embedding", embed, nn.ModuleList([base.wte, base.wpe, base.drop])),
        *((type(block).__name__, _first(block), block) for block in base.h),
        ("Head", lambda x: head(base.ln_f(x)), nn.ModuleList([base.ln_f, head])),
    ]


def _like_llama(base: Any, head: nn.Module) -> list[tuple[str, Call, nn.Module]]:
    turns: dict[Any, Any] = {}

    def turned(block: nn.Module) -> Call:
        def call(x: Tensor) -> Tensor:
            key = (x.shape[1], x.dtype, x.device)
            if key not in turns:  # sines and cosines: made once, as once a stage in a pipeline
                places = torch.arange(x.shape[1], device=x.device)[None]
                turns[key] = places, base.rotary_emb.to(x.device)(x.detach(), places)
            places, waves = turns[key]
            return _tensor(block(x, position_ids=places, position_embeddings=waves))

        return call

    return [
        ("Embedding", base.embed_tokens, base.embed_tokens),
        *((type(block).__name__, turned(block), block) for block in base.layers),
        ("Head", lambda x: head(base.norm(x)), nn.ModuleList([base.norm, head])),
    ]


def _like_bert(base: Any, head: nn.Module) -> list[tuple[str, Call, nn.Module]]:
    return [
        ("Embedding", lambda ids: base.embeddings(input_ids=ids), base.embeddings),
        *((type(block).__name__, _first(block), block) for block in base.encoder.layer),
        ("Head", head, head),
    ]


def _first(block: nn.Module) -> Call:
    return lambda x: _tensor(block(x))


def _tensor(made: Any) -> Tensor:
    """Blocks of older versions return a tuple, hidden states first."""
    return made[0] if isinstance(made, tuple) else made


def token_loss(scores: Tensor, ids: Tensor) -> Tensor:
    """Mean cross entropy: scores (b, t, v) and token ids (b, t) -> scalar, in float32."""
    return fn.cross_entropy(scores.float().flatten(0, 1), ids.flatten())


def _ids(config: Any, sample: Any, job: Job, context: int | None) -> tuple[Tensor, str]:
    """Token ids (b, t), given or random, and what to say about them."""
    if sample is not None:
        ids = as_inputs(sample, job.dtype)
        if not isinstance(ids, Tensor) or ids.dim() != 2 or ids.is_floating_point():
            raise ValueError("the sample of a Hugging Face model is token ids: integers (b, t)")
        if not 0 <= int(ids.min()) <= int(ids.max()) < config.vocab_size:
            raise ValueError(
                f"token ids lie between 0 and {config.vocab_size - 1}; the sample has "
                f"{int(ids.min())} to {int(ids.max())}"
            )
        return ids.long(), ""
    most = getattr(config, "max_position_embeddings", None) or CONTEXT
    t = context or min(CONTEXT, most)
    ids = torch.randint(2, config.vocab_size, (job.micro_batch_size, t))
    return ids, f"random token ids, {job.micro_batch_size} samples of {t} tokens"


def _check_same(model: nn.Module, layers: list[Layer], ids: Tensor) -> None:
    """The layers in a row compute what the model computes, on one sample; else ValueError."""
    model.eval()
    with torch.no_grad():
        try:
            whole: Tensor = model(input_ids=ids[:1], use_cache=False).logits
        except TypeError:  # an encoder has no cache to refuse
            whole = model(input_ids=ids[:1]).logits
        x: Any = ids[:1]
        for layer in layers:
            x = layer.call(x)
    if x.shape != whole.shape or not torch.allclose(x, whole, rtol=1e-3, atol=1e-4):
        raise ValueError(
            f"{type(model).__name__} computes more than its layers in a row do: {KNOWN}"
        )

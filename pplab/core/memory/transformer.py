"""Parameters and activations of a GPT-like transformer, from its shape.

Activation bytes per layer are those of Korthikanti et al., "Reducing Activation Recomputation in
Large Transformer Models" (arXiv 2205.05198), for 16-bit activations and 1-byte dropout masks:
s = sequence, b = micro-batch size, h = hidden, a = heads, t = tensor-parallel size.
"""

from __future__ import annotations

from dataclasses import dataclass

#: How much of a layer is computed again in the backward pass.
RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True)
class Transformer:
    """Shape of a decoder with learned positions, 4h wide MLPs and tied or untied output.

    positions: rows of the position table (0: none, as with rotary or ALiBi)
    tied: the output projection shares the embedding's weights; in a pipeline of two or more stages
        the last stage then holds its own copy
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int = 0
    positions: int = 0
    tied: bool = True

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "sequence"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    @property
    def layer_parameters(self) -> int:
        """Attention 4h^2 + 4h, MLP 8h^2 + 5h, two layer norms 4h: 12h^2 + 13h."""
        return 12 * self.hidden**2 + 13 * self.hidden

    def layer_share(self, tensor: int = 1) -> float:
        """Parameters of a layer on one of `tensor` ranks, as Megatron-LM cuts it.

        Weights and the biases of the first halves are divided, (12h^2 + 7h) / t; the biases that
        are added after the all-reduce and the norms, 6h, are on every rank.
        """
        return (12 * self.hidden**2 + 7 * self.hidden) / tensor + 6 * self.hidden

    @property
    def embedding_parameters(self) -> int:
        """Words and positions."""
        return (self.vocabulary + self.positions) * self.hidden

    def embedding_share(self, tensor: int = 1) -> float:
        """Parameters of the embedding on one of `tensor` ranks: words divided, positions whole."""
        return (self.vocabulary / tensor + self.positions) * self.hidden

    @property
    def parameters(self) -> int:
        """All of them, shared weights once: 12lh^2 (1 + 13/(12h) + (V+s)/(12lh)) and a final norm.

        Megatron-LM, arXiv 2104.04473, equation 2, which leaves the final norm (2h) out.
        """
        output = 0 if self.tied else self.vocabulary * self.hidden
        return (
            self.layers * self.layer_parameters
            + self.embedding_parameters
            + 2 * self.hidden
            + output
        )

    def layer_activation(
        self,
        micro_batch: int,
        *,
        tensor: int = 1,
        sequence_parallel: bool = False,
        recompute: str = "none",
    ) -> float:
        """Bytes that one layer keeps from F to B for one micro-batch, on one rank.

        none: sbh(10 + 24/t + 5as/(ht)), with sequence parallelism sbh/t (34 + 5as/h);
        selective (attention scores again): the same without 5as/h; full: the layer's input, 2sbh
        (it is divided by t only where checkpoints are partitioned as well).
        """
        if recompute not in RECOMPUTE:
            raise ValueError(f"recompute is one of {', '.join(RECOMPUTE)}, not {recompute!r}")
        if tensor < 1 or self.heads % tensor:
            raise ValueError(
                f"{self.heads} heads cannot be dealt to {tensor} tensor-parallel ranks"
            )
        sbh = self.boundary(micro_batch) / 2
        if recompute == "full":
            return 2 * sbh
        scores = 0.0
        if recompute == "none":
            scores = 5 * self.heads * self.sequence / self.hidden
        if sequence_parallel:
            return sbh / tensor * (34 + scores)
        return sbh * (10 + 24 / tensor + scores / tensor)

    def boundary(self, micro_batch: int) -> int:
        """Bytes of the tensor between two layers for one micro-batch: 2sbh."""
        return 2 * self.sequence * micro_batch * self.hidden

    def embedding_activation(self, micro_batch: int) -> float:
        """Bytes the embedding keeps for one micro-batch: its dropout mask, sbh."""
        return self.boundary(micro_batch) / 2

    def head_activation(self, micro_batch: int, *, tensor: int = 1) -> float:
        """Bytes that the final norm, the output projection and the loss keep: 4sbh (1 + V/h) / t.

        fp32 logits are the 4sbV of it (the same paper, section 4.3). Of these only one micro-batch
        is in flight: this is the last stage.
        """
        sbh = self.boundary(micro_batch) / 2
        return 4 * sbh / tensor * (1 + self.vocabulary / self.hidden)

    def workspace(self, micro_batch: int, *, tensor: int = 1, recompute: str = "none") -> float:
        """Bytes that come on top while one layer runs backward.

        Gradients of its input and output, 2sbh each, and of the two sides of its MLP, 8sbh/t each;
        with recomputation also what was computed again. An estimate: it leaves out what the
        allocator and the libraries need.
        """
        sbh = self.boundary(micro_batch) / 2
        gradients = 4 * sbh + 16 * sbh / tensor
        if recompute == "none":
            return gradients
        again = self.layer_activation(micro_batch, tensor=tensor)
        if recompute == "selective":
            kept = self.layer_activation(micro_batch, tensor=tensor, recompute="selective")
            return gradients + again - kept
        return gradients + again

"""The Fiber Bundle Transformer and, by ``config.score``, its Euclidean and L2 baselines: one class, one path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from fbt_core.checkpoints.health import few
from fbt_core.config import FiberBundleConfig
from fbt_core.model.block import BlockRecord, FiberBlock
from fbt_core.model.initialise import initialise
from fbt_core.model.regularisers import regulariser
from fbt_core.model.watching import observe, watching
from fbt_core.trace import LayerTrace, Trace


class FiberBundleTransformer(nn.Module):
    """A decoder (or, with ``causal = False``, an encoder) over token ids.

    Every parameter is drawn from a generator seeded by ``seed`` and the parameter's own name, so models that share a
    seed share the initial value of every parameter that they have in common.
    """

    def __init__(self, config: FiberBundleConfig, seed: int = 0) -> None:
        super().__init__()
        c = self.config = config
        self.embedding = nn.Embedding(c.vocab_size, c.width)
        if c.position == "learned":
            self.position = nn.Embedding(c.context, c.width)
        self.blocks = nn.ModuleList(FiberBlock(c) for _ in range(c.layers))
        self.final_norm = nn.RMSNorm(c.width, eps=1e-6)
        if not c.tied_embedding:
            self.unembedding = nn.Linear(c.width, c.vocab_size, bias=False)
        initialise(self, seed)

    def forward(self, ids: Int[Tensor, "batch token"]) -> Float[Tensor, "batch token vocab"]:
        """Logits of the next token at every position.

        Raises ``ValueError`` for no token at all, and for more tokens than there are learned positions.
        """
        x = start = self._embed(ids)
        for _, after, _ in self._layers(start):
            x = after
        return self._logits(self.final_norm(x))

    def loss(self, ids: Int[Tensor, "batch token"]) -> tuple[Tensor, Tensor]:
        """Mean next-token cross-entropy (nats a token), and the weighted regularisers of item 10; add them to train."""
        x = start = self._embed(ids)
        raws = []
        for _, after, record in self._layers(start):
            x = after
            if record.raw is not None:
                raws.append(record.raw)
        logits = self._logits(self.final_norm(x))
        entropy = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        return entropy, regulariser(raws, self.config).to(entropy)

    @torch.no_grad()  # and not inference_mode: curvature differentiates through MetricNet afterwards
    def trace(self, ids: Int[Tensor, " token"], strength: float = 1.0, tokens: Sequence[str] = ()) -> Trace:
        """One sequence, its factors kept. The same blocks run as in ``forward``, so the logits are equal.

        ``strength`` multiplies every U: 1 as trained, 0 the identity metric, anything but 1 a what-if.
        ``tokens`` are labels for whoever draws. Raises ``ValueError`` as ``forward`` does, for a strength that is
        negative or not finite, and where the pass overflows.
        """
        if not 0 <= strength < float("inf"):
            raise ValueError(f"got strength {strength}, expected a finite number of at least 0")
        ids = ids.to(self.embedding.weight.device)
        x = start = self._embed(ids[None])
        layers: list[LayerTrace] = []
        try:
            for before, after, record in self._layers(start, strength):
                x = after
                layers.append(_layer_trace(len(layers), before, after, record, self.config.own_score))
        except torch.linalg.LinAlgError as error:  # a Cholesky factor of NaN
            raise ValueError(self._not_finite(len(layers), strength)) from error
        normed = self.final_norm(x)
        return Trace(
            ids=ids, layers=tuple(layers), normed=normed[0], logits=self._logits(normed)[0], strength=strength,
            has_metric=self.config.has_metric, tokens=tuple(tokens),
        )  # fmt: skip

    def _not_finite(self, layer: int, strength: float) -> str:
        """Why a pass could not go on: of weights that are sick no strength is low enough."""
        if sick := [name for name, value in self.named_parameters() if not value.isfinite().all()]:
            return (
                f"got NaN or infinite weights in {few(sick)}, expected finite ones: open an earlier checkpoint; the "
                "Weights page shows which"
            )
        return (
            f"got numbers that overflow in layer {layer} at strength {strength:g}, expected finite ones: lower the "
            "strength, or open an earlier checkpoint"
        )

    def traces(
        self, ids: Int[Tensor, " token"], strength: float = 1.0, tokens: Sequence[str] = (), target: None = None,
        target_tokens: Sequence[str] = (), pixels: None = None, variant: str = "full",
    ) -> dict[str, Trace]:  # fmt: skip
        """``trace`` by the name of its stack, as models of several stacks give it. There is one, without a name.

        ``variant`` is a key of ``VARIANTS``, one of Dong's ablations. There is no other stack and no image to give a
        ``target`` or ``pixels``. Raises ``ValueError`` for a variant of a pure stack, which has nothing to leave out.
        """
        if variant == "full":
            return {"": self.trace(ids, strength, tokens)}
        outputs = {id(block.output) for block in self.blocks}  # the last step of attention, and its only module
        observe(self, {"": self.blocks}, lambda module: id(module) in outputs, lambda module: False)
        with watching(variant) as watch:
            trace = self.trace(ids, strength, tokens)
        watch.check()
        return {"": trace}

    def _layers(self, x: Tensor, strength: float = 1.0) -> Iterator[tuple[Tensor, Tensor, BlockRecord]]:
        """The one forward path: (before, after, record) of each block in turn; the caller keeps what it needs."""
        slopes = self._slopes(x)
        for block in self.blocks:
            after, record = block(x, slopes, strength)
            yield x, after, record
            x = after

    def _embed(self, ids: Tensor) -> Tensor:
        length = ids.shape[-1]
        if length == 0:
            raise ValueError("got no token, expected at least one")
        x = self.embedding(ids)
        if self.config.position != "learned":
            return x
        if length > self.config.context:
            raise ValueError(f"got {length} tokens, expected at most {self.config.context}: positions are learned")
        return x + self.position.weight[:length]

    def _slopes(self, x: Tensor) -> Tensor | None:
        """ALiBi's geometric slopes 2^{-8 (h + 1) / H} (Press et al. 2022, arXiv 2108.12409), nats a token."""
        if self.config.position != "alibi":
            return None
        heads = self.config.heads
        return torch.pow(2.0, -8.0 * torch.arange(1, heads + 1, device=x.device) / heads).to(x)

    def _logits(self, normed: Tensor) -> Tensor:
        return F.linear(normed, self.embedding.weight) if self.config.tied_embedding else self.unembedding(normed)


def _layer_trace(index: int, before: Tensor, after: Tensor, record: BlockRecord, score: str) -> LayerTrace:
    """A batch of one without its batch axis."""
    f = record.factors
    factors = replace(f, q=f.q[0], k=f.k[0], v=f.v[0], metric=f.metric.sequence(0), omega=f.omega[0])
    torsion = None if record.torsion is None else (record.torsion[0][0], record.torsion[1][0])
    return LayerTrace(index, before[0], record.middle[0], after[0], factors, torsion, score)

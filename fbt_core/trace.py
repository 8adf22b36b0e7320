"""One pass of one sequence through a model, kept as factors: O(tokens x width) a layer, and a map only where the
model gives nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from fbt_core.attention.scores import Factors, attention
from fbt_core.geometry.metric import LowRankMetric


@dataclass(frozen=True)
class LayerTrace:
    """What one block computed for one sequence of L tokens: H heads of width d.

    ``residual_in`` enters the block, ``residual_mid`` stands after its attention (None where that cannot be told
    apart), ``residual_out`` after its feed-forward. In a pure stack the last two are equal.

    A layer without attention has neither ``factors`` nor ``maps``; one whose q and k cannot be had has its own maps
    only. ``why`` then says so, for people.
    """

    index: int
    residual_in: Float[Tensor, "token width"]
    residual_mid: Float[Tensor, "token width"] | None
    residual_out: Float[Tensor, "token width"]
    factors: Factors | None  # q, k, v, U, tau, omega, ... of every head: all that a score needs
    torsion: tuple[Float[Tensor, "head token dim torsion"], Float[Tensor, "head token dim torsion"]] | None
    score: str  # the score that the model itself used: euclidean | l2 | riemannian | blended
    kind: str = "attention"  # or what the layer does instead: mamba, linear attention, ...
    maps: Float[Tensor, "head row column"] | None = None  # the model's own attention, where q and k cannot be had
    why: str = ""
    rotary: tuple[Tensor, Tensor] | None = None  # (cos, sin) by which the layer turned q and k, (token, turned dims)
    residual_U: Float[Tensor, "token width more"] | None = None  # of a metric that lives on the residual stream itself

    @property
    def heads(self) -> int:
        """H, the number of heads; 0 without attention."""
        if self.factors is not None:
            return self.factors.q.shape[-3]
        return 0 if self.maps is None else len(self.maps)

    @property
    def metric(self) -> LowRankMetric:
        """The metrics in head space: U is (head, token, d, r); r = 0 for a model without one."""
        return self.given.metric

    @property
    def given(self) -> Factors:
        """The factors. Raises ``ValueError`` with the reason where there are none."""
        if self.factors is None:
            raise ValueError(self.unavailable("riemannian"))
        return self.factors

    @property
    def residual_blocks(self) -> Float[Tensor, "block token dim rank"]:
        """U of every diagonal block of the residual stream's metric G: one a head, or one of the whole width."""
        return self.given.U if self.residual_U is None else self.residual_U[None]

    @property
    def residual_metric(self) -> LowRankMetric:
        """G, one a token: I_D + blockdiag_h(U_h U_h^T), or the residual stream's own where it has one."""
        return LowRankMetric(self.residual_blocks.transpose(0, 1)).block_diagonal()

    def select(self, head: int) -> LayerTrace:
        """The layer with one of its heads, the head axis kept at length 1."""
        torsion = None if self.torsion is None else (self.torsion[0][head : head + 1], self.torsion[1][head : head + 1])
        factors = None if self.factors is None else self.factors.select(head)
        return replace(self, factors=factors, torsion=torsion, maps=None if self.maps is None else self.maps[[head]])

    def unavailable(self, score: str) -> str:
        """Why there is no attention by ``score`` here, a sentence; empty where there is."""
        if self.factors is not None or (self.maps is not None and score == self.score):
            return ""
        return self.why or f"layer {self.index} has no attention: it is a {self.kind} layer"

    def attention(self, head: int, score: str, rows: slice | None = None) -> Float[Tensor, "row column"]:
        """The attention of one head under ``score`` for the queries ``rows`` (default all).

        Raises ``ValueError`` with the reason where it cannot be had.
        """
        if self.factors is not None:
            return attention(self.factors.select(head), score, rows)[0]
        if self.maps is None or score != self.score:
            raise ValueError(self.unavailable(score))
        return self.maps[head] if rows is None else self.maps[head, rows]


@dataclass(frozen=True)
class Trace:
    """A frozen record of ``model.trace(ids)``; the logits equal those of ``model(ids)``.

    ``normed`` is the residual after the final norm, which is not the same as the last layer's ``residual_out``: a jump
    between the two is the norm's doing.
    """

    ids: Int[Tensor, " token"]
    layers: tuple[LayerTrace, ...]
    normed: Float[Tensor, "token width"]
    logits: Float[Tensor, "token vocab"] | None  # None for a model that predicts no token
    strength: float  # of the metric; anything but 1 is a what-if
    has_metric: bool
    tokens: tuple[str, ...] = ()  # one label a token, for whoever draws
    key_tokens: tuple[str, ...] = ()  # labels of the columns, where they are other tokens than the rows
    stack: str = ""  # encoder, decoder or cross, of a model that has several
    source: str = ""  # where the metric comes from, when not from the model: a key of SOURCES
    notes: tuple[str, ...] = ()  # what is unavailable, left out or normalised, sentences for people
    adapter: Any = None  # the ``Adapter`` whose metrics these are, where the source is one

    @property
    def length(self) -> int:
        """L, the number of tokens."""
        return len(self.ids)

    @property
    def heads(self) -> int:
        """H, the number of heads: the most that any layer has."""
        return max((layer.heads for layer in self.layers), default=0)

    @property
    def rectangular(self) -> bool:
        """Whether queries and keys are different tokens, as in cross-attention."""
        return bool(self.key_tokens)

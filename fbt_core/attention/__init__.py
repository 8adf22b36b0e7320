"""Scores of a query against a key, and three exact ways to attend by them."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from fbt_core.attention.factored import dictionary_attention, euclidean_attention
from fbt_core.attention.scores import Factors
from fbt_core.attention.streamed import streamed_attention
from fbt_core.geometry.metric import DictionaryMetric


def attend(f: Factors, score: str) -> Float[Tensor, "*head token dim"]:
    """The output of attention by ``score``, through the cheapest exact way for these factors."""
    if f.softcap is not None or f.sinks is not None:
        return streamed_attention(f, score)  # neither is what the fused kernels compute
    if score == "euclidean":
        return euclidean_attention(f)
    gram = isinstance(f.metric, DictionaryMetric) or f.metric.rank == 0
    if gram and score in ("l2", "riemannian", "blended"):
        return dictionary_attention(f)
    return streamed_attention(f, score)

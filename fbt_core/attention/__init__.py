"""Scores of a query against a key, and five exact ways to attend by them."""

from __future__ import annotations

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from fbt_core.attention import fused
from fbt_core.attention.factored import dictionary_attention, euclidean_attention
from fbt_core.attention.gpu import on_gpu
from fbt_core.attention.scores import Factors
from fbt_core.attention.streamed import streamed_attention
from fbt_core.geometry.metric import DictionaryMetric, LowRankMetric


def attend(f: Factors, score: str) -> Float[Tensor, "*head token dim"]:
    """The output of attention by ``score``, through the cheapest exact way for these factors."""
    if f.softcap is not None or f.sinks is not None or score == "homogeneous":
        return streamed_attention(f, score)  # none of them is what the fused kernels compute
    if score == "euclidean":  # torch's kernel wants ALiBi as a mask of all pairs
        alibi = f.slopes is not None and fused.serves(f, 0)
        return fused.attention(f, score) if alibi else euclidean_attention(f)
    if score == "l2":
        f = replace(f, metric=LowRankMetric(f.U[..., :0]), omega=f.omega.new_zeros(f.omega.shape), images=None)
    if score != "blended":
        f = f.with_alpha(1.0)
    gram = f.metric.rank == 0 or isinstance(f.metric, DictionaryMetric)
    if f.metric.rank and gram:
        return dictionary_attention(f)
    if fused.serves(f, f.metric.rank):
        return fused.attention(f)
    if gram:
        return dictionary_attention(f)
    found = on_gpu(f, "blended")
    return streamed_attention(f, "blended") if found is None else found

"""What attention would be if the true distance replaced the chord: a what-if, for the model was trained with the chord.

The score's chord lies between a query and a key, the true distance between two tokens' residuals; they are points of
different spaces. What can be carried over is by how much the field makes the way between the two tokens longer than
their chord. So the pair's squared chord is multiplied by rho_ij = (true_ij / chord_ij)^2 and all else stays:

    s_ij = - rho_ij (q_i - k_j)^T (g_i + g_j)/2 (q_i - k_j) / tau - Omega_j

rho = 1 gives the model's own attention, and so does a constant field.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from fbt_core.attention.scores import Factors, allowed, bias, euclidean, riemannian


def distance_ratio(
    true: Float[Tensor, "*head row token"], chord: Float[Tensor, "*head row token"]
) -> Float[Tensor, "*head row token"]:
    """rho = (true / chord)^2; 1 where both are 0, as from a token to itself; NaN where a length is."""
    same = (true == 0) & (chord == 0)
    return torch.where(same, 1.0, (true / torch.where(same, 1.0, chord)).square())


def true_distance_logits(
    f: Factors, ratio: Float[Tensor, "*#head row token"], score: str = "riemannian", tokens: slice | None = None
) -> Float[Tensor, "*head row token"]:
    """The logits in nats, in float64, before mask and position bias, of the queries and keys ``tokens`` (default all).

    ``score`` is riemannian or blended, whose part (1 - alpha) of dot product stays. Raises ``ValueError`` for another
    one: it has no chord to replace.
    """
    if score not in ("riemannian", "blended"):
        raise ValueError(f"got score {score!r}, expected riemannian or blended: no other has a chord to replace")
    rows, columns = _span(f, tokens)
    omega = f.omega[..., None, columns].double()
    replaced = (riemannian(f, rows, columns).double() + omega) * ratio.to(omega) - omega
    if score == "riemannian":
        return replaced
    return (1 - f.alpha) * euclidean(f, rows, columns).double() + f.alpha * replaced


def true_distance_attention(
    f: Factors, ratio: Float[Tensor, "*#head row token"], score: str = "riemannian", tokens: slice | None = None
) -> Float[Tensor, "*head row token"]:
    """The softmax of ``true_distance_logits`` under the model's mask and position bias; rows sum to 1.

    With ``tokens`` it goes over these alone, other keys left out. A row is NaN where an allowed pair has no ratio.
    O(L^2) memory a head: ask for one (``Factors.select``).
    """
    rows, columns = _span(f, tokens)
    ratio = torch.where(allowed(f, rows)[:, columns], ratio, 1.0)
    logits = true_distance_logits(f, ratio, score, tokens)
    extra = bias(f, rows, columns)
    return (logits if extra is None else logits + extra).softmax(-1).to(f.q)


def _span(f: Factors, tokens: slice | None) -> tuple[slice, slice]:
    """Rows and columns."""
    return (slice(0, f.q.shape[-2]), slice(0, f.k.shape[-2])) if tokens is None else (tokens, tokens)

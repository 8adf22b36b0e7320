"""Features of tokens whose metrics share a dictionary: products of them are the Riemannian score, up to a row's term.

With a = B^T q, b = B^T k and weights w of the atoms, (a - b)^T diag(w_i + w_j) (a - b) taken apart gives

    along ( q.k + (w_i a).b + a.(w_j b) - w_i.b^2 / 2 - a^2.w_j / 2 ) + along (- w_j.b^2 / 2) - share ||k||^2
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from fbt_core.attention.fused.function import matrix_unit, pulled_back, run, structure

TENSORS = ("q", "k", "w", "atoms", "along", "share", "queries", "keys", "column")
SIZES = ("b", "heads", "tokens", "width", "count", "threads", "centred")
LANES = 16

DICTIONARY = structure(TENSORS, SIZES)
"""``Dictionary`` of half_features.h."""


def dictionary_features(
    q: Float[Tensor, "*head token dim"],
    k: Float[Tensor, "*head token dim"],
    w: Float[Tensor, "*head token atom"],
    atoms: Float[Tensor, "head dim atom"],
    along: Float[Tensor, " head"],
    share: Float[Tensor, " head"],
    centred: bool,
    bases: tuple[Tensor, Tensor] | None = None,
) -> tuple[Float[Tensor, "*head token f"], Float[Tensor, "*head token f"], Float[Tensor, "*head token"]]:
    """Queries, keys and column: f = d + 4 m; the column is in float32 at least.

    ``atoms`` is B times the root of the metric's weight in the score over ``along``; ``centred`` moves q and k by the
    keys' mean. With ``bases`` (rest, inverse), x.y = (rest^T x).(rest^T y) + (inverse^T x).(B^T y) for all x and y,
    q.k goes without m of its products: f = d + 3 m.
    """
    q, k = about_keys_mean(q, k) if centred else (q, k)
    if bases is None:
        atoms = atoms.to(k)
        first, a, last, b = q, q @ atoms, k, k @ atoms
        second = w * a
    else:
        widths = [bases[0].shape[-1], *2 * [atoms.shape[-1]]]
        first, on_b, a = (q @ torch.cat([*bases, atoms], -1)).split(widths, -1)
        last, b = (k @ torch.cat([bases[0], atoms], -1)).split(widths[:2], -1)
        second = torch.addcmul(on_b, w, a)
    nothing = a.new_zeros(())
    of_a, of_b = (torch.addcmul(nothing, x, x, value=-0.5) for x in (a, b))
    column = along[:, None] * (w * of_b).sum(-1, dtype=along.dtype) - share[:, None] * norms(k, along.dtype)
    return torch.cat([first, second, a, w, of_a], -1), torch.cat([last, b, w * b, of_b, w], -1), column


def about_keys_mean(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Both moved alike, which changes no distance, and saves digits."""
    centre = k.mean(-2, keepdim=True).detach()
    return q - centre, k - centre


def norms(x: Float[Tensor, "*any dim"], dtype: torch.dtype) -> Float[Tensor, "*any"]:
    """||x||^2, summed in ``dtype``."""
    return torch.linalg.vector_norm(x, dim=-1, dtype=dtype).square()


def compiled_features(q: Tensor, k: Tensor, w: Tensor, atoms: Tensor, along: Tensor, share: Tensor, centred: bool,
                      bases: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """``dictionary_features``; in bfloat16 without bases in one pass over the tokens, where there is a matrix unit."""
    fits = q.shape[-1] % LANES == 0 and w.shape[-1] % LANES == 0 and q.shape == k.shape
    if bases is None and {x.dtype for x in (q, k, w)} == {torch.bfloat16} and fits and matrix_unit():
        return _Features.apply(q, k, w, atoms, along, share, centred)
    return dictionary_features(q, k, w, atoms, along, share, centred, bases)


class _Features(torch.autograd.Function):
    """The gradients are torch's own, of ``dictionary_features``: nothing is kept but the inputs."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, w: Tensor, atoms: Tensor, along: Tensor, share: Tensor,
                centred: bool) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        ctx.centred = centred
        ctx.save_for_backward(q, k, w, atoms, along, share)
        given = {"q": q, "k": k, "w": w, "atoms": atoms.float(), "along": along, "share": share}
        size = {"b": q[..., 0, 0].numel(), "heads": q.shape[-3], "tokens": q.shape[-2], "width": q.shape[-1]}
        size |= {"count": w.shape[-1], "centred": int(centred)}
        made = [q.new_empty(*q.shape[:-1], size["width"] + 4 * size["count"]) for _ in range(2)]
        made.append(along.new_empty(k.shape[:-1]))
        run("features", DICTIONARY, size, given | dict(zip(TENSORS[6:], made, strict=True)), q.dtype)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor) -> tuple[Tensor | None, ...]:
        def made(*given: Any) -> tuple[Tensor, ...]:
            return dictionary_features(*given, ctx.centred)

        return *pulled_back(made, ctx.saved_tensors, ctx.needs_input_grad[:-1], pulls), None

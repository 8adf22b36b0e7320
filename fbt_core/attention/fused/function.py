"""Exact attention by the Riemannian score in one compiled pass over tiles, forward and backward, for autograd.

The logit is dot q_i . k_j + column_j - slope |i - j| - square (||U_i^T (k_j - q_i)||^2 + ||U_j^T (q_i - k_j)||^2): the
l2, Riemannian and blended scores up to a term of the row, and the features of a dictionary (rank 0). Products of d
numbers a pair: 2 (1 + r) forward and 5 + 6 r backward, where standard attention has 2 and 5.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from fbt_core.attention.fused.build import kernel

TENSORS = (
    "q", "k", "v", "U", "column", "dot", "square", "slope", "u", "w", "out", "lse", "pull", "delta",
    "dq", "dk", "dv", "dU", "dcolumn", "ddot", "dsquare",
)  # fmt: skip
SIZES = ("b", "heads", "rows", "keys", "width", "value", "rank", "causal", "threads")


def structure(tensors: tuple[str, ...], sizes: tuple[str, ...]) -> type[ctypes.Structure]:
    """What the kernel takes: pointers, then whole numbers, in the order of the C++ one."""
    fields = [(name, ctypes.c_void_p) for name in tensors] + [(name, ctypes.c_long) for name in sizes]
    return type("Given", (ctypes.Structure,), {"_fields_": fields})


PROBLEM = structure(TENSORS, SIZES)
"""``Problem`` of problem.h."""


def attend(
    q: Float[Tensor, "*head row dim"],
    k: Float[Tensor, "*head token dim"],
    v: Float[Tensor, "*head token value"],
    U: Float[Tensor, "*head token dim rank"],
    column: Float[Tensor, "*head token"],
    dot: Float[Tensor, " head"],
    square: Float[Tensor, " head"],
    slope: Float[Tensor, " head"] | None,
    causal: bool,
) -> Float[Tensor, "*head row value"]:
    """sum_j softmax_j(logit_ij) v_j, the logit as this module says, in the numbers of q.

    All in float32 or all in float64; or q, k, v and U in bfloat16 and the rest in float32, where ``matrix_unit`` says
    so. Rows and keys are the same tokens unless the rank is 0. Slopes have no gradient. Gradients of gradients
    (``create_graph``) are torch's own, of ``dense``. Memory beside the result: 1 + 2 r numbers a token and, a thread,
    one block of packed keys; backward, beside the gradients, a head's U and d + r numbers a token, a thread, and in
    bfloat16 a head's q, U and pull in two orders, and its gradients in float32. The same inputs give the same bits with
    any number of threads.
    """
    width, value, lanes = q.shape[-1], v.shape[-1], _lanes(q.dtype)
    q, k, v = (_whole(x, lanes) for x in (q, k, v))
    U = F.pad(U, (0, 0, 0, -width % lanes)) if width % lanes else U
    return _Attend.apply(q, k, v, U, column, dot, square, slope, causal)[..., :value]


def matrix_unit() -> bool:
    """Whether the kernel is there and has found a matrix unit, whose products of bfloat16 are summed in float32."""
    return kernel() is not None and _lanes(torch.bfloat16) > 0


def _whole(x: Tensor, lanes: int) -> Tensor:
    """The last axis filled with zeros to whole vectors."""
    more = -x.shape[-1] % lanes
    return F.pad(x, (0, more)) if more else x


def _lanes(dtype: torch.dtype) -> int:
    return int(_entry("lanes", dtype)())


def _entry(name: str, dtype: torch.dtype) -> Any:
    library = kernel()
    assert library is not None  # whoever calls has looked
    return getattr(library, f"fiberscope_{name}_{str(dtype).removeprefix('torch.')}")


def run(
    name: str, given: type[ctypes.Structure], sizes: dict[str, int], tensors: dict[str, Tensor | None],
    dtype: torch.dtype,
) -> None:  # fmt: skip
    """Call a function of the kernel, for numbers of a kind. What it writes to is contiguous; the rest is made so."""
    whole = {name: t.contiguous() for name, t in tensors.items() if t is not None}
    threads = torch.get_num_threads()
    problem = given(**sizes, threads=threads, **{name: t.data_ptr() for name, t in whole.items()})
    if _entry(name, dtype)(ctypes.byref(problem)):
        raise MemoryError("got no memory for some tokens, expected it: close something, or shorten the text")


def pulled_back(
    make: Callable[..., Any], given: Sequence[Tensor | None], needed: Sequence[bool], pulls: tuple[Tensor, ...]
) -> tuple[Tensor | None, ...]:
    """The gradients of ``make(*given)`` by torch, those that are needed; they have gradients where those are asked for.

    All are taken under names of their own: where one was made of another, that way is the caller's to differentiate.
    """
    graph = torch.is_grad_enabled()
    own = [t if t is None else t.view_as(t) if graph else t.detach() for t in given]
    wanted = [t if graph else t.requires_grad_() for t, asked in zip(own, needed, strict=True) if asked]
    with torch.enable_grad():
        made = make(*own)
    found = iter(torch.autograd.grad(made, wanted, pulls, create_graph=graph, allow_unused=True))
    return tuple(next(found) if asked else None for asked in needed)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, U: Tensor, column: Tensor, dot: Tensor, square: Tensor,
                slope: Tensor | None, causal: bool) -> Tensor:  # fmt: skip
        given = {"q": q, "k": k, "v": v, "U": U, "column": column, "dot": dot, "square": square, "slope": slope}
        ctx.sizes = {
            "b": q[..., 0, 0].numel(), "heads": q.shape[-3], "rows": q.shape[-2], "keys": k.shape[-2],
            "width": q.shape[-1], "value": v.shape[-1], "rank": U.shape[-1], "causal": int(causal),
        }  # fmt: skip
        made = {
            "u": column.new_empty(*q.shape[:-1], U.shape[-1]),
            "w": column.new_empty(*k.shape[:-1], U.shape[-1]),
            "out": q.new_empty(*q.shape[:-1], v.shape[-1]),
            "lse": column.new_empty(q.shape[:-1]),
        }
        run("forward", PROBLEM, ctx.sizes, given | made, q.dtype)
        ctx.names = tuple(given | made)
        ctx.save_for_backward(*(given | made).values())
        return made["out"]

    @staticmethod
    def backward(ctx: Any, pull: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # these gradients shall have gradients
            return _by_torch(ctx, pull)
        kept = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        kept |= {"pull": pull, "delta": (pull.to(kept["lse"]) * kept["out"]).sum(-1)}
        grads = {f"d{name}": kept[name].new_empty(kept[name].shape) for name in ("q", "k", "v", "U", "column")}
        heads = kept["q"].shape[:-2]
        grads |= {name: kept["lse"].new_empty(heads) for name in ("ddot", "dsquare")}
        run("backward", PROBLEM, ctx.sizes, kept | grads, pull.dtype)
        of_heads = (grads[name].reshape(-1, heads[-1]).sum(0) for name in ("ddot", "dsquare"))
        return *(grads[f"d{name}"] for name in ("q", "k", "v", "U", "column")), *of_heads, None, None


def _by_torch(ctx: Any, pull: Tensor) -> tuple[Tensor | None, ...]:
    def made(*given: Any) -> Tensor:
        return dense(*given, causal=bool(ctx.sizes["causal"])).to(pull)

    return *pulled_back(made, ctx.saved_tensors[:8], ctx.needs_input_grad[:8], (pull,)), None  # q to slope; causal


def dense(q: Tensor, k: Tensor, v: Tensor, U: Tensor, column: Tensor, dot: Tensor, square: Tensor,
          slope: Tensor | None, causal: bool) -> Tensor:  # fmt: skip
    """What the kernel computes, by torch: differentiable as often as one likes, in memory of (1 + 2 r) L^2 numbers."""
    q, k, v, U = (t.to(column) for t in (q, k, v, U))
    logits = dot[:, None, None] * (q @ k.mT) + column.unsqueeze(-2)
    for of_rank in U.unbind(-1):
        own = (of_rank @ k.mT - (of_rank * q).sum(-1, keepdim=True)).square()
        other = (q @ of_rank.mT - (of_rank * k).sum(-1).unsqueeze(-2)).square()
        logits = logits - square[:, None, None] * (own + other)
    after = torch.arange(k.shape[-2])[None, :] - torch.arange(q.shape[-2])[:, None]
    if slope is not None:
        logits = logits - slope[:, None, None] * after.abs()
    return (logits.masked_fill(after > 0, -torch.inf) if causal else logits).softmax(-1) @ v

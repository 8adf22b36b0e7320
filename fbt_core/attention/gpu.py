"""Attention on a CUDA device by the Triton kernels, where they are to be had and are seen to be right."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from fbt_core.attention.expanded import expandable, expanded, plain_autograd
from fbt_core.attention.scores import Factors
from fbt_core.attention.streamed import streamed_attention
from fbt_core.geometry.metric import LowRankMetric

MOST_RANK, WIDEST = 8, 256
"""Metrics of a higher rank, and heads that are wider, are streamed: a tile of theirs has no room on the chip."""

TOLERANCE = {torch.float32: 2e-3, torch.float16: 3e-2, torch.bfloat16: 2e-1}
"""On trial: by how much of its largest entry a result may differ, coarse enough for the number format's own digits."""

STEPS = 5
"""Tiles to try, from the largest on."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Case:
    """What a kernel is compiled for."""

    device: torch.device
    dtype: torch.dtype
    width: int
    value: int
    rank: int
    causal: bool
    alibi: bool
    tf32: bool


def on_gpu(f: Factors, score: str) -> Float[Tensor, "*head token dim"] | None:
    """Attention by ``score`` in one kernel; None where the streamed path has to do it.

    That is: no CUDA tensors, a mask or float64, another score's form, a rank above ``MOST_RANK``, no Triton, or a
    kernel that failed its trial on this device, which the log says once.
    """
    rank = f.metric.rank
    if not f.q.is_cuda or f.q.dtype not in TOLERANCE or not (expandable(f, score) and plain_autograd(f)):
        return None
    if rank > MOST_RANK or max(f.q.shape[-1], f.v.shape[-1]) > WIDEST or f.q.shape[-2] != f.k.shape[-2]:
        return None
    tf32 = bool(torch.backends.cuda.matmul.allow_tf32)
    case = _Case(f.q.device, f.q.dtype, f.q.shape[-1], f.v.shape[-1], rank, f.causal, f.slopes is not None, tf32)
    smaller = _smaller(case)
    return None if smaller is None else _run(f, score, smaller)


def _run(f: Factors, score: str, smaller: int) -> Tensor:
    from fbt_core.attention.triton_function import plan, triton_attention  # imports Triton

    parts = expanded(f, score)
    with torch.cuda.device(f.q.device):  # Triton launches on the current device
        return triton_attention(parts, plan(parts, smaller))


@lru_cache(maxsize=256)
def _smaller(case: _Case) -> int | None:
    """With which tiles (see ``plan``) the kernel compiles on the device and agrees with the streamed path there,
    forward and backward; None where it does with none."""
    fault = ""
    for smaller in range(STEPS):
        try:
            fault = _fault(case, smaller)
        except torch.OutOfMemoryError:
            raise  # it passes, and says nothing about the kernel: not to be remembered
        except Exception as error:  # what Triton raises depends on its version, the driver and the chip
            fault = fault or f"{type(error).__name__}: {error}"
            continue
        if not fault:
            return smaller
        break
    log.warning("Attention on %s is streamed, in place of the Triton kernel: %s", case.device, fault)
    return None


def _fault(case: _Case, smaller: int) -> str:
    """What differs on a trial of 80 tokens, a sentence; empty where nothing does."""
    with torch.enable_grad():
        ours, inputs = _trial(case, case.dtype)
        theirs, exact = _trial(case, torch.float32)
        got = _gradients(_run(ours, "riemannian", smaller), inputs)
        expected = _gradients(streamed_attention(theirs, "riemannian"), exact)
    for name, one, other in zip(("output", "dq", "dk", "dv", "dU", "dOmega"), got, expected, strict=True):
        far = float((one.float() - other).abs().amax() / other.abs().amax().clamp_min(1e-30)) if other.numel() else 0.0
        if not far <= TOLERANCE[case.dtype]:
            return f"its {name} is off by {far:.2g} of the largest entry in {case.dtype}, expected agreement"
    return ""


def _trial(case: _Case, dtype: torch.dtype) -> tuple[Factors, list[Tensor]]:
    """Two heads of random tokens in the case's format, written in ``dtype``, and the tensors to differentiate by."""
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        numbers = torch.randn(*shape, generator=random).mul(scale).to(case.dtype)
        return numbers.to(case.device, dtype).requires_grad_()

    q, k = normal(2, 80, case.width), normal(2, 80, case.width)
    v, U = normal(2, 80, case.value), normal(2, 80, case.width, case.rank, scale=case.width**-0.5)
    omega = normal(2, 80)
    tau = torch.full((2,), 2 * case.width**0.5, device=case.device)
    slopes = torch.tensor([0.1, 0.02], device=case.device) if case.alibi else None
    f = Factors(q, k, v, LowRankMetric(U), tau, omega, 1.0, case.causal)
    return replace(f, slopes=slopes), [q, k, v, U, omega]


def _gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    pull = torch.linspace(-1, 1, out.numel(), device=out.device).reshape(out.shape)
    loss = (out.float() * pull).sum()
    return [out.detach(), *torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)]

"""Cases of the GPU kernel. Run as a program it computes them in Triton's interpreter, which a process chooses at start.

python -m tests.triton_cases FILE    writes each case's output and gradients to FILE, a safetensors
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from fbt_core.attention.scores import Factors
from fbt_core.geometry.metric import LowRankMetric

NAMES = ("out", "q", "k", "v", "U", "omega", "tau")


@dataclass(frozen=True)
class Case:
    """One problem, and the tiles it is cut into: (rows, columns) forward and backward."""

    length: int
    rank: int
    causal: bool = True
    alibi: bool = False
    score: str = "riemannian"
    alpha: float = 1.0
    dim: int = 16
    value: int = 16
    batch: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float64
    forward: tuple[int, int] = (16, 16)
    backward: tuple[int, int] = (16, 16)


CASES: dict[str, Case] = {
    "no metric": Case(19, 0, score="blended", alpha=0.5),
    "dot product": Case(17, 2, score="euclidean"),
    "distance alone": Case(17, 2, score="l2", causal=False),
    "rank 1": Case(17, 1, alibi=True),
    "rank 2, not causal": Case(18, 2, causal=False),
    "rank 3, odd widths, a batch": Case(21, 3, dim=11, value=5, batch=(2,), score="blended", alpha=0.6),
    "rank 4, ALiBi, not causal": Case(17, 4, causal=False, alibi=True),
    "rank 8": Case(17, 8),
    "one token": Case(1, 2),
    "one tile, whole": Case(16, 1, causal=False),
    "wide columns": Case(37, 2, forward=(16, 32), backward=(16, 32), alibi=True),
    "tall rows": Case(37, 2, forward=(32, 16), backward=(32, 16), alibi=True),
    "float32": Case(33, 3, dtype=torch.float32, score="blended", alpha=0.7),
    "float16": Case(33, 3, dtype=torch.float16),
}


def problem(case: Case) -> tuple[Factors, list[Tensor], Tensor]:
    """Factors of two heads, what to differentiate by (q, k, v, U, omega, tau), and the output's gradient.

    The numbers are those that the case's format can hold. q and k lie far from the origin: the kernel has to centre.
    """
    random = torch.Generator().manual_seed(case.length + 100 * case.rank)

    def normal(*shape: int, scale: float = 1.0, shift: float = 0.0) -> Tensor:
        numbers = torch.randn(*shape, generator=random, dtype=torch.float64) * scale + shift
        return numbers.to(case.dtype).requires_grad_()

    shape = (*case.batch, 2, case.length)
    q, k = normal(*shape, case.dim, shift=2.0), normal(*shape, case.dim, shift=2.0)
    v, U = normal(*shape, case.value), normal(*shape, case.dim, case.rank, scale=0.4)
    omega, tau = normal(*shape), torch.tensor([3.0, 5.0], dtype=case.dtype, requires_grad=True)
    slopes = torch.tensor([0.25, 0.0625], dtype=case.dtype) if case.alibi else None
    f = Factors(q, k, v, LowRankMetric(U), tau, omega, case.alpha, case.causal, slopes)
    return f, [q, k, v, U, omega, tau], normal(*shape, case.value).detach()


def answers(out: Tensor, inputs: list[Tensor], pull: Tensor) -> dict[str, Tensor]:
    """The output and its gradients, by name; 0 for what it does not read."""
    grads = torch.autograd.grad(out, inputs, pull.to(out), allow_unused=True, materialize_grads=True)
    return dict(zip(NAMES, (out.detach(), *grads), strict=True))


def main(path: str) -> None:
    """All cases by the kernel."""
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    from safetensors.torch import save_file

    from fbt_core.attention.expanded import expanded
    from fbt_core.attention.triton_function import Blocks, Plan, triton_attention

    found = {}
    for name, case in CASES.items():
        f, inputs, pull = problem(case)
        how = Plan(case.causal, "ieee", Blocks(*case.forward, 4, 1), Blocks(*case.backward, 4, 1))
        for part, tensor in answers(triton_attention(expanded(f, case.score), how), inputs, pull).items():
            found[f"{name}/{part}"] = tensor.contiguous()
    save_file(found, path)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])

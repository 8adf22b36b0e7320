"""The GPU kernel in Triton's interpreter, and through its compiler, against dense metrics and autograd."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fbt_core.attention import gpu
from fbt_core.attention.expanded import expandable, expanded, own_images
from fbt_core.attention.scores import SCORES, Factors, attention
from fbt_core.attention.streamed import streamed_attention
from tests.triton_cases import CASES, NAMES, Case, answers, problem

pytest.importorskip("triton", reason="Triton is there on Linux only")

TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 2e-2}
"""Of the largest entry. In float16 each product's factors are rounded to 11 bits, as on a GPU."""


def dense(f: Factors, score: str) -> Tensor:
    """softmax(s) v in float64, every pair's own difference and dense metrics: shares nothing with the kernel."""
    q, k, v, U, omega, tau = (t.double() for t in (f.q, f.k, f.v, f.U, f.omega, f.tau))
    e = q.unsqueeze(-2) - k.unsqueeze(-3)  # ... i j d
    metric = torch.eye(q.shape[-1]).double() + U @ U.mT
    both = torch.einsum("...ija,...iab,...ijb->...ij", e, metric, e)
    both = (both + torch.einsum("...ija,...jab,...ijb->...ij", e, metric, e)) / 2
    euclidean = q @ k.mT / q.shape[-1] ** 0.5
    riemannian = -both / tau[:, None, None] - omega.unsqueeze(-2)
    logits = {
        "euclidean": lambda: euclidean,
        "l2": lambda: -e.square().sum(-1) / tau[:, None, None],
        "riemannian": lambda: riemannian,
        "blended": lambda: (1 - f.alpha) * euclidean + f.alpha * riemannian,
    }[score]()
    i, j = torch.arange(q.shape[-2])[:, None], torch.arange(q.shape[-2])[None, :]
    if f.slopes is not None:
        logits = logits - f.slopes.double()[:, None, None] * (i - j).abs()
    return (logits.masked_fill(j > i, -torch.inf) if f.causal else logits).softmax(-1) @ v


@pytest.fixture(scope="module")
def interpreted(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """What the kernel gives in a process of its own: Triton is told when it is imported that there is no GPU."""
    from safetensors.torch import load_file

    path = tmp_path_factory.mktemp("triton") / "found.safetensors"
    subprocess.run([sys.executable, "-m", "tests.triton_cases", str(path)], cwd=root, check=True, timeout=600)
    return load_file(path)


@pytest.mark.parametrize("part", NAMES)
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_is_dense_attention(name: str, part: str, interpreted: dict[str, Tensor]) -> None:
    case = CASES[name]
    f, inputs, pull = problem(case)
    expected = answers(dense(f, case.score), inputs, pull)[part].double()
    found = interpreted[f"{name}/{part}"].double()
    # a gradient that is 0 in exact arithmetic is compared with the others' size
    bound = TOLERANCE[case.dtype] * float(expected.abs().amax().clamp_min(0.1)) if expected.numel() else 0.0
    torch.testing.assert_close(found, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("score", [name for name in SCORES if name != "homogeneous"])
def test_the_parts_add_up_to_the_score(score: str, causal: bool) -> None:
    """The identity that both kernels stand on, pair by pair, up to a term of the row."""
    f, _, _ = problem(Case(9, 3, causal, score=score, alpha=0.3, dim=5))
    e = expanded(f, score)
    u, w = own_images(e.U, e.q), own_images(e.U, e.k)
    first = torch.einsum("...idr,...jd->...ijr", e.U, e.k) - u.unsqueeze(-2)
    second = torch.einsum("...jdr,...id->...ijr", e.U, e.q) - w.unsqueeze(-3)
    logits = e.dot[:, None, None] * e.q @ e.k.mT + e.column.unsqueeze(-2)
    logits = logits - e.square[:, None, None] * (first.square().sum(-1) + second.square().sum(-1))
    expected = SCORES[score].function(f, slice(0, 9), slice(0, 9))
    gap = logits - expected
    torch.testing.assert_close(gap, gap[..., :1].expand_as(gap), rtol=0, atol=1e-11)


def test_another_form_is_refused() -> None:
    f, _, _ = problem(Case(5, 2))
    masked = replace(f, mask=torch.zeros(5, 5).double())
    capped, sinking = replace(f, softcap=30.0), replace(f, sinks=torch.zeros(2).double())
    assert expandable(f, "riemannian")
    assert not expandable(f, "homogeneous")
    for other in (masked, capped, sinking):
        assert not expandable(other, "riemannian")
        with pytest.raises(ValueError, match="stream it"):
            expanded(other, "riemannian")


def test_centring_saves_the_digits_of_tokens_far_away() -> None:
    f, _, _ = problem(Case(40, 2, dim=8))
    f = replace(f, q=f.q + 300, k=f.k + 300)
    exact = attention(f, "riemannian")
    small = replace(f, **{name: getattr(f, name).float() for name in ("q", "k", "v", "tau", "omega")},
                    metric=type(f.metric)(f.U.float()))  # fmt: skip
    e = expanded(small, "riemannian")
    moved = replace(small, q=e.q, k=e.k)
    near = (attention(moved, "riemannian").double() - exact).abs().max()
    far = (attention(small, "riemannian").double() - exact).abs().max()
    assert near < 1e-4 < far


def test_without_a_gpu_the_streamed_path_is_left_to_do_it() -> None:
    f, _, _ = problem(Case(5, 2, dtype=torch.float32))
    assert gpu.on_gpu(f, "riemannian") is None


ON_TRIAL = gpu._Case(torch.device("cpu"), torch.float32, 8, 8, 2, True, True, False)


def tried(
    monkeypatch: pytest.MonkeyPatch, runs: Callable[[Factors, str, int], Tensor], case: gpu._Case = ON_TRIAL
) -> int | None:
    """Which tiles the trial comes to where the kernel is this function."""
    monkeypatch.setattr(gpu, "_run", runs)
    return gpu._smaller.__wrapped__(case)


def test_a_kernel_is_believed_after_its_trial(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def large(f: Factors, score: str, smaller: int) -> Tensor:
        if smaller < 2:
            raise RuntimeError("out of resource: shared memory")
        return streamed_attention(f, score)

    for rank in (0, 2):
        case = replace(ON_TRIAL, rank=rank)
        assert tried(monkeypatch, lambda f, score, smaller: streamed_attention(f, score), case) == 0
    assert tried(monkeypatch, large) == 2 and not caplog.text
    assert tried(monkeypatch, lambda f, score, smaller: streamed_attention(f, score) * 1.01) is None
    assert "is off by" in caplog.text


def test_a_kernel_that_never_compiles_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(f: Factors, score: str, smaller: int) -> Tensor:
        raise ImportError("No module named 'triton'")

    assert tried(monkeypatch, broken) is None
    assert "is streamed" in caplog.text and "No module" in caplog.text


COMPILE = """
import sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from fbt_core.attention.triton_backward import backward
from fbt_core.attention.triton_function import BACKWARD, FORWARD
from fbt_core.attention.triton_kernel import forward

def build(kernel, blocks, **more):
    half = {"q", "k", "v", "U", "out", "x", "y", "vx", "vy", "dx", "dU", "dv"}
    fixed = dict(RANK=4, DIM=64, VALUE=64, DIM_PAD=64, VALUE_PAD=64, CAUSAL=True, ALIBI=True, PRECISION="ieee",
                 ROWS=blocks.rows, COLUMNS=blocks.columns, **more)
    kinds = {n: "constexpr" if n in fixed else "i32" if n in ("heads", "length") else "*bf16" if n in half else "*fp32"
             for n in kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(kernel.arg_names) if kinds[n][0] == "*"}
    options = {"num_warps": blocks.warps, "num_stages": blocks.stages}
    made = compile(ASTSource(kernel, kinds, fixed, aligned), target=GPUTarget("cuda", 90, 32), options=options)
    wide = 64 * 2
    print(made.metadata.shared, blocks.size(5 * wide, 6 * wide), "mma" in made.asm["ptx"])

build(forward, FORWARD[0])
build(backward, BACKWARD[0], KEYS=False)
build(backward, BACKWARD[0], KEYS=True)
"""


def test_it_compiles_for_a_gpu_within_the_memory_that_is_planned(root: Path, tmp_path: Path) -> None:
    """Machine code for compute capability 9.0, made without a GPU: on tensor cores, and no more bytes than planned."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    ran = subprocess.run(
        [sys.executable, "-c", COMPILE], cwd=root, env=environment, capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr
    rows = [line.split() for line in ran.stdout.splitlines()]
    assert len(rows) == 3
    for taken, planned, tensor_cores in rows:
        assert int(taken) <= int(planned) + 2048 and tensor_cores == "True"


def test_the_bench_says_that_there_is_no_gpu(root: Path) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(
        [sys.executable, "-m", "bench.gpu_attention"], cwd=root, env=environment, capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip
    assert ran.returncode == 2
    assert "no GPU" in ran.stderr and not ran.stdout

"""The compiled kernel against dense algebra in float64, autograd and torch's SDPA."""

from __future__ import annotations

import logging
import os
import platform
import stat
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from fbt_core import attention as attentions
from fbt_core.attention import attend, fused
from fbt_core.attention.expanded import expanded
from fbt_core.attention.factored import parts
from fbt_core.attention.fused import build, function
from fbt_core.attention.scores import Factors
from fbt_core.geometry.metric import DictionaryMetric, LowRankMetric

NAMES = ("q", "k", "v", "U", "column", "dot", "square")

CASES = {  # rows, keys, width, values' width, rank, causal, slopes
    "one token": (1, 1, 8, 8, 2, True, True),
    "less than a block": (9, 9, 4, 4, 3, True, True),
    "one more than a block": (65, 65, 16, 24, 2, True, False),
    "odd widths": (70, 70, 17, 13, 5, False, True),
    "a block of 128 and some": (131, 131, 64, 64, 4, True, True),
    "rank 1": (257, 257, 40, 33, 1, True, False),
    "rank 6": (150, 150, 24, 64, 6, True, False),
    "rank 7": (90, 90, 32, 32, 7, False, False),
    "rank 8": (100, 100, 64, 64, 8, False, True),
    "rank 13": (40, 40, 20, 20, 13, True, False),
    "more keys than rows": (100, 300, 64, 72, 0, False, False),
    "more rows than keys": (300, 70, 48, 64, 0, True, True),
    "more than one chunk": (1100, 1100, 8, 8, 1, True, False),
}


@pytest.fixture
def compiled() -> None:
    if build.kernel() is None:
        pytest.skip("no compiler")


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "LARGE", 0)


def inputs(case: str, dtype: torch.dtype) -> tuple[list[Tensor], Tensor | None, bool]:
    rows, keys, width, value, rank, causal, alibi = CASES[case]
    generator = torch.Generator().manual_seed(len(case))

    def normal(*shape: int) -> Tensor:
        return torch.randn(2 if rows < 1000 else 1, 3, *shape, generator=generator, dtype=torch.float64)

    made = [normal(rows, width), normal(keys, width), normal(keys, value), normal(keys, width, rank) / width**0.5]
    made += [normal(keys), torch.tensor([0.1, 0.2, 0.4]).double(), torch.tensor([0.1, 0.0, 0.05]).double()]
    slopes = torch.tensor([0.5, 0.1, 0.02]).to(dtype) if alibi else None
    return [t.to(dtype).requires_grad_() for t in made], slopes, causal


def dense(q: Tensor, k: Tensor, v: Tensor, U: Tensor, column: Tensor, dot: Tensor, square: Tensor,
          slopes: Tensor | None, causal: bool) -> Tensor:  # fmt: skip
    """With the metrics written out: e^T (U_i U_i^T + U_j U_j^T) e for every difference e of a query and a key."""
    e = q[..., :, None, :] - k[..., None, :, :]
    logits = dot[:, None, None] * (q @ k.mT) + column[..., None, :]
    if U.shape[-1]:
        for A in (U.unsqueeze(-3), U.unsqueeze(-4)):
            logits = logits - square[:, None, None] * (e.unsqueeze(-2) @ A).square().sum((-2, -1))
    i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])[None]
    if slopes is not None:
        logits = logits - slopes[:, None, None] * (i - j).abs()
    return (logits.masked_fill(j > i, -torch.inf) if causal else logits).softmax(-1) @ v


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("case", CASES)
def test_output_and_all_gradients_are_those_of_dense_metrics(case: str, dtype: torch.dtype, tolerance: float) -> None:
    given, slopes, causal = inputs(case, dtype)
    wide = [t.detach().double().requires_grad_() for t in given]
    found = function.attend(*given, slopes, causal)
    expected = dense(*wide, None if slopes is None else slopes.double(), causal)
    pull = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    _close(found, expected, tolerance, "output")
    of_found = torch.autograd.grad(found, given, pull.to(dtype))
    of_dense = torch.autograd.grad(expected, wide, pull, allow_unused=True)
    for name, mine, theirs in zip(NAMES, of_found, of_dense, strict=True):
        _close(mine, torch.zeros_like(mine).double() if theirs is None else theirs, 10 * tolerance, name)


def _close(found: Tensor, expected: Tensor, tolerance: float, name: str) -> None:
    scale = max(1.0, float(expected.detach().abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(
        found.double(), expected, rtol=0, atol=tolerance * scale, msg=lambda text: f"{name}: {text}"
    )


@pytest.fixture
def matrix_unit(compiled: None) -> None:
    if not function.matrix_unit():
        pytest.skip("no matrix unit for bfloat16")


def halves(case: str) -> tuple[list[Tensor], Tensor | None, bool]:
    given, slopes, causal = inputs(case, torch.float32)
    pairs = zip(NAMES, given, strict=True)
    made = [
        (t.detach().bfloat16() if name in ("q", "k", "v", "U") else t.detach()).requires_grad_() for name, t in pairs
    ]
    return made, slopes, causal


@pytest.mark.usefixtures("matrix_unit")
@pytest.mark.parametrize("case", CASES)
def test_half_precision_loses_no_more_than_the_rounding_of_weights_and_results(case: str) -> None:
    given, slopes, causal = halves(case)
    wide = [t.detach().double().requires_grad_() for t in given]
    found = function.attend(*given, slopes, causal)
    expected = dense(*wide, None if slopes is None else slopes.double(), causal)
    _close(found, expected, 2**-8, "output")
    pull = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0)).bfloat16()
    of_found = torch.autograd.grad(found, given, pull)
    of_dense = torch.autograd.grad(expected, wide, pull.double(), allow_unused=True)
    for name, mine, theirs in zip(NAMES, of_found, of_dense, strict=True):
        bound = 2**-5 if name in ("dot", "square") else 2**-6.5  # the two are small sums over all pairs
        _close(mine, torch.zeros_like(mine).double() if theirs is None else theirs, bound, name)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("causal", [True, False])
def test_without_a_metric_it_is_torchs_own_attention(causal: bool) -> None:
    (q, k, v, U, column, dot, square), _, _ = inputs("more rows than keys", torch.float64)
    found = function.attend(q, k, v, U, column * 0, dot, square, None, causal)
    allowed = torch.ones(300, 70).tril().bool() if causal else None
    expected = F.scaled_dot_product_attention(q * dot[:, None, None], k, v, attn_mask=allowed, scale=1.0)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("half", [False, True])
def test_the_same_bits_whatever_the_number_of_threads(half: bool) -> None:
    if half and not function.matrix_unit():
        pytest.skip("no matrix unit for bfloat16")
    case = "more than one chunk"
    given, slopes, causal = halves(case) if half else inputs(case, torch.float32)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            out = function.attend(*given, slopes, causal)
            results.append((out, *torch.autograd.grad(out.float().square().sum(), given)))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("names", [("dot",), NAMES])
def test_gradients_of_gradients_are_those_of_dense_metrics(names: tuple[str, ...]) -> None:
    given, slopes, causal = inputs("less than a block", torch.float64)
    made = {name: t.detach() for name, t in zip(NAMES, given, strict=True)}
    made["U"] = made["U"].mT.contiguous().mT  # strided: what is read is a copy
    asked, second = [made[name].requires_grad_() for name in names], []
    for way in (function.attend, dense):
        first = torch.autograd.grad(way(*made.values(), slopes, causal).square().sum(), asked, create_graph=True)
        second.append(torch.autograd.grad(sum(g.square().sum() for g in first), asked))
    for name, mine, theirs in zip(names, *second, strict=True):
        _close(mine, theirs, 1e-9, name)


def written_out(f: Factors, score: str) -> Tensor:
    """The attention of a score by ``dense``, a dictionary's metrics each with a factor of its own."""
    if isinstance(f.metric, DictionaryMetric):
        f = replace(f, metric=LowRankMetric(f.metric.atoms.unsqueeze(-3) * f.metric.weights.sqrt().unsqueeze(-2)))
    e = expanded(f, score)
    return dense(e.q, e.k, e.v, e.U, e.column, e.dot, e.square, e.slope, e.causal)


@pytest.mark.usefixtures("compiled", "always")
@pytest.mark.parametrize(
    ("score", "kind"), [("riemannian", "full"), ("l2", "none"), ("riemannian", "dictionary"), ("blended", "dictionary")]
)
def test_gradients_of_a_score_may_have_gradients(score: str, kind: str) -> None:
    """What the kernel is given is made of the factors, one part of it of another: no way is counted twice."""
    f = factors(torch.float64, kind, alpha=1.0 if score == "riemannian" else 0.3, length=20)
    q, k, v, tau = (t.detach().requires_grad_() for t in (f.q, f.k, f.v, f.tau))
    f, found = replace(f, q=q, k=k, v=v, tau=tau), []
    for way in (attend, written_out):
        first = torch.autograd.grad(way(f, score).square().sum(), (q, k, v, tau), create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), (q, k, v, tau))
        found.append((*first, *second))
    for name, mine, theirs in zip(2 * ("q", "k", "v", "tau"), *found, strict=True):
        _close(mine, theirs.detach(), 1e-9, name)


@pytest.mark.usefixtures("compiled", "always")
def test_the_features_of_a_dictionary_in_bfloat16_have_gradients_of_gradients() -> None:
    if not function.matrix_unit():
        pytest.skip("no matrix unit for bfloat16")
    f = factors(torch.bfloat16, "dictionary", length=48)
    atoms = torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64) / 4
    weights = torch.rand(2, 3, 48, 16, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    f = replace(f, slopes=None, metric=DictionaryMetric.of(atoms.to(f.q), weights.to(f.q)))
    found = []
    for wide in (False, True):
        one = replace(f, **{n: getattr(f, n).double() for n in ("q", "k", "v", "omega")}, metric=DictionaryMetric.of(
            f.metric.atoms.double(), f.metric.weights.double())) if wide else f  # fmt: skip
        tau = f.tau.double().requires_grad_() if wide else f.tau.float().requires_grad_()
        q = one.q.detach().requires_grad_()
        way = written_out if wide else attend
        out = way(replace(one, q=q, tau=tau), "riemannian")
        first = torch.autograd.grad(out.double().square().sum(), (q, tau), create_graph=True)
        second = torch.autograd.grad(first[1].square().sum(), tau)
        found.append((*first, *second))
    for name, mine, theirs in zip(("q", "tau", "tau again"), *found, strict=True):
        _close(mine, theirs.detach(), 0.05, name)


@pytest.mark.usefixtures("compiled")
def test_strided_inputs_are_read_as_what_they_hold() -> None:
    given, slopes, causal = inputs("rank 8", torch.float64)
    turned = [t.detach().transpose(1, -1).contiguous().transpose(1, -1) if t.dim() > 2 else t for t in given]
    assert not turned[0].is_contiguous()
    assert torch.equal(function.attend(*turned, slopes, causal), function.attend(*given, slopes, causal))


@pytest.mark.usefixtures("compiled")
def test_large_logits_neither_overflow_nor_lose_the_largest() -> None:
    (q, k, v, U, column, dot, square), _, _ = inputs("rank 8", torch.float32)
    given = [q * 100, k * 100, v, U, column * 1000, dot, square]
    found = function.attend(*given, None, False)
    _close(found, dense(*(t.double() for t in given), None, False), 1e-2, "output")


def factors(dtype: torch.dtype, kind: str = "full", alpha: float = 1.0, length: int = 77) -> Factors:
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    q, k, v = normal(2, 3, length, 16) + 1, normal(2, 3, length, 16) + 1, normal(2, 3, length, 16)
    metrics = {
        "full": lambda: LowRankMetric(normal(2, 3, length, 16, 4) / 4),
        "none": lambda: LowRankMetric(normal(2, 3, length, 16, 0)),
        "dictionary": lambda: DictionaryMetric.of(normal(3, 16, 8) / 4, normal(2, 3, length, 8).square()),
    }
    tau, slopes = torch.tensor([6.0, 8.0, 9.0]).to(dtype), torch.tensor([0.1, 0.0, 0.2]).to(dtype)
    return Factors(q, k, v, metrics[kind](), tau, normal(2, 3, length).square(), alpha, True, slopes)


@pytest.mark.parametrize("kind", ["full", "none", "dictionary"])
@pytest.mark.parametrize("score", ["euclidean", "l2", "riemannian", "blended"])
@pytest.mark.usefixtures("compiled", "always")
def test_every_score_it_serves_is_the_map_times_the_values(
    score: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = factors(torch.float64, kind, alpha=0.3)
    monkeypatch.setattr(attentions, "streamed_attention", None)  # that nothing else computed it
    monkeypatch.setattr(F, "scaled_dot_product_attention", None)
    expected = attentions.scores.attention(f, score) @ f.v
    torch.testing.assert_close(attend(f, score), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("large", [0, 1 << 40], ids=["kernel", "torch"])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.usefixtures("compiled")
def test_a_dictionary_in_bfloat16_may_have_its_temperature_in_float32(
    alpha: float, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "LARGE", large)
    f = factors(torch.bfloat16, "dictionary", alpha)
    f = replace(f, tau=f.tau.float(), slopes=None)
    metric = DictionaryMetric.of(f.metric.atoms.double(), f.metric.weights.double())
    exact = replace(f, q=f.q.double(), k=f.k.double(), v=f.v.double(), metric=metric, tau=f.tau.double(),
                    omega=f.omega.double())  # fmt: skip
    found, expected = attend(f, "blended"), attentions.scores.attention(exact, "blended") @ exact.v
    assert found.dtype == torch.bfloat16
    _close(found, expected, 2**-6, "output")  # its features are rounded too


@pytest.mark.usefixtures("matrix_unit")
@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("atoms", [16, 32])
def test_features_in_one_pass_give_the_score(alpha: float, atoms: int) -> None:
    generator = torch.Generator().manual_seed(atoms)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).bfloat16()

    q, k, v = normal(2, 3, 77, 32) + 1, normal(2, 3, 77, 32) + 1, normal(2, 3, 77, 32)
    metric = DictionaryMetric.of(normal(3, 32, atoms) / 4, normal(2, 3, 77, atoms).square() / 4)
    given = q, k, metric.weights, metric.atoms
    f = Factors(q, k, v, metric, torch.tensor([6.0, 8.0, 9.0]), normal(2, 3, 77).square(), alpha, causal=False)
    wide = DictionaryMetric.of(metric.atoms.double(), metric.weights.double())
    exact = replace(f, q=q.double(), k=k.double(), metric=wide, tau=f.tau.double(), omega=f.omega.double())
    expected = attentions.scores.SCORES["blended"].function(exact, slice(0, 77), slice(0, 77))
    one, two, column, along = (x.double() for x in parts(f, compiled=True))
    gap = along[:, None, None] * (one @ two.mT) + column.unsqueeze(-2) - expected
    bound = 2**-7 * float(expected.abs().max())  # features are rounded
    torch.testing.assert_close(gap, gap[..., :1].expand_as(gap), rtol=0, atol=bound)
    leaves = [t.detach().requires_grad_() for t in given]
    rest = torch.rand(2, 3, generator=generator).unbind()
    pulls = normal(2, 3, 77, 32 + 4 * atoms), normal(2, 3, 77, 32 + 4 * atoms), normal(2, 3, 77).float()
    mine, theirs = (
        torch.autograd.grad(way(*leaves, *rest, alpha == 1), leaves, pulls)
        for way in (fused.compiled_features, fused.dictionary_features)
    )
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.usefixtures("compiled", "always")
def test_bfloat16_is_as_near_as_its_own_rounding(unit: bool, alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "matrix_unit", lambda: unit and function.matrix_unit())
    f = factors(torch.bfloat16, alpha=alpha)
    given = [t.requires_grad_() for t in (f.q, f.k, f.v, f.U)]
    wide = [t.detach().double().requires_grad_() for t in given]
    exact = replace(f, q=wide[0], k=wide[1], v=wide[2], metric=LowRankMetric(wide[3]), tau=f.tau.double(),
                    omega=f.omega.double(), slopes=f.slopes.double())  # fmt: skip
    found, expected = attend(f, "blended"), attentions.scores.attention(exact, "blended") @ exact.v
    assert found.dtype == torch.bfloat16
    _close(found, expected, 2**-8, "output")
    pull = torch.ones_like(found)
    pairs = zip(
        torch.autograd.grad(found, given, pull), torch.autograd.grad(expected, wide, pull.double()), strict=True
    )
    for mine, theirs in pairs:
        _close(mine, theirs, 2**-7, "gradient")


def test_what_it_serves_not(compiled: None, always: None) -> None:
    f = factors(torch.float32)
    assert fused.serves(f, 4)
    assert not fused.serves(replace(f, mask=torch.zeros(77, 77)), 4)
    assert not fused.serves(replace(f, q=f.q.to("meta")), 4)
    assert not fused.serves(replace(f, k=f.k[..., :5, :], v=f.v[..., :5, :], omega=f.omega[..., :5]), 4)
    with FlopCounterMode(display=False) as counter:
        attend(f, "riemannian")
    assert counter.get_total_flops() > 0


def test_under_torchs_transforms_it_serves_not(compiled: None, always: None) -> None:
    """Its function has no rules for them; what torch computes by its own kernel has."""
    f = factors(torch.float64, "none", length=9)

    def on(q: Tensor) -> Tensor:
        return attend(replace(f, q=q), "l2")

    mapped = torch.func.vmap(on)(torch.stack([f.q, 2 * f.q]))
    torch.testing.assert_close(mapped, torch.stack([on(f.q), on(2 * f.q)]))
    q = f.q.clone().requires_grad_()
    (expected,) = torch.autograd.grad(on(q).square().sum(), q)
    torch.testing.assert_close(torch.func.grad(lambda q: on(q).square().sum())(f.q), expected)
    with forward_ad.dual_level():
        assert not fused.serves(replace(f, q=forward_ad.make_dual(f.q, f.q)), 0)


def test_small_problems_never_wait_for_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "kernel", lambda: pytest.fail("asked for"))
    assert not fused.serves(factors(torch.float32, length=128), 4)


# --- the build -----------------------------------------------------------------------------------------------------


@pytest.fixture
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build._kernel.cache_clear()
    yield
    build._kernel.cache_clear()


@pytest.mark.usefixtures("_fresh")
def test_it_is_switched_off_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIBERSCOPE_KERNEL", "off")
    assert build.kernel() is None


@pytest.mark.usefixtures("_fresh")
def test_without_a_compiler_attention_runs_on_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, always: None
) -> None:
    f = factors(torch.float64)
    expected = attentions.scores.attention(f, "riemannian") @ f.v
    monkeypatch.setenv("PATH", "")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            torch.testing.assert_close(attend(f, "riemannian"), expected)
    assert [record.message.count("no compiler") for record in caplog.records] == [1]


@pytest.mark.usefixtures("_fresh")
def test_a_failing_compiler_is_told_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake = tmp_path / "c++"
    fake.write_text(
        f"#!{sys.executable}\nimport sys\nsys.stderr.write('no such flag')\nsys.exit('--version' not in sys.argv)\n"
    )
    fake.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.kernel() is None
    assert "no such flag" in caplog.text
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.usefixtures("_fresh")
def test_threads_that_ask_at_once_try_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def fails() -> Path:
        tried.append(1)
        time.sleep(0.05)
        raise OSError("no compiler")

    monkeypatch.setattr(build, "_built", fails)
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda _: build.kernel(), range(3))) == [None] * 3
    assert tried == [1]


@pytest.mark.usefixtures("_fresh")
def test_a_compiler_may_say_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake = tmp_path / "c++"
    fake.write_text("#!/bin/sh\nprintf 'no \\377 text' >&2\ntest \"$1\" = --version\n")
    fake.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.kernel() is None
    assert "no \ufffd text" in caplog.text


@pytest.mark.usefixtures("compiled", "_fresh")
def test_a_library_that_is_none_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-O0"))
    folder = build._private(build._folder())
    compiler = next(path for name in build.COMPILERS if (path := build.shutil.which(name)))
    spoilt = folder / f"attention-{build._identity(compiler)}.so"
    spoilt.write_bytes(b"")
    assert build.kernel() is not None and spoilt.stat().st_size > 0


def test_a_cache_that_is_not_only_ours_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build._folder() == tmp_path / "fiberscope" / "kernels"
    (tmp_path / "fiberscope").chmod(0o777)
    assert build._folder() == build._temporary()
    for relative in ("here", "~/.cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert build._folder() == build._temporary()


@pytest.mark.usefixtures("_fresh")
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "fiberscope" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert build.kernel() is None
    assert "only this user" in caplog.text


@pytest.mark.usefixtures("compiled", "_fresh")
def test_it_is_compiled_once_into_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-O0"))  # quick to compile
    assert build.kernel() is not None
    folder = tmp_path / "fiberscope" / "kernels"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.suffix for path in folder.iterdir()} == {".so", ""}
    monkeypatch.setattr(build, "_compile", lambda *_: pytest.fail("compiled twice"))
    build._kernel.cache_clear()
    assert build.kernel() is not None


@pytest.mark.usefixtures("compiled", "_fresh")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names an instruction set of x86")
def test_the_smallest_vectors_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another width of vectors gives every block another shape: the narrowest stands for machines unlike this one."""
    oldest = ("-march=x86-64" if flag == "-march=native" else flag for flag in build.FLAGS)
    monkeypatch.setattr(build, "FLAGS", tuple(oldest))
    assert function._lanes(torch.float64) == 2
    for case in ("odd widths", "a block of 128 and some", "rank 7", "more keys than rows"):
        test_output_and_all_gradients_are_those_of_dense_metrics(case, torch.float64, 1e-12)


@pytest.mark.usefixtures("compiled")
def test_the_librarys_name_tells_sources_compiler_and_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = next(path for name in build.COMPILERS if (path := build.shutil.which(name)))
    names = [build._identity(compiler)]
    monkeypatch.setattr(build, "_processor", lambda: b"another")
    names.append(build._identity(compiler))
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-g"))
    names.append(build._identity(compiler))
    monkeypatch.setattr(build.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=b"another version"))
    names.append(build._identity(compiler))
    assert len(set(names)) == 4 and all(os.sep not in name for name in names)

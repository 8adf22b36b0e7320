"""Curvature against closed forms, finite differences, the full tensor and the symmetries that it must have."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import vmap
from typer.testing import CliRunner

from fbt_core.__main__ import app
from fbt_core.geometry.connection import christoffel
from fbt_core.geometry.curvature import ricci, riemann, riemann_frame, scalar, scalar_and_rounding, sectional
from fbt_core.geometry.frame import frame
from fbt_core.geometry.function import MetricFunction
from fbt_core.geometry.manifolds import MANIFOLDS, Manifold, graph, manifold, sphere
from fbt_core.geometry.planes import (
    extreme_sectional,
    random_planes,
    scalar_exact,
    scalar_sampled,
    sectional_sampled,
    tensors,
)
from fbt_core.geometry.survey import survey

CASES = (
    "sphere:3:2.0",
    "sphere:2:0.5",
    "sphere:6:10",
    "poincare:4",
    "halfspace:3",
    "flat",
    "torus",
    "graph",
    "constant",
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network_field(space: int = 5, dim: int = 4, rank: int = 2, low_rank: bool = True) -> MetricFunction:
    """A smooth field I + U U^T without any symmetry, on a slice of a larger space."""
    W, V = normal(6, space, seed=1), normal(dim * rank, 6, seed=2)
    E = None if space == dim else normal(space, dim, seed=3)
    g = MetricFunction.low_rank(lambda x: (V @ (W @ x).tanh()).reshape(dim, rank), dim, E)
    return g if low_rank else MetricFunction(dim, g.inner, None, E)


def points_of(known: Manifold, count: int = 4) -> Tensor:
    rng = torch.Generator().manual_seed(1)
    return torch.stack([known.point(rng) for _ in range(count)])


# --- closed forms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_sectional_curvature_is_the_known_one(case: str) -> None:
    known, rng = manifold(case), torch.Generator().manual_seed(0)
    for _ in range(10):
        x, (u, v) = known.point(rng), torch.randn(2, known.metric.dim, generator=rng, dtype=torch.float64)
        exact = known.exact(x, u, v)
        assert abs(float(sectional(known.metric, x, u, v)) - exact) <= 1e-11 * (abs(exact) or 1.0)


@pytest.mark.parametrize(
    ("case", "K"), [("sphere:4:2.0", 0.25), ("poincare:3", -1.0), ("halfspace:4", -1.0), ("flat", 0)]
)
def test_a_space_form_has_one_curvature(case: str, K: float) -> None:
    """R_ijkl = K (g_jk g_il - g_ik g_jl), Ric = (d - 1) K g, S = d (d - 1) K."""
    known = manifold(case)
    d = known.metric.dim
    for x in points_of(known):
        g = known.metric.dense(x)
        exact = K * (torch.einsum("jk,il->ijkl", g, g) - torch.einsum("ik,jl->ijkl", g, g))
        torch.testing.assert_close(riemann(known.metric, x), exact, rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(ricci(known.metric, x), (d - 1) * K * g, rtol=1e-11, atol=1e-11)
        assert float(scalar(known.metric, x)) == pytest.approx(d * (d - 1) * K, rel=1e-12, abs=1e-12)


def test_a_torus_is_a_surface() -> None:
    """In two dimensions S = 2 K, and Ric = K g."""
    known = manifold("torus")
    for x in points_of(known):
        K = math.cos(x[1]) / (2 + math.cos(x[1]))
        assert float(scalar(known.metric, x)) == pytest.approx(2 * K, rel=1e-12)
        torch.testing.assert_close(ricci(known.metric, x), K * known.metric.dense(x), rtol=1e-12, atol=1e-12)


def test_a_paraboloid_by_hand() -> None:
    """z = (a x^2 + b y^2) / 2: K = a b / (1 + a^2 x^2 + b^2 y^2)^2, through the low-rank path with U = J_f^T."""
    a, b = 1.5, -0.7
    slope = torch.tensor([a, b], dtype=torch.float64)
    g = MetricFunction.low_rank(lambda x: (slope * x)[:, None], 2)
    for x in normal(5, 2, seed=3):
        exact = a * b / (1 + (slope * x).square().sum()) ** 2
        assert float(sectional(g, x, normal(2, seed=1), normal(2, seed=2))) == pytest.approx(float(exact), rel=1e-12)


# --- finite differences -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("low_rank", [True, False])
def test_the_tensor_is_that_of_finite_differences(low_rank: bool) -> None:
    """R(e_i, e_j) e_k = (d_i Gamma_jk - d_j Gamma_ik + Gamma_i,Gamma_jk - Gamma_j,Gamma_ik), d by differences of the
    fourth order of the Christoffel symbols."""
    g, x, step = network_field(low_rank=low_rank), normal(5, seed=4), 2e-4
    basis = torch.eye(g.dim, dtype=torch.float64)

    def symbols(y: Tensor) -> Tensor:
        return torch.stack([torch.stack([christoffel(g, y, a, b) for b in basis]) for a in basis])

    here = symbols(x)
    changes = []
    for row in basis:
        far_back, back, on, far_on = (symbols(x + n * step * g.embed(row)) for n in (-2, -1, 1, 2))
        changes.append((far_back - 8 * back + 8 * on - far_on) / (12 * step))
    change = torch.stack(changes)  # i j k m
    bent = change + torch.einsum("jkn,inm->ijkm", here, here)
    exact = torch.einsum("ijkm,ml->ijkl", bent - bent.transpose(0, 1), g.dense(x))
    assert exact.abs().max() > 0.5
    torch.testing.assert_close(riemann(g, x), exact, rtol=1e-7, atol=1e-8)


# --- symmetries, and one way against another ----------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_symmetries_and_the_first_bianchi_identity(case: str) -> None:
    known = manifold(case)
    for x in points_of(known):
        R = riemann(known.metric, x)
        small = {"rtol": 0.0, "atol": 1e-11 * max(1.0, float(R.abs().max()))}
        zero = torch.zeros_like(R)
        torch.testing.assert_close(R, -R.permute(1, 0, 2, 3), **small)
        torch.testing.assert_close(R, -R.permute(0, 1, 3, 2), **small)
        torch.testing.assert_close(R, R.permute(2, 3, 0, 1), **small)
        torch.testing.assert_close(R + R.permute(1, 2, 0, 3) + R.permute(2, 0, 1, 3), zero, **small)


@pytest.mark.parametrize("space", [4, 5])
def test_all_ways_agree(space: int) -> None:
    """Low rank and generic; directional and full tensor; contraction, tensor, and the sum over a frame's planes."""
    g, plain, x = network_field(space), network_field(space, low_rank=False), normal(space, seed=4)
    u, v = normal(4, seed=5), normal(4, seed=6)
    R, exact = riemann(g, x), {"rtol": 1e-11, "atol": 1e-12}
    torch.testing.assert_close(R, riemann(plain, x), **exact)
    area = g.inner(x, u, u) * g.inner(x, v, v) - g.inner(x, u, v) ** 2
    K = torch.einsum("ijkl,i,j,k,l->", R, u, v, v, u) / area
    torch.testing.assert_close(sectional(g, x, u, v), K, **exact)
    torch.testing.assert_close(sectional(plain, x, u, v), K, **exact)
    torch.testing.assert_close(sectional(g, x, u + 2 * v, 3 * v - u), K, **exact)  # of the plane, not of the pair
    F = frame(g, x)
    pairs = [float(sectional(g, x, F[:, i], F[:, j])) for i, j in itertools.permutations(range(4), 2)]
    for S in (scalar(g, x), scalar(plain, x), torch.einsum("ijji->", riemann_frame(g, x)[0])):
        assert float(S) == pytest.approx(sum(pairs), rel=1e-11)
    assert float((torch.linalg.inv(g.dense(x)) * ricci(g, x)).sum()) == pytest.approx(sum(pairs), rel=1e-11)


def test_a_frame_is_orthonormal() -> None:
    g, x = network_field(), normal(5, seed=4)
    F = frame(g, x)
    torch.testing.assert_close(F.mT @ g.dense(x) @ F, torch.eye(4, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_scaling_the_metric_scales_curvature_inversely() -> None:
    g, x = network_field(low_rank=False), normal(5, seed=4)
    scaled = MetricFunction(g.dim, lambda y, a, b: 9 * g.inner(y, a, b), None, g.inclusion)
    u, v = normal(4, seed=5), normal(4, seed=6)
    assert float(sectional(scaled, x, u, v)) == pytest.approx(float(sectional(g, x, u, v)) / 9, rel=1e-11)
    assert float(scalar(scaled, x)) == pytest.approx(float(scalar(g, x)) / 9, rel=1e-11)


def test_rounding_is_as_small_as_it_is_said_to_be() -> None:
    """Flat metrics, where whatever is computed is error: within its stated size, which is no wild guess either."""
    for case in ("flat", "constant"):
        known = manifold(case)
        for x in points_of(known, 10):
            value, rounding = scalar_and_rounding(known.metric, x)
            assert abs(float(value)) <= float(rounding) < 1e-12 or case == "constant"


# --- random planes ------------------------------------------------------------------------------------------------


def test_random_planes_are_uniform() -> None:
    """Orthonormal; and the mean projector is 2 / d times the identity, with fourth moments of the uniform measure."""
    u, v = random_planes(5, 20_000, 0, torch.zeros(()))
    gram = torch.stack([torch.stack([(a * b).sum(-1) for b in (u, v)], -1) for a in (u, v)], -1)
    torch.testing.assert_close(gram, torch.eye(2, dtype=torch.float64).expand(20_000, 2, 2), rtol=1e-12, atol=1e-12)
    projector = torch.einsum("ni,nj->ij", u, u) / 20_000 + torch.einsum("ni,nj->ij", v, v) / 20_000
    torch.testing.assert_close(projector, 0.4 * torch.eye(5, dtype=torch.float64), rtol=0.0, atol=0.01)
    assert float(u.pow(4).mean()) == pytest.approx(3 / 35, rel=0.02)  # 3 / (d (d + 2)) on the sphere of R^5


def test_sampling_finds_the_exact_scalar_curvature() -> None:
    """Within four standard errors at every point, with errors that fall as one over the root of the planes."""
    g, x = network_field(), normal(6, 5, seed=4)
    exact, rounding = scalar_exact(g, x)
    assert (rounding < 1e-11 * exact.abs()).all()
    errors = []
    for planes in (100, 1600):
        value, error = scalar_sampled(g, x, planes, seed=1)
        assert ((value - exact).abs() <= 4 * error).all()
        errors.append(error)
    np.testing.assert_allclose(errors[0] / errors[1], 4.0, rtol=0.4)
    assert torch.equal(*(sectional_sampled(g, x, 5, seed=2) for _ in range(2)))
    assert not torch.equal(sectional_sampled(g, x, 5, seed=2), sectional_sampled(g, x, 5, seed=3))


def test_a_surface_has_no_sampling_error() -> None:
    g = graph(2, 1).metric
    value, error = scalar_sampled(g, normal(3, 2, seed=1), 8)
    torch.testing.assert_close(value, vmap(lambda x: scalar(g, x))(normal(3, 2, seed=1)), rtol=1e-12, atol=1e-13)
    assert (error < 1e-12).all()


def test_extremes_in_three_dimensions_are_eigenvalues() -> None:
    """There a plane is its normal n, and K = n . Q n with Q_ab = 1/4 eps_aij eps_bkl R_ijlk: its extremes are known."""
    g, x = network_field(3, 3), normal(5, 3, seed=4)
    levi = torch.zeros(3, 3, 3, dtype=torch.float64)
    for a, i, j in itertools.permutations(range(3)):
        levi[a, i, j] = torch.linalg.det(torch.eye(3, dtype=torch.float64)[[a, i, j]])
    form = torch.einsum("aij,bkl,nijlk->nab", levi, levi, tensors(g, x)) / 4
    exact = torch.linalg.eigvalsh(form)
    smallest, largest = extreme_sectional(g, x, planes=8)
    short = 1e-3 * (exact[:, -1] - exact[:, 0])  # a few rounds, that converge as a geometric series
    assert (smallest >= exact[:, 0] - 1e-12).all() and (smallest <= exact[:, 0] + short).all()
    assert (largest <= exact[:, -1] + 1e-12).all() and (largest >= exact[:, -1] - short).all()


def test_extremes_bound_every_sample() -> None:
    g, x = network_field(6, 6, 3), normal(4, 6, seed=4)
    K = sectional_sampled(g, x, 2000, seed=9)
    smallest, largest = extreme_sectional(g, x, planes=64)
    assert (K.amin(1) >= smallest - 1e-12).all() and (K.amax(1) <= largest + 1e-12).all()


# --- the survey ---------------------------------------------------------------------------------------------------


def test_a_survey_is_the_same_tensor_or_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two routes to every number; the extremes of the tensor's go on from those of the planes."""
    g, x = network_field(), normal(3, 5, seed=4)
    pair = normal(3, 4, seed=5), normal(3, 4, seed=6)
    by_tensor = survey(g, x, 32, 0, pair)
    monkeypatch.setattr("fbt_core.geometry.survey.TENSOR_DIM", 3)
    by_planes = survey(g, x, 32, 0, pair)
    for name in ("scalar", "sampled", "sampling_error", "top", "qk", "log_volume", "condition"):
        torch.testing.assert_close(getattr(by_tensor, name), getattr(by_planes, name), rtol=1e-10, atol=1e-11)
    assert (by_tensor.largest >= by_planes.largest - 1e-12).all()
    assert (by_tensor.smallest <= by_planes.smallest + 1e-12).all()


def test_a_survey_by_definition() -> None:
    g, x = network_field(), normal(3, 5, seed=4)
    q, k = normal(3, 4, seed=5), normal(3, 4, seed=6)
    found = survey(g, x, 32, 0, (q, k))
    for n in range(3):
        matrix = g.dense(x[n])
        values, vectors = torch.linalg.eigh(matrix)
        assert float(found.scalar[n]) == pytest.approx(float(scalar(g, x[n])), rel=1e-11)
        assert float(found.qk[n]) == pytest.approx(float(sectional(g, x[n], q[n], k[n])), rel=1e-10)
        top = sectional(g, x[n], vectors[:, -1], vectors[:, -2])
        assert float(found.top[n]) == pytest.approx(float(top), rel=1e-10)
        assert float(found.log_volume[n]) == pytest.approx(float(torch.logdet(matrix)) / 2, rel=1e-12)
        assert float(found.condition[n]) == pytest.approx(float(values[-1] / values[0]), rel=1e-12)


@pytest.mark.parametrize("largest", [32, 3], ids=["tensor", "planes"])
def test_bad_points_and_planes_are_nan_and_spoil_no_other(monkeypatch: pytest.MonkeyPatch, largest: int) -> None:
    monkeypatch.setattr("fbt_core.geometry.survey.TENSOR_DIM", largest)
    g, x = network_field(), normal(4, 5, seed=4)
    q, k = normal(4, 4, seed=5), normal(4, 4, seed=6)
    k[3] = 2 * q[3]  # no plane
    alone = survey(g, x[[0, 2, 3]], 16, 0, (q[[0, 2, 3]], k[[0, 2, 3]]))
    x[1, 2] = torch.nan
    found = survey(g, x, 16, 0, (q, k))
    for name, values in found.items():
        assert values[1].isnan(), name
        torch.testing.assert_close(values[[0, 2, 3]], getattr(alone, name), rtol=1e-10, atol=1e-12, equal_nan=True)
    assert found.qk[3].isnan() and found.largest[3].isfinite()
    assert all(values.isnan().all() for _, values in survey(g, x[[1]], 16).items())


def test_a_metric_that_is_none_is_nan() -> None:
    g = MetricFunction(3, lambda x, a, b: a[0] * b[0] + a[1] * b[1] - (1 + x[0] ** 2) * a[2] * b[2])
    found = survey(g, normal(2, 3), 8)
    assert found.scalar.isnan().all() and found.log_volume.isnan().all() and found.largest.isnan().all()


def test_parallel_vectors_span_no_plane() -> None:
    known = sphere(3, 1.0)
    x, u = points_of(known, 1)[0], normal(3)
    assert sectional(known.metric, x, u, 2 * u).isnan() or abs(float(sectional(known.metric, x, u, 2 * u))) <= 1.01


def test_what_is_too_large_or_too_small_is_refused() -> None:
    big = MetricFunction.low_rank(lambda x: x[:, None], 33)
    with pytest.raises(ValueError, match="got dimension 33, expected at most 32"):
        riemann(big, normal(33))
    assert scalar(big, normal(33)).isfinite()
    with pytest.raises(ValueError, match="expected at most 128"):
        scalar(MetricFunction.low_rank(lambda x: x[:, None], 129), normal(129))
    with pytest.raises(ValueError, match="a line has no planes"):
        sectional_sampled(MetricFunction.low_rank(lambda x: x[:, None], 1), normal(1, 1))
    with pytest.raises(ValueError, match="a line has no curvature"):
        survey(MetricFunction.low_rank(lambda x: x[:, None], 1), normal(1, 1))


# --- the command --------------------------------------------------------------------------------------------------


def run(*words: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["curvature", *[str(word) for word in words]])
    assert result.exit_code == status, (result.output, result.exception)
    return result.stdout if status == 0 else result.stderr


@pytest.mark.parametrize("case", [*MANIFOLDS, "sphere:3:2.0", "poincare:4", "halfspace:3"])
def test_the_command_checks_a_known_case(case: str) -> None:
    found = json.loads(run("--case", case, "--json"))
    assert list(found) == ["computed", "exact", "error"] and found["error"] <= 1e-9
    assert found == json.loads(run("--case", case, "--json", "-"))
    difference = abs(found["computed"] - found["exact"])
    assert found["error"] == pytest.approx(difference / abs(found["exact"]) if found["exact"] else difference)
    text = run("--case", case)
    assert text.startswith("case     " + case) and ("relative" if found["exact"] else "absolute") in text
    other = json.loads(run("--case", case, "--seed", 5, "--json"))
    assert other["error"] <= 1e-9 and (case not in ("torus", "graph") or other["exact"] != found["exact"])


@pytest.mark.parametrize(
    "case", ["cube", "sphere:1:2.0", "sphere:3:-2", "sphere:3:nan", "sphere:x", "torus:3", "poincare:99"]
)
def test_the_command_refuses_an_unknown_case_in_one_line(case: str) -> None:
    said = run("--case", case, status=2)
    assert said.startswith("error: got case") and said.count("\n") == 1


def test_the_command_wants_one_thing(assets: Path) -> None:
    assert "expected one of the two" in run(status=2)
    assert "--case alone" in run(assets / "riemannian.safetensors", "--case", "torus", status=2)
    assert "no metric" in run(assets / "euclidean.safetensors", "--text", "the king", status=2)


def test_the_command_prints_proxy_and_truth(assets: Path, tmp_path: Path) -> None:
    given = (assets / "riemannian.safetensors", "--text", "the old king", "--planes", 16)
    found = json.loads(run(*given, "--json", "-"))
    assert len(found["layers"]) == 6 and found["tokens"][-1] == "king"
    for layer in found["layers"]:
        assert [row["text"] for row in layer["per_token"]] == found["tokens"] and len(layer["heads"]) == 4
        for i, row in enumerate(layer["per_token"]):
            heads = [head["per_token"][i] for head in layer["heads"]]
            for name in ("omega", "scalar_curvature", "sampling_error", "sectional_max", "sectional_min", "volume"):
                assert row[name] == pytest.approx(sum(head[name] for head in heads) / 4)
            assert all(h["sectional_min"] <= h["sectional_top"] <= h["sectional_max"] for h in heads)
            assert all(abs(h["scalar_sampled"] - h["scalar_curvature"]) < 6 * h["sampling_error"] for h in heads)
    rho = found["spearman"]
    assert -1 <= rho["low"] <= rho["rho"] <= rho["high"] <= 1 and rho["pairs"] == 6 * 4 * len(found["tokens"])
    text = run(*given)
    assert "Spearman's rho" in text and "'king'" in text and f"{rho['rho']:+.3f}" in text
    run(*given, "--layer", 2, "--json", tmp_path / "c.json")
    assert json.loads((tmp_path / "c.json").read_text())["layers"][0]["per_token"] == found["layers"][2]["per_token"]

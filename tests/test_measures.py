"""Every measure against a slow oracle, and one contract suite over all rows and options of ``MEASURES``."""

from __future__ import annotations

import csv
import io
import json
import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings

from fbt_core.attention.decompose import TERMS
from fbt_core.attention.scores import SCORES
from fbt_core.config import FiberBundleConfig
from fbt_core.geometry.torsion import torsion_norm
from fbt_core.measures import MEASURES, OPTIONS, documentation, field, maps, rank, read, spread, tokens
from fbt_core.measures.attention import dobrushin, spectral_gap
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.trace import Trace
from tests import oracles
from tests.traces import permuted, random_trace, with_factors, with_residual

EXACT = 1e-12
GRAM = 1e-7  # the oracle of singular values squares them

LAYER_MEASURES = [name for name, row in MEASURES.items() if row.axes == ("layer",)]
RANKS = ["effective_rank", "stable_rank", "participation_ratio", "numerical_rank"]
FIELD = ["trace_k", "logdet_g", "anisotropy", "omega", "torsion_norm"]
MATRICES = arrays.arrays(
    np.float64, st.tuples(st.integers(2, 7), st.integers(1, 6)), elements=st.floats(-9, 9).map(lambda x: round(x, 3))
)

LIMITS: dict[str, Callable[[Trace], tuple[float, float]]] = {
    **dict.fromkeys(RANKS, lambda t: (1, min(t.layers[0].residual_out.shape))),
    "dong_residual": lambda t: (0, 2),
    "mu": lambda t: (0, 1),
    "mean_cosine": lambda t: (-1, 1),
    "trace_k": lambda t: (0, math.inf),
    "logdet_g": lambda t: (0, math.inf),
    "anisotropy": lambda t: (0, 1),
    "omega": lambda t: (0, math.inf),
    "torsion_norm": lambda t: (0, math.inf),
    "entropy": lambda t: (0, math.log(t.length)),
    "exp_entropy": lambda t: (1, t.length),
    "dobrushin": lambda t: (0, 1),
    "spectral_gap": lambda t: (1, math.inf),
    "total_variation": lambda t: (0, 1),
    "jensen_shannon": lambda t: (0, math.log(2)),
    "score_shares": lambda t: (-math.inf, math.inf),
}
"""Name -> the ends of the range that its row states."""


def every_choice(name: str) -> Iterator[dict[str, object]]:
    """All combinations of the options of a measure that have choices (of two scores, each pair once)."""
    samples = {"eps": (None, 1e-3), "layer": (None,), "head": (None,), "alpha": (0.5,)}
    options = MEASURES[name].options
    for values in product(*(OPTIONS[option].choices or samples[option] for option in options)):
        choice = dict(zip(options, values, strict=True))
        if str(choice.get("score_a", "")) <= str(choice.get("score_b", "")):
            yield choice


def model_trace(length: int = 9, **options: object) -> Trace:
    config = FiberBundleConfig(vocab_size=20, width=16, layers=2, heads=2, context=32, **options)  # type: ignore[arg-type]
    ids = torch.arange(length) * 7 % 20
    return FiberBundleTransformer(config).eval().trace(ids, tokens=[str(int(i)) for i in ids])


MODELS = {
    "riemannian": {"torsion_rank": 1, "transport": "frame"},
    "dictionary": {"metric_family": "dictionary", "position": "alibi"},
    "blended": {"alpha": 0.5, "causal": False},
    "euclidean": {"score": "euclidean"},
    "l2": {"score": "l2", "position": "alibi", "causal": False},
    "pure stack": {"pure_stack": True, "causal": False, "norm": "none"},
}


# --- the contract: every row, every option ------------------------------------------------------------------------


def hold_contract(trace: Trace, name: str, choice: dict[str, object]) -> None:
    """Axes, labels, dtype, finiteness, range."""
    reading = read(trace, name, **choice)
    low, high = LIMITS[name](trace)
    assert reading.values.shape == tuple(len(reading.labels[axis]) for axis in MEASURES[name].axes)
    assert reading.values.dtype == np.float64
    assert all(len(set(labels)) == len(labels) for labels in reading.labels.values())
    assert np.isfinite(reading.values).all(), reading.notes
    assert reading.values.min() >= low - EXACT and reading.values.max() <= high + EXACT
    assert reading.options == choice


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("causal", [True, False])
def test_contract_on_random_factors(name, causal):
    trace = random_trace(causal=causal, alibi=not causal)
    for choice in every_choice(name):
        hold_contract(trace, name, choice)


@pytest.mark.parametrize("model", MODELS)
def test_contract_on_models(model):
    trace = model_trace(**MODELS[model])
    for name in MEASURES:
        hold_contract(trace, name, {option: OPTIONS[option].default for option in MEASURES[name].options})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_contract_holds_in_low_precision(dtype):
    trace = random_trace(dtype=dtype)
    for name in MEASURES:
        hold_contract(trace, name, {option: OPTIONS[option].default for option in MEASURES[name].options})


@pytest.mark.parametrize("name", MEASURES)
def test_every_row_documents_itself(name):
    row = MEASURES[name]
    assert row.name == name
    assert set(row.axes) <= {"layer", "head", "token", "term"}
    assert all([row.symbol, row.title, row.range, row.equation, row.source])
    assert set(row.options) <= set(OPTIONS)
    assert "|" not in row.symbol + row.equation, "a bar would split the table of docs/measures.md"


def test_the_page_of_measures_is_the_table(root: Path):
    page = (root / "docs" / "measures.md").read_text(encoding="utf-8")
    assert page == documentation(), (
        "run python -c 'from fbt_core.measures import documentation; print(documentation(), end=\"\")'"
    )


# --- odd input is right or named ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MEASURES)
def test_one_token(name):
    trace = random_trace(length=1)
    for choice in every_choice(name):
        hold_for_one_token(trace, name, choice)


def hold_for_one_token(trace: Trace, name: str, choice: dict[str, object]) -> None:
    """One token spans one direction, attends to itself only, and has nothing to differ from."""
    reading = read(trace, name, **choice)
    if name in RANKS:
        assert (reading.values == (0 if choice["tokens"] == "centred" else 1)).all()
    elif name in ("dong_residual", "mu") and choice["tokens"] != "centred":
        assert (reading.values == 0).all()
    elif name in FIELD:
        assert np.isfinite(reading.values).all()
    elif name in ("entropy", "dobrushin", "total_variation", "jensen_shannon", "exp_entropy"):
        assert (reading.values == (1 if name == "exp_entropy" else 0)).all()
    elif name == "spectral_gap":
        assert (reading.values == math.inf).all() and "rank one" in " ".join(reading.notes)
    else:  # mean cosine, shares, and ratios of a centred token
        assert np.isnan(reading.values).all() and reading.notes


@pytest.mark.parametrize("name", LAYER_MEASURES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_repeated_tokens(name, dtype):
    """Equal rows: rank one, nothing left when centred, every cosine 1. No rounding noise is reported as signal."""
    row = torch.randn(8, dtype=dtype, generator=torch.Generator().manual_seed(1))
    trace = with_residual(random_trace(dim=4), row.expand(7, 8).clone())
    raw, centred = (read(trace, name, tokens=kind, final=True).values for kind in ("raw", "centred"))
    expected = {"dong_residual": 0, "mu": 0}.get(name, 1)
    np.testing.assert_allclose(raw, expected, rtol=0, atol=1e-6 if name == "effective_rank" else EXACT)
    assert (centred == 0).all() if name in RANKS else np.isnan(centred).all()


@pytest.mark.parametrize("name", LAYER_MEASURES)
@pytest.mark.parametrize("kind", OPTIONS["tokens"].choices)
@pytest.mark.parametrize("sinks", OPTIONS["sinks"].choices)
def test_a_zero_matrix_has_rank_zero_and_ratios_that_are_named_undefined(name, kind, sinks):
    trace = with_residual(random_trace(), torch.zeros(7, 8, dtype=torch.float64))
    reading = read(trace, name, tokens=kind, sinks=sinks)
    if name in RANKS:
        assert (reading.values == 0).all()
    else:
        assert np.isnan(reading.values).all()
        assert any("undefined" in note for note in reading.notes)


def test_a_zero_metric_and_zero_queries_are_no_fault():
    zero = with_factors(random_trace(), **{name: torch.zeros(2, 7, 4, 2).double() for name in ("U",)},
                        **{name: torch.zeros(2, 7, 4).double() for name in ("q", "k")},
                        omega=torch.zeros(2, 7).double())  # fmt: skip
    for name in ("trace_k", "logdet_g", "anisotropy", "omega", "total_variation"):
        assert (read(zero, name).values == 0).all()
    np.testing.assert_allclose(read(zero, "exp_entropy").values, np.tile(np.arange(1, 8), (3, 2, 1)), rtol=1e-12)
    assert np.isnan(read(zero, "score_shares").values).all()


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("fault", [math.nan, math.inf, -math.inf])
def test_non_finite_entries_are_nan_and_named(name, fault):
    damaged = random_trace()
    layer = damaged.layers[1]
    for residual in (layer.residual_in, layer.residual_mid, layer.residual_out):
        residual[4, 2] = fault
    for factor in (layer.factors.q, layer.factors.k, layer.factors.U, layer.factors.omega, layer.torsion[0]):
        factor[1, 4] = fault
    for choice in every_choice(name) if math.isnan(fault) else ({},):
        hold_for_damage(random_trace(), damaged, name, choice)


def hold_for_damage(healthy: Trace, damaged: Trace, name: str, choice: dict[str, object]) -> None:
    """Layer 1, head 1, token 4 is not finite: that is NaN, the other layers are as they were, a note says where."""
    before, reading = read(healthy, name, **choice), read(damaged, name, **choice)
    assert any("non-finite" in note and "(4) the" in note for note in reading.notes), reading.notes
    assert any("are nan" in note for note in reading.notes)
    assert np.isnan(reading.values[1]).any()
    np.testing.assert_array_equal(np.delete(reading.values, 1, axis=0), np.delete(before.values, 1, axis=0))
    if name in FIELD:
        bad = np.isnan(reading.values[1])
        assert bad.sum() == 1 and bad[-1, 4]


def test_a_huge_metric_does_not_crash():
    trace = with_factors(random_trace(), U=torch.full((2, 7, 4, 2), 1e12, dtype=torch.float64))
    for name in FIELD[:3]:
        assert np.isfinite(read(trace, name).values).all()
    overflow = with_factors(random_trace(), U=torch.full((2, 7, 4, 2), 1e200, dtype=torch.float64))
    for name in FIELD[:3]:
        assert np.isnan(read(overflow, name).values).all()


def test_a_model_without_metric_or_torsion_says_so():
    trace = random_trace(rank=0, torsion=0)
    for name in FIELD:
        reading = read(trace, name)
        assert (reading.values == 0).all()
        assert any("no metric" in note or "no torsion" in note for note in reading.notes)


def test_rounding_is_named():
    trace = random_trace()
    noise = torch.randn(7, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    close = with_residual(trace, (1 + 1e-8 * noise).float())
    apart = with_residual(trace, 1 + 1e-8 * noise)
    assert any("rounding only" in note for note in read(close, "mu").notes) or (read(close, "mu").values == 0).all()
    assert read(with_residual(trace, (1 + 1e-7 * noise).float()), "effective_rank", tokens="centred").notes
    assert not read(apart, "effective_rank", tokens="centred").notes


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("rank", {}), ("entropy", {"stage": "out"}), ("entropy", {"score": "cosine"}), ("mu", {"stage": "middle"}),
        ("mu", {"final": 1}), ("numerical_rank", {"eps": 2.0}), ("entropy", {"layer": 3}), ("entropy", {"head": -1}),
        ("entropy", {"head": 2}), ("entropy", {"layer": True}), ("entropy", {"alpha": math.nan}),
        ("entropy", {"layer": 0.5}), ("total_variation", {"score": "l2"}),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_refused_with_what_does(name, choice):
    with pytest.raises(ValueError, match=r"got .*, expected "):
        read(random_trace(), name, **choice)


# --- rank and spread ----------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(MATRICES)
def test_spectral_ranks_against_the_gram_matrix(X):
    assume(np.linalg.norm(X) > 0.1)
    s = rank.spectrum(X)
    values = oracles.singular_values(X)
    squares = np.array(values) ** 2
    assert rank.stable_rank(s) == pytest.approx(squares.sum() / squares.max(), rel=1e-9)
    assert rank.participation_ratio(s) == pytest.approx(squares.sum() ** 2 / (squares**2).sum(), rel=1e-9)
    assert rank.numerical_rank(s, 1e-6) == np.linalg.matrix_rank(X, tol=1e-6 * s.max())
    assert rank.effective_rank(s) == pytest.approx(oracles.effective_rank_by_loop(values), rel=1e-5)


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(6, 9), st.integers(0, 99))
def test_r_equal_singular_values_have_rank_r(r, width, seed):
    rng = np.random.default_rng(seed)
    rows = np.linalg.qr(rng.normal(size=(8, r)))[0]
    columns = np.linalg.qr(rng.normal(size=(width, r)))[0]
    s = rank.spectrum(3 * rows @ columns.T)
    found = [rank.effective_rank(s), rank.stable_rank(s), rank.participation_ratio(s), rank.numerical_rank(s, 1e-9)]
    np.testing.assert_allclose(found, r, rtol=1e-12)


def test_effective_rank_of_a_known_spectrum():
    p = np.array([0.5, 0.25, 0.25])
    assert rank.effective_rank(7 * p) == pytest.approx(2**1.5, rel=1e-14)
    assert rank.effective_rank(np.zeros(3)) == 0 and rank.effective_rank(np.zeros(0)) == 0
    assert rank.effective_rank(1e-300 * p) == pytest.approx(2**1.5) and rank.stable_rank(1e200 * p) == 1.5


@settings(max_examples=40)
@given(MATRICES, st.integers(0, 99))
def test_ranks_do_not_see_scale_rotation_or_order(X, seed):
    assume(np.linalg.norm(X) > 0.1)
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(X.shape[1],) * 2))[0]
    moved = 37.0 * rng.permutation(X) @ rotation
    for function in (rank.effective_rank, rank.stable_rank, rank.participation_ratio):
        assert function(rank.spectrum(moved)) == pytest.approx(function(rank.spectrum(X)), rel=1e-9)


@settings(max_examples=40)
@given(MATRICES)
def test_spread_against_loops(X):
    assume((np.linalg.norm(X, axis=1) > 0.1).all())
    assert spread.dong_residual(X) == pytest.approx(oracles.dong_residual_by_loop(X), rel=1e-9, abs=1e-14)
    assert spread.mu(X) == pytest.approx(oracles.mu_by_loop(X), rel=1e-9, abs=1e-14)
    assert spread.mean_cosine(X) == pytest.approx(oracles.mean_cosine_by_loop(X), rel=1e-9, abs=1e-13)


def test_a_zero_token_has_no_cosine():
    X = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    assert spread.mean_cosine(X) == pytest.approx(math.sqrt(0.5))


@pytest.mark.parametrize("name", LAYER_MEASURES)
def test_stage_and_final_read_the_residual_that_they_name(name):
    trace = random_trace()
    for stage in ("in", "mid", "out"):
        matrices = [getattr(layer, f"residual_{stage}") for layer in trace.layers]
        alone = [read(with_residual(trace, X), name).values[0] for X in (*matrices, trace.normed)]
        reading = read(trace, name, stage=stage, final=True)
        np.testing.assert_array_equal(reading.values, alone)
        assert reading.labels["layer"] == ("0", "1", "2", "after final norm")


def test_tokens_are_centred_and_normalised_as_said():
    trace = random_trace()
    X = trace.layers[0].residual_out.numpy()
    for kind, expected in (("centred", X - X.mean(0)), ("unit", X / np.linalg.norm(X, axis=1, keepdims=True))):
        s = oracles.singular_values(expected)
        found = read(trace, "effective_rank", tokens=kind).values[0]
        assert found == pytest.approx(oracles.effective_rank_by_loop(s), rel=1e-5)
    assert (np.linalg.norm(tokens.unit(1e300 * X), axis=1) == pytest.approx(1)) is True


@pytest.mark.parametrize("name", LAYER_MEASURES)
def test_sinks_left_out_are_the_far_tokens_and_are_named(name):
    trace = random_trace()
    X = trace.layers[0].residual_out.clone()
    X[3] *= 4 * tokens.SINK_FACTOR
    reading = read(with_residual(trace, X), name, sinks="left out", final=True)
    without = with_residual(random_trace(length=6), torch.cat([X[:3], X[4:]]))
    expected = read(without, name, **({"eps": rank.default_eps(trace)} if name == "numerical_rank" else {}))
    np.testing.assert_allclose(reading.values, expected.values[0], rtol=1e-13)
    assert sum("left out (3) a,b" in note for note in reading.notes) == 4
    assert any("left out no token" in note for note in read(trace, name, sinks="left out").notes)


def test_the_rule_for_a_sink_is_the_median():
    X = np.ones((5, 1))
    X[2] = 5.0
    assert not tokens.sink_tokens(X).any()
    X[2] = 5.01
    assert tokens.sink_tokens(X).tolist() == [False, False, True, False, False]


def test_numerical_rank_states_its_eps():
    assert read(random_trace(), "numerical_rank", eps=0.25).notes[0] == "eps = 0.25"
    assert read(random_trace(), "numerical_rank").notes[0] == f"eps = {8 * 2.0**-52:.3g}"


# --- the field ----------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(0, 8), st.floats(1e-3, 30), st.integers(0, 99))
def test_metric_readings_against_dense_eigenvalues(dim, r, size, seed):
    generator = torch.Generator().manual_seed(seed)
    U = size * torch.randn(1, 1, dim, r, generator=generator, dtype=torch.float64)
    dense = U[0, 0].numpy()
    assert field.trace_k(U).item() == pytest.approx((oracles.metric_eigenvalues(dense) - 1).sum(), rel=1e-9, abs=1e-12)
    assert field.logdet_g(U).item() == pytest.approx(oracles.logdet_dense(dense), rel=1e-9, abs=1e-12)
    if dim > 1:
        assert field.anisotropy(U).item() == pytest.approx(oracles.anisotropy_dense(dense), rel=1e-9, abs=1e-7)


def test_anisotropy_is_zero_for_a_ball_and_nearly_one_for_a_needle():
    ball = 3 * torch.eye(5, dtype=torch.float64)[None, None]
    needle = 1e6 * torch.eye(5, dtype=torch.float64)[None, None, :, :1]
    line = torch.ones(1, 1, 1, 2, dtype=torch.float64)
    assert field.anisotropy(ball).item() == 0 and field.anisotropy(line).item() == 0
    assert field.anisotropy(needle).item() == pytest.approx(1, abs=1e-6)


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(0, 3), st.integers(0, 99))
def test_torsion_norm_against_the_dense_matrix(dim, r, seed):
    generator = torch.Generator().manual_seed(seed)
    L, R = torch.randn(2, 4, dim, r, generator=generator, dtype=torch.float64)
    expected = [oracles.torsion_norm_dense(left.numpy(), right.numpy()) for left, right in zip(L, R, strict=True)]
    np.testing.assert_allclose(torsion_norm(L, R).numpy(), expected, rtol=1e-10, atol=1e-12 if r <= dim else 1e-7)


@pytest.mark.parametrize("r", [1, 2, 3])
def test_torsion_vanishes_where_its_factors_are_symmetric_to_rounding_not_to_its_root(r):
    L = torch.randn(9, 8, r, dtype=torch.float64)
    M = torch.randn(9, r, r, dtype=torch.float64)
    assert torsion_norm(L, L @ (M + M.mT)).max() < 1e-12
    assert torsion_norm(torch.zeros_like(L), L).max() == 0
    small = torsion_norm(L, L @ (M + M.mT) + 1e-9 * torch.randn_like(L))
    assert small.min() > 1e-10 and small.max() < 1e-6


@pytest.mark.parametrize("name", FIELD)
def test_the_field_is_read_token_by_token(name):
    trace = random_trace()
    reading = read(trace, name)
    for i, h, t in np.ndindex(3, 2, 7):
        layer = trace.layers[i]
        U = layer.factors.U[h, t].numpy()
        L, R = (part[h, t].numpy() for part in layer.torsion)
        expected = {
            "trace_k": (U**2).sum(), "logdet_g": oracles.logdet_dense(U), "anisotropy": oracles.anisotropy_dense(U),
            "omega": layer.factors.omega[h, t].item(), "torsion_norm": oracles.torsion_norm_dense(L, R),
        }[name]  # fmt: skip
        assert reading.values[i, h, t] == pytest.approx(expected, rel=1e-9)


# --- attention ----------------------------------------------------------------------------------------------------


def dense_attention(trace: Trace, layer: int, head: int, score: str) -> np.ndarray:
    f = trace.layers[layer].factors
    q, k, U, omega = (part[head].numpy() for part in (f.q, f.k, f.U, f.omega))
    S = oracles.score_by_loop(score, q, k, U, f.tau[head].item(), omega, f.alpha)
    return oracles.softmax_by_loop(S, f.causal, 0.0 if f.slopes is None else f.slopes[head].item())


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("tile", [3, 64])
def test_attention_measures_against_loops(score, causal, tile, monkeypatch):
    monkeypatch.setattr(maps, "TILE", tile)
    trace = random_trace(causal=causal, alibi=causal, alpha=0.3)
    names = ("entropy", "exp_entropy", "dobrushin", "spectral_gap")
    readings = {name: read(trace, name, score=score).values for name in names}
    for i, h in np.ndindex(3, 2):
        A = dense_attention(trace, i, h, score)
        entropies = np.array([oracles.row_entropy_by_loop(row) for row in A])
        np.testing.assert_allclose(readings["entropy"][i, h], entropies, rtol=0, atol=EXACT)
        np.testing.assert_allclose(readings["exp_entropy"][i, h], np.exp(entropies), rtol=EXACT)
        assert readings["dobrushin"][i, h] == pytest.approx(oracles.dobrushin_by_loop(A), abs=EXACT)
        s = oracles.singular_values(A)
        assert readings["spectral_gap"][i, h] == pytest.approx(s[0] / s[1], rel=GRAM)


@pytest.mark.parametrize(("score_a", "score_b"), list(product(SCORES, SCORES)))
def test_divergences_against_loops(score_a, score_b):
    trace = random_trace(layers=1, alpha=0.3)
    variation, shannon = (
        read(trace, name, score_a=score_a, score_b=score_b).values[0] for name in ("total_variation", "jensen_shannon")
    )
    for h in range(2):
        A, B = dense_attention(trace, 0, h, score_a), dense_attention(trace, 0, h, score_b)
        for i in range(7):
            assert variation[h, i] == pytest.approx(oracles.total_variation_by_loop(A[i], B[i]), abs=EXACT)
            assert shannon[h, i] == pytest.approx(oracles.jensen_shannon_by_loop(A[i], B[i]), abs=EXACT)


def test_divergences_are_symmetric_and_vanish_between_equals():
    trace = random_trace()
    for name in ("total_variation", "jensen_shannon"):
        there, back = (
            read(trace, name, score_a="l2", score_b="euclidean"),
            read(trace, name, score_a="euclidean", score_b="l2"),
        )
        np.testing.assert_allclose(there.values, back.values, rtol=0, atol=EXACT)
        assert (read(trace, name, score_a="l2", score_b="l2").values == 0).all()


def test_the_first_row_of_a_causal_map_has_no_entropy():
    assert (read(random_trace(causal=True), "entropy").values[..., 0] == 0).all()
    assert (read(random_trace(causal=False), "entropy").values[..., 0] > 0).all()


def test_own_is_the_models_score_and_alpha_a_what_if():
    trace = random_trace(score="l2")
    own, l2 = (read(trace, "entropy", score=score).values for score in ("own", "l2"))
    np.testing.assert_array_equal(own, l2)
    half, there = (read(trace, "entropy", score="blended", alpha=alpha).values for alpha in (0.5, None))
    np.testing.assert_array_equal(half, read(random_trace(alpha=0.5), "entropy", score="blended").values)
    assert not np.allclose(half, there)


def test_known_maps():
    n = 6
    assert dobrushin(torch.eye(n).double()) == 1 and spectral_gap(torch.eye(n).double()) == 1
    uniform = torch.full((n, n), 1 / n).double()
    assert dobrushin(uniform) == 0 and spectral_gap(uniform) == math.inf
    mixture = 0.5 * torch.eye(n).double() + 0.5 * uniform  # singular values 1 and 1/2
    assert spectral_gap(mixture) == pytest.approx(2) and dobrushin(mixture) == pytest.approx(0.5)


def test_shares_of_a_trace_are_those_of_its_heads():
    trace = random_trace()
    reading = read(trace, "score_shares")
    assert reading.labels["term"] == tuple(TERMS)
    for i, h in np.ndindex(3, 2):
        f = trace.layers[i].factors.select(h)
        terms = oracles.score_terms_by_loop(
            f.q[0].numpy(), f.k[0].numpy(), f.U[0].numpy(), float(f.tau), f.omega[0].numpy()
        )
        expected = oracles.score_shares_by_loop(terms, causal=True)
        np.testing.assert_allclose(reading.values[i, h], [expected[name] for name in TERMS], atol=EXACT)


@pytest.mark.parametrize("name", MEASURES)
def test_order_of_tokens_does_not_matter_where_nothing_is_causal(name):
    """Values over tokens move with them; all others stay."""
    trace = random_trace(causal=False)
    order = torch.tensor([3, 1, 6, 0, 5, 2, 4])
    here, there = read(trace, name).values, read(permuted(trace, order), name).values
    if MEASURES[name].axes[-1] == "token":
        here = here[..., order.numpy()]
    np.testing.assert_allclose(there, here, rtol=1e-9, atol=EXACT)


@pytest.mark.parametrize("name", [name for name, row in MEASURES.items() if "head" in row.axes])
def test_one_layer_and_one_head_are_a_part_of_all(name):
    trace = random_trace()
    whole = read(trace, name)
    part = read(trace, name, layer=2, head=1)
    np.testing.assert_allclose(part.values, whole.values[2:, 1:], rtol=0, atol=EXACT)
    assert part.labels["layer"] == ("2",) and part.labels["head"] == ("1",)


# --- a reading travels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MEASURES)
def test_a_reading_pickles_and_exports_all_it_holds(name):
    trace = random_trace()
    reading = pickle.loads(pickle.dumps(read(trace, name)))
    header, *rows = csv.reader(io.StringIO(reading.to_csv()))
    assert header == [*MEASURES[name].axes, name]
    assert len(rows) == reading.values.size
    np.testing.assert_array_equal([float(row[-1]) for row in rows], reading.values.ravel())
    if "token" in header:
        assert {row[header.index("token")] for row in rows} == set(reading.labels["token"])
    shown = json.loads(reading.to_json())
    np.testing.assert_array_equal(np.array(shown["values"], float), reading.values)
    assert shown["labels"] == {axis: list(labels) for axis, labels in reading.labels.items()}


def test_values_that_are_not_numbers_export_as_words():
    reading = read(random_trace(length=1), "spectral_gap")
    assert json.loads(reading.to_json())["values"] == [["inf", "inf"]] * 3
    assert reading.to_csv().splitlines()[1] == "0,0,inf"


def test_a_trace_without_texts_is_labelled_by_ids():
    assert read(replace(random_trace(length=3), tokens=()), "omega").labels["token"] == ("(0) 0", "(1) 1", "(2) 2")

"""The collapse experiment against loops, dense metrics, closed forms and its own theory."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fbt_core.attention.scores import attention
from fbt_core.experiments import theorem
from fbt_core.experiments.arms import ARMS, REFERENCE
from fbt_core.experiments.collapse import COLUMNS, complete, run
from fbt_core.experiments.matching import deficits, match, narrowness
from fbt_core.experiments.profile import FLOOR, above_floor, of_tokens, pair_score, walk
from fbt_core.experiments.stack import PureStack, Shape, first_tokens
from fbt_core.experiments.task import TASKS, Learner, draw_ids
from fbt_core.experiments.trained import Training
from tests import oracles

SHAPE = Shape(length=12, width=3, rank=2, layers=2, strength=6.0, unit="tau/R^2", tied=False)
JOB = {"length": 20, "width": 4, "rank": 2, "layers": 6, "strength": 16.0, "seed": 3}
INITIAL = [name for name, arm in ARMS.items() if "initial" in arm.stages]


def first_step(name: str, shape: Shape = SHAPE, seed: int = 0):
    stack = PureStack(shape, ARMS[name], seed)
    return walk(stack, first_tokens(shape, seed))[0], stack.layers[0]


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


# --- one layer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", (False, True))
@pytest.mark.parametrize("name", [name for name in INITIAL if ARMS[name].temperature == "fixed"])
def test_a_layer_is_the_one_that_loops_give(name: str, tied: bool) -> None:
    shape = replace(SHAPE, tied=tied, omega=0.3)
    step, layer = first_step(name, shape)
    x, d = as_numpy(step.x[0]), shape.width
    q = x @ as_numpy(layer.query.weight).T
    k = q if tied else x @ as_numpy(layer.key.weight).T
    q, k = (y * math.sqrt(d / 2) / np.linalg.norm(y, axis=1, keepdims=True) for y in (q, k))
    R = max(np.linalg.norm(a - b) for a in q for b in k)
    U = as_numpy(step.factors.U[0, 0])
    if ARMS[name].metric != "none":
        assert max(np.linalg.norm(one, 2) for one in U) ** 2 == pytest.approx(shape.strength * d / R**2)
    omega = 0.3 * (U**2).sum((1, 2))
    S = oracles.score_by_loop("riemannian", q, k, U, float(d), omega)
    A = oracles.softmax_by_loop(S, causal=False)
    np.testing.assert_allclose(as_numpy(step.A[0, 0]), A, atol=1e-13)
    np.testing.assert_allclose(as_numpy(step.out[0]), A @ x @ as_numpy(layer.value.weight).T, atol=1e-13)


def test_where_the_metrics_come_from() -> None:
    U = {name: as_numpy(first_step(name)[0].factors.U[0, 0]) for name in INITIAL}
    norms = {name: [np.linalg.norm(one, 2) for one in parts] for name, parts in U.items()}
    assert max(norms["heterogeneous"]) > 1.2 * min(norms["heterogeneous"])
    assert norms["homogeneous"] == pytest.approx([max(norms["heterogeneous"])] * SHAPE.length)
    order = [int(np.argmin([np.abs(one - other).max() for other in U[REFERENCE]])) for one in U["shuffled"]]
    np.testing.assert_array_equal(U["shuffled"], U[REFERENCE][order])
    assert sorted(order) == list(range(SHAPE.length)) != order
    assert {U[name].shape[-1] for name in ("identity", "matched", "matched_dot")} == {0}
    stack = PureStack(SHAPE, ARMS["positional"], 0)
    other = walk(stack, first_tokens(SHAPE, 1))[0]
    directions = [V / np.linalg.norm(V) for V in (U["positional"], as_numpy(other.factors.U[0, 0]))]
    np.testing.assert_allclose(*directions, atol=1e-14)


def test_metric_net_reads_content_alone_and_no_scale() -> None:
    step, layer = first_step(REFERENCE)
    permutation = torch.randperm(SHAPE.length)
    moved = layer.factors(7.5 * step.x[:, permutation])
    torch.testing.assert_close(moved.U, step.factors.U[:, :, permutation])


def test_all_arms_draw_the_same_tokens_and_weights() -> None:
    stacks = {name: PureStack(SHAPE, ARMS[name], 5).state_dict() for name in INITIAL}
    for state in stacks.values():
        shared = [key for key in state if key.split(".")[2] in ("query", "key", "value")]
        assert len(shared) == 3 * SHAPE.layers
        for key in shared:
            torch.testing.assert_close(state[key], stacks[REFERENCE][key], rtol=0, atol=0)
            torch.testing.assert_close(state[key] @ state[key].mT, torch.eye(3).double(), atol=1e-6, rtol=0)
    assert not torch.equal(first_tokens(SHAPE, 5), first_tokens(SHAPE, 6))
    other = PureStack(SHAPE, ARMS[REFERENCE], 6).state_dict()["layers.0.query.weight"]
    assert not torch.allclose(other, stacks[REFERENCE]["layers.0.query.weight"])


@pytest.mark.parametrize(
    ("unit", "held", "reads"), [("tau/L", "layer", None), ("tau/R^2", "layer", 1), ("tau/R^2", "first", 0)]
)
def test_how_the_strength_is_held(unit: str, held: str, reads: int | None) -> None:
    """By L; or by each layer's own R; or by the first layer's."""
    shape = replace(SHAPE, unit=unit, held=held, tied=True)
    steps = walk(PureStack(shape, ARMS[REFERENCE], 0), first_tokens(shape, 0))
    radii = []
    for step in steps:
        q, k = (as_numpy(y[0]) for y in step.layer.queries_and_keys(step.x))
        radii.append(max(((a - b) ** 2).sum() for a in q for b in k))
    assert radii[1] < 0.95 * radii[0]
    found = max(np.linalg.norm(one, 2) ** 2 for one in as_numpy(steps[1].factors.U[0, 0]))
    assert found == pytest.approx(shape.strength * shape.width / (shape.length if reads is None else radii[reads]))


# --- matching ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", (1e-9, 1e-5, 1e-3, 0.1, 3.0, 200.0))
def test_deficits_keep_their_digits(spread: float) -> None:
    """ln L - H against fifty digits, down to where float64 entropies would agree altogether."""
    import mpmath

    logits = spread * torch.randn(3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found, variance = deficits(logits)
    with mpmath.workdps(50):
        for row, delta, var in zip(logits.tolist(), found.tolist(), variance.tolist(), strict=True):
            weights = [mpmath.exp(mpmath.mpf(z)) for z in row]
            p = [w / sum(weights) for w in weights]
            exact = mpmath.log(8) + sum(one * mpmath.log(one) for one in p)
            mean = sum(one * z for one, z in zip(p, row, strict=True))
            assert delta == pytest.approx(float(exact), rel=1e-9)
            assert var == pytest.approx(
                float(sum(one * (z - mean) ** 2 for one, z in zip(p, row, strict=True))), rel=1e-6
            )


@pytest.mark.parametrize("scale", (1e-6, 1.0, 40.0))
@pytest.mark.parametrize("c", (1e-4, 0.3, 1.0, 25.0))
def test_a_match_finds_the_multiplier(scale: float, c: float) -> None:
    logits = scale * torch.randn(9, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    found = match(logits, narrowness(c * logits))
    assert found.multiplier == pytest.approx(c, rel=1e-5) and abs(found.gap) < 1e-8


def test_where_there_is_no_match() -> None:
    logits = torch.randn(4, 6, dtype=torch.float64)
    for wanted in (0.0, 1.0, math.nan):
        assert math.isnan(match(logits, wanted).multiplier)
    assert math.isnan(match(torch.zeros(4, 6, dtype=torch.float64), 0.3).multiplier)
    ties = torch.tensor([[1.0, 1.0, 1.0, 0.0]], dtype=torch.float64)  # at least three keys of four: Delta < 1/4
    assert math.isnan(match(ties, 0.5).multiplier) and match(ties, 0.2).multiplier > 0


def test_matched_arms_have_the_entropy_of_the_heterogeneous_one() -> None:
    rows = run(JOB)
    by_arm = {name: [row for row in rows if row["arm"] == name] for name in INITIAL}
    reached = 0
    for name in ("matched", "matched_dot"):
        for row, other in zip(by_arm[name][1:], by_arm[REFERENCE][1:], strict=True):
            if not math.isnan(row["match_gap"]):
                reached += 1
                assert row["entropy"] == pytest.approx(other["entropy"], rel=1e-8)
                assert row["narrowness"] == pytest.approx(other["narrowness"], rel=1e-6)
    assert reached >= 8
    assert by_arm["identity"][1]["entropy"] > 1.05 * by_arm["matched"][1]["entropy"]
    assert by_arm["matched"][1]["tau"] < JOB["width"]


def test_with_qk_norm_a_dot_product_is_the_distance() -> None:
    """Why the dot-product arm goes without: norms that are all the same cancel, and the two arms would be one."""
    x, wanted = first_tokens(SHAPE, 0), [0.4, 0.2]
    dot = replace(ARMS["matched_dot"], normalised=True)
    ours, theirs = (walk(PureStack(SHAPE, arm, 0), x, wanted) for arm in (dot, ARMS["matched"]))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.A, b.A, rtol=1e-7, atol=1e-9)
    raw = walk(PureStack(SHAPE, ARMS["matched_dot"], 0), x, wanted)[0]
    assert (raw.A - theirs[0].A).abs().max() > 0.05


# --- a job ---------------------------------------------------------------------------------------------------------


def test_rows_of_a_job() -> None:
    rows, again = run(JOB), run(JOB)
    np.testing.assert_equal(rows, again)  # NaN equals NaN here
    assert [(row["arm"], row["layer"]) for row in rows] == [(a, n) for a in INITIAL for n in range(JOB["layers"] + 1)]
    assert set(rows[0]) == (set(complete(JOB)) - {"arms"}) | {"arm", "layer", "below_floor", *COLUMNS}
    assert len({row["log10_residual"] for row in rows if row["layer"] == 0}) == 1
    one = run(JOB | {"arms": ["matched"]})
    np.testing.assert_equal(one, [row for row in rows if row["arm"] == "matched"])
    np.testing.assert_equal(run(JOB | {"arm": "matched"}), one)


def test_the_numbers_of_a_row_are_those_of_the_oracles() -> None:
    step, _ = first_step(REFERENCE, replace(SHAPE, layers=1))
    rows = run({"length": 12, "width": 3, "rank": 2, "layers": 1, "strength": 6.0, "arms": [REFERENCE], "seed": 0})
    row, X, A = rows[1], as_numpy(step.out[0]), as_numpy(step.A[0, 0])
    keys = [math.exp(oracles.row_entropy_by_loop(one)) for one in A]
    centred = X - oracles.mean_by_loop(X)
    expected = {
        "log10_residual": math.log10(oracles.dong_residual_by_loop(X)),
        "mu": oracles.mu_by_loop(X),
        "effective_rank": oracles.effective_rank_by_loop(oracles.singular_values(X)),
        "effective_rank_centred": oracles.effective_rank_by_loop(oracles.singular_values(centred)),
        "entropy": np.mean(keys),
        "narrowness": 1 - np.mean(keys) / 12,
        "entropy_deficit": math.log(12) - np.mean(np.log(keys)),
        "dobrushin": max(oracles.total_variation_by_loop(a, b) for a in A for b in A),
        "self_attention": np.mean(np.diag(A)),
        "diameter": max(np.linalg.norm(a - b) for a in X for b in X),
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_strength_zero_is_no_metric() -> None:
    rows = run(JOB | {"strength": 0.0, "arms": ["heterogeneous", "homogeneous", "positional", "identity", "matched"]})
    residuals = np.array([row["log10_residual"] for row in rows]).reshape(5, -1)[:, :4]
    np.testing.assert_allclose(residuals - residuals[3], 0, atol=1e-7)


def test_what_is_below_the_floor_is_marked() -> None:
    rows = run(JOB | {"length": 36, "width": 6, "layers": 9, "strength": 1.0})
    for row in rows:
        assert row["below_floor"] == (row["log10_residual"] < math.log10(FLOOR))
    last = [row for row in rows if row["layer"] == 9]
    assert all(row["below_floor"] and row["log10_residual"] < -14.5 for row in last)
    assert all(math.isnan(row["M"]) and math.isnan(row["match_gap"]) for row in last)
    assert not above_floor(torch.ones(1, 4, 2, dtype=torch.float64))


@pytest.mark.parametrize("name", INITIAL)
def test_equal_tokens_stay_equal(name: str) -> None:
    """R = 0 with tied weights, and still every number is one; a positional metric cannot tell them apart either."""
    shape = replace(SHAPE, tied=True)
    x = first_tokens(shape, 0)[:, :1].expand(1, shape.length, 3).contiguous()
    for step in walk(PureStack(shape, ARMS[name], 0), x, [0.3, 0.3] if ARMS[name].temperature == "matched" else None):
        assert step.out.isfinite().all() and not above_floor(step.out)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"colour": 1}, "got parameters colour"),
        ({"stage": "late"}, "got stage 'late'"),
        ({"unit": "tau"}, r"expected one of tau/L, tau/R\^2"),
        ({"arms": ["free"]}, "got arms free"),
        ({"strength": -1.0}, "at least 0"),
        ({"strength": math.nan}, "at least 0"),
        ({"layers": 0}, "at least 1"),
        ({"length": 8.5}, "expected a whole number"),
        ({"steps": 5}, "got parameters steps"),
    ],
)
def test_wrong_parameters_are_refused(wrong: dict, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        run(JOB | wrong)


# --- the theory ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", theorem.FAMILIES)
def test_theorem_a_withstands_an_attack_and_is_sharp(family: str) -> None:
    worst = theorem.attack(family, seed=1, tries=8, steps=120)
    assert 0.999 < worst < 1 + 1e-9


def test_an_attack_would_notice_a_wrong_theorem(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of the true M, as a bound of 1/8 instead of 1/4 would have, counterexamples are found."""
    halved = {"bilinear": lambda free, X: tuple(part / (1 + n) for n, part in enumerate(theorem._bilinear(free, X)))}
    monkeypatch.setattr(theorem, "FAMILIES", halved)
    assert theorem.attack("bilinear", tries=8, steps=60) > 1.5


def test_m_at_the_tokens_alone_is_not_enough() -> None:
    found = theorem.blind_spot(0.5)
    assert found["M_tokens"] == 0 and found["contraction"] == pytest.approx(math.tanh(0.25))
    assert found["M_hull"] == pytest.approx(0.75**2) and found["contraction"] < found["bound"]


def test_m_of_a_layer_without_metric_has_a_closed_form() -> None:
    """(2 / tau) J_q(x)^T J_k(y), with J_q = sqrt(d/2) (I - u u^T) W / ||W x||, u = W x / ||W x||."""
    step, layer = first_step("identity")
    x, y = step.x[0, :5].detach(), step.x[0, 5:10].detach()

    def jacobian(W: np.ndarray, z: np.ndarray) -> np.ndarray:
        u = W @ z / np.linalg.norm(W @ z)
        return math.sqrt(1.5) * (np.eye(3) - np.outer(u, u)) @ W / np.linalg.norm(W @ z)

    W = as_numpy(layer.query.weight), as_numpy(layer.key.weight)
    found = theorem.mixed_norms(pair_score(step), x, y)
    pairs = zip(x.numpy(), y.numpy(), strict=True)
    expected = [np.linalg.norm(2 / 3 * jacobian(W[0], a).T @ jacobian(W[1], b), 2) for a, b in pairs]
    np.testing.assert_allclose(as_numpy(found), expected, rtol=1e-10)


@pytest.mark.parametrize("name", ("heterogeneous", "homogeneous", "matched_dot"))
def test_m_of_a_layer_by_finite_differences(name: str) -> None:
    """Of the scores that the layer itself computes, for tokens moved a little."""
    step, _ = first_step(name, replace(SHAPE, omega=0.2))
    score, x, y = pair_score(step), step.x[0, 0].detach(), step.x[0, 1].detach()
    logits = step.logits[0, 0]
    pairs = torch.stack([torch.stack([score(a, b) for b in step.x[0, :3]]) for a in step.x[0, :3]])
    ours, theirs = (part - part.mean(1, keepdim=True) for part in (pairs, logits[:3, :3]))
    torch.testing.assert_close(ours.detach(), theirs)  # up to a constant of the row, which the softmax drops
    h, axes = 1e-4, torch.eye(3, dtype=torch.float64)
    mixed = [[(score(x + h * a, y + h * b) - score(x + h * a, y - h * b) - score(x - h * a, y + h * b)
               + score(x - h * a, y - h * b)) / (4 * h * h) for b in axes] for a in axes]  # fmt: skip
    expected = np.linalg.norm(np.array([[value.item() for value in row] for row in mixed]), 2)
    assert theorem.mixed_norms(score, x[None], y[None]).item() == pytest.approx(expected, rel=1e-5)


def test_every_layer_of_a_stack_keeps_to_theorem_a() -> None:
    """With M sampled, so this tests the estimate as well: where it is far too low, a layer would break the bound."""
    rows = [row for tied in (False, True) for row in run(JOB | {"tied": tied, "layers": 5})]
    held = [row for row in rows if not math.isnan(row["bound"] + row["contraction"])]
    assert len(held) >= 30 and any(row["bound"] < 0.5 for row in held)
    assert all(row["contraction"] <= row["bound"] + 1e-12 for row in held)
    assert {row["arm"] for row in held} == {name for name in INITIAL if ARMS[name].content}


def test_hull_pairs_lie_in_the_hull() -> None:
    from scipy.optimize import linprog

    X = torch.randn(6, 2, dtype=torch.float64)
    x, y = theorem.hull_pairs(X, torch.Generator().manual_seed(0), 12)
    for point in torch.cat([x, y]).numpy():
        equal = np.vstack([X.numpy().T, np.ones(6)])
        assert linprog(np.zeros(6), A_eq=equal, b_eq=[*point, 1.0], bounds=(0, None)).status == 0


def test_causal_stacks_halve_the_spread_and_no_more() -> None:
    shape = Shape(24, 4, 2, 30, 4.0, "tau/L", tied=False, causal=True)
    for name in ("identity", "heterogeneous"):
        spread = [of_tokens(step.out)["mu"] for step in walk(PureStack(shape, ARMS[name], 0), first_tokens(shape, 0))]
        ratios = np.array(spread[20:]) / np.array(spread[19:-1])
        np.testing.assert_allclose(ratios, 0.5, atol=0.01)


@pytest.mark.parametrize(("transport", "power"), [("none", 3), ("key", 3), ("query", 1), ("frame", 1)])
def test_what_transport_does_to_the_power(transport: str, power: int) -> None:
    """Tokens a tenth as far apart leave a layer 1e-3 as far apart; or a tenth, where the queries' side is rotated."""
    shape = Shape(16, 4, 2, 1, 4.0, "tau/L", tied=False, transport=transport)
    stack = PureStack(shape, ARMS[REFERENCE], 0)
    middle, apart = first_tokens(shape, 1)[:, :1], first_tokens(shape, 2)
    after = [theorem.diameter(walk(stack, middle + e * apart)[0].out[0]) for e in (1e-3, 1e-4)]
    assert math.log10(after[0] / after[1]) == pytest.approx(power, abs=0.02)


# --- training ------------------------------------------------------------------------------------------------------

LEARN = {
    "stage": "trained",
    "length": 16,
    "width": 4,
    "rank": 2,
    "layers": 2,
    "vocabulary": 6,
    "tied": True,
    "strength": 64.0,
}


def test_the_answers_of_the_tasks() -> None:
    ids = draw_ids(0, "x", 2, 5, 7)
    assert torch.equal(TASKS["identify"].answers(ids), ids)
    for row, answer in zip(ids.tolist(), TASKS["copy"].answers(ids).tolist(), strict=True):
        assert answer == [row[-1], *row[:-1]]


def test_shallow_stacks_learn_and_collapsed_ones_do_not() -> None:
    arms = {"arms": ["heterogeneous", "matched", "free", "identity"], "steps": 150}
    rows = {row["arm"]: row for row in run(LEARN | arms) if row["layer"] == 2}
    deep = {row["arm"]: row for row in run(LEARN | arms | {"layers": 7, "arms": ["identity"]}) if row["layer"] == 7}
    assert rows["free"]["accuracy"] > 0.9 and rows["free"]["loss"] < 0.5
    assert rows["heterogeneous"]["accuracy"] > 0.6
    assert deep["identity"]["accuracy"] < 2 / 6 and deep["identity"]["loss"] > 0.9 * math.log(6)
    assert rows["free"]["chance"] == pytest.approx(1 / 6)
    assert rows["matched"]["entropy"] == pytest.approx(rows["heterogeneous"]["entropy"], rel=1e-8)


def test_trained_rows_are_deterministic_and_nan_where_nothing_was_answered() -> None:
    job = LEARN | {"steps": 4, "arms": ["positional", "free_heterogeneous"], "task": "copy"}
    rows = run(job)
    np.testing.assert_equal(rows, run(job))
    assert all(math.isnan(row["accuracy"]) == (row["layer"] != 2) for row in rows)


def test_the_free_arm_starts_as_wide_as_the_heterogeneous_one() -> None:
    given = complete(LEARN | {"steps": 0})
    shape = replace(SHAPE, length=16, width=4, tied=True, strength=64.0)
    training = Training(given, shape)
    rows = {name: training.profile(name)[0] for name in ("free", REFERENCE, "free_heterogeneous")}
    for other in ("free", "free_heterogeneous"):
        for a, b in zip(rows[other], rows[REFERENCE], strict=True):
            assert a.narrowness == pytest.approx(b.narrowness, rel=1e-8)
    arms = [Learner(shape, ARMS[name], 0, 6, TASKS["copy"]).state_dict() for name in ("free", REFERENCE)]
    for name in ("embedding", "readout", "position", "stack.layers.1.query.weight"):
        assert torch.equal(arms[0][name], arms[1][name])


def test_a_learner_is_the_walk_of_its_stack() -> None:
    learner = Learner(replace(SHAPE, held="first"), ARMS["homogeneous"], 0, 5, TASKS["identify"])
    ids = draw_ids(0, "x", 3, SHAPE.length, 5)
    *_, last = walk(learner.stack, learner.tokens(ids))
    torch.testing.assert_close(learner(ids), learner.answer(last.out))
    assert torch.equal(attention(last.factors, "riemannian"), last.A)

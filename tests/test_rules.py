"""The rules T1 to T4 on rows built to give every verdict, and intervals against slow and obvious ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fbt_core.experiments import results
from fbt_core.experiments.depths import collapse_depths, depth_table
from fbt_core.experiments.intervals import bands, interval
from fbt_core.experiments.report import report
from fbt_core.experiments.rule_exponent import exponent, triples
from fbt_core.experiments.rule_kink import corner
from fbt_core.experiments.rules import NEEDED, judge
from fbt_core.experiments.ruling import NOT_TESTABLE, Ruling
from tests.collapse_frames import ARMS, decay, frame

TRAINED = {"stage": "trained", "layers": 4, "steps": 60}  # a parameter that the untrained lack
BOTH = [{}, TRAINED]


def ruling(name: str, rows: pd.DataFrame, exponents: pd.DataFrame | None = None) -> Ruling:
    return {one.id: one for one in judge(rows, exponents)}[name]


# ---- intervals and depths ----


def test_an_interval_is_that_of_percentiles_of_resampled_means() -> None:
    values = np.random.default_rng(3).normal(size=12)
    random = np.random.default_rng(0)
    means = [values[[random.integers(12) for _ in range(12)]].mean() for _ in range(4000)]  # other draws, same law
    mean, low, high = interval(values)
    assert mean == pytest.approx(values.mean())
    np.testing.assert_allclose([low, high], np.percentile(means, [2.5, 97.5]), atol=0.04)
    assert interval(np.array([2.0])) == (2.0, 2.0, 2.0)
    assert np.isnan(interval(np.array([]))).all()
    np.testing.assert_allclose(
        bands(np.stack([values, 2 * values], 1)), np.array([interval(values), interval(2 * values)]).T
    )


def test_the_collapse_depth_is_the_first_layer_below_a_thousandth() -> None:
    rows = frame(lambda arm, seed, cell: {"heterogeneous": 7, "homogeneous": 30}.get(arm, 3 + seed), seeds=2)
    found = collapse_depths(rows).set_index(["arm", "seed"])
    for (arm, seed), run in rows.groupby(["arm", "seed"]):
        below = [row["layer"] for row in run.to_dict("records") if 10 ** row["log10_residual"] < 1e-3]
        expected = min(below) if below else 21
        assert found.loc[(arm, seed), "depth"] == expected and found.loc[(arm, seed), "censored"] == (not below)
    assert found.loc[("heterogeneous", 0), "depth"] == 7
    table = depth_table(collapse_depths(rows)).set_index("arm")
    assert table.loc["homogeneous", ["depth", "censored", "seeds"]].tolist() == [21, 2, 2]
    assert table.loc["matched", ["depth", "low", "high"]].tolist() == [3.5, 3, 4]


def test_a_dead_residual_counts_as_collapsed() -> None:
    rows = frame(lambda arm, seed, cell: 5, seeds=1)
    rows["log10_residual"] = rows["log10_residual"].where(rows["layer"] < 3, -np.inf)
    assert set(collapse_depths(rows)["depth"]) == {3}


# ---- T1 ----


def test_triples_have_no_bias_from_a_constant() -> None:
    run = decay("heterogeneous", False, 3.0, seeds=1)
    np.testing.assert_allclose(triples(run), 3.0, rtol=1e-12)
    logs = run["log10_residual"].to_numpy()
    assert abs(logs[1] / logs[0] - 3) > 0.2, "the naive ratio is biased here, so this test could fail"
    assert len(triples(run)) == len(run) - 2


def test_triples_begin_below_a_hundredth_and_do_not_cross_a_gap() -> None:
    run = decay("heterogeneous", False, 3.0, seeds=1)
    run.loc[0, "log10_residual"] = -1.9
    assert len(triples(run)) == len(run) - 3
    assert len(triples(run.drop(index=3))) == 0  # layers 1, 2, 4, 5: no three in a row
    assert len(triples(run[run["layer"] < 3])) == 0


@pytest.mark.parametrize(
    ("arm", "tied", "order", "says"),
    [
        ("heterogeneous", False, 3.0, "yes"),
        ("matched", True, 2.72, "yes"),
        ("homogeneous", False, 2.6, "no"),
        ("identity", False, 3.4, "no"),
        ("positional", False, 2.0, "yes"),
        ("positional", False, 3.0, "no"),
        ("positional", True, 3.0, "no band was fixed"),
        ("shuffled", False, 3.0, "no band was fixed"),
        ("heterogeneous", False, 1.0, "no"),
    ],
)
def test_what_an_exponent_says(arm: str, tied: bool, order: float, says: str) -> None:
    found = exponent(decay(arm, tied, order))
    assert found.table["says"].tolist() == [says]
    assert found.table["median"].tolist() == pytest.approx([order])
    assert found.verdict == {"yes": "doubly exponential", "no": "not doubly exponential"}.get(says, NOT_TESTABLE)


def test_some_arms_only() -> None:
    rows = pd.concat([decay("heterogeneous", False, 3.0), decay("homogeneous", False, 1.5)])
    found = exponent(rows)
    assert found.verdict == "some arms only" and found.numbers == {"arms": 2.0, "doubly exponential": 1.0}
    assert exponent(None).verdict == exponent(rows.iloc[:0]).verdict == NOT_TESTABLE
    assert exponent(rows[rows["layer"] < 2]).verdict == NOT_TESTABLE


def test_the_median_is_of_all_and_its_interval_of_the_seeds() -> None:
    rows = decay("heterogeneous", False, 3.0, seeds=5, layers=5, noise=0.5)
    held = [triples(run) for _, run in rows.groupby("seed")]
    (row,) = exponent(rows).table.to_dict("records")
    assert row["median"] == np.median(np.concatenate(held)) and row["exponents"] == sum(map(len, held))
    assert row["low"] < row["median"] < row["high"]


# ---- T2 and T3 ----


def test_depths_are_measured() -> None:
    found = ruling("T2", frame(lambda arm, seed, cell: 30 if arm == "matched" else 5))
    assert found.verdict == "measured" and found.numbers == {"runs": 40.0, "not collapsed": 10.0}
    assert "between layers 5 and 5" in found.why


def beats(by: float, over: str = "") -> Any:
    """The heterogeneous arm collapses ``by`` layers later than all others, or than one."""

    def depth(arm: str, seed: int, cell: dict[str, Any]) -> float:
        return 5 if arm != "heterogeneous" and over in ("", arm) else 5 + by

    return depth


def best(times: float) -> Any:
    return lambda arm, seed: times if arm == "heterogeneous" else 1.0


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        ({"depth": beats(0), "cells": BOTH}, "not supported"),
        ({"depth": beats(2), "cells": [{}]}, "supported"),
        ({"depth": beats(2), "cells": BOTH}, "supported"),
        ({"depth": beats(1), "cells": BOTH}, "not supported"),
        (
            {"depth": beats(3, "homogeneous"), "cells": BOTH},
            "not supported",
        ),  # sharpness alone: the matched arms keep up
        ({"depth": beats(3, "matched"), "cells": BOTH}, "not supported"),
        ({"depth": beats(3), "cells": BOTH, "seeds": 9}, NOT_TESTABLE),
        ({"depth": beats(0), "cells": BOTH, "seeds": 9}, NOT_TESTABLE),
        ({"depth": beats(3), "cells": BOTH, "arms": ("heterogeneous", "homogeneous")}, NOT_TESTABLE),
        ({"depth": beats(3), "cells": BOTH, "arms": ARMS[1:]}, NOT_TESTABLE),
        ({"depth": beats(0), "cells": [{}]}, NOT_TESTABLE),  # no trained ranks: the other half could still support it
        ({"depth": beats(0), "cells": BOTH, "rank": best(1.51)}, "supported"),
        ({"depth": beats(0), "cells": BOTH, "rank": best(1.49)}, "not supported"),
        ({"depth": beats(0), "cells": [{}], "rank": best(9.0)}, NOT_TESTABLE),  # not trained
        ({"depth": beats(3), "cells": [{"strength": 0.0}, TRAINED | {"strength": 0.0}]}, NOT_TESTABLE),  # no metric
        ({"depth": beats(3), "cells": [{"transport": "frame"}]}, NOT_TESTABLE),  # secondary
        ({"depth": beats(3), "cells": [{"strength": 1.0}, {"strength": 9.0}]}, "supported"),
        ({"depth": lambda arm, seed, cell: 40, "cells": [{}, TRAINED]}, NOT_TESTABLE),  # nothing collapses
        ({"depth": lambda arm, seed, cell: 40 if arm == "heterogeneous" else 5, "cells": [{}]}, "supported"),
        ({"depth": lambda arm, seed, cell: 40 if arm == "matched" else 5, "cells": BOTH}, "not supported"),
    ],
)
def test_the_conjecture(case: dict[str, Any], verdict: str) -> None:
    found = ruling("T3", frame(**case))
    assert found.verdict == verdict, found.why


def test_half_of_the_rule_is_told_and_not_taken_for_the_whole() -> None:
    found = ruling("T3", frame(lambda arm, seed, cell: 8 if arm in ("heterogeneous", "homogeneous") else 5, BOTH))
    assert (
        found.verdict == "not supported"
        and "In 1 it beats the entropy-matched arms and not the homogeneous" in found.why
    )
    assert "beats the entropy-matched" not in ruling("T3", frame(beats(3, "homogeneous"), BOTH)).why


def test_a_rank_that_the_width_forbids_is_no_failure() -> None:
    rows = frame(beats(0), BOTH, rank=lambda arm, seed: 3.0)
    rows["effective_rank"] = rows["effective_rank"].where(rows["stage"] != "trained", 0.7 * rows["width"])
    found = ruling("T3", rows)
    cases = found.table[found.table["by"] == "trained effective rank"]
    assert list(cases["says"]) == [NOT_TESTABLE] and "the width is" in cases["why"].iloc[0]


def test_intervals_that_overlap_do_not_support() -> None:
    """The mean is 2.4 layers ahead, but 3 seeds of 10 decide that."""

    def depth(arm: str, seed: int, cell: dict[str, Any]) -> float:
        return 13 if arm == "heterogeneous" and seed < 3 else 5

    found = ruling("T3", frame(depth, BOTH))
    assert found.verdict == "not supported"
    (row,) = found.table[(found.table["by"] == "collapse depth") & (found.table["stage"] == "initial")].to_dict(
        "records"
    )
    assert row["advantage"] == pytest.approx(2.4) and row["own_low"] <= row["best_high"]


def test_only_seeds_that_all_arms_have_are_compared() -> None:
    rows = frame(beats(3), [{}], seeds=12)
    rows = rows[~((rows["arm"] == "matched") & (rows["seed"] > 8))]
    assert ruling("T3", rows).verdict == NOT_TESTABLE
    assert ruling("T3", rows[rows["arm"] != "matched"]).verdict == "supported"  # the other matched arm is complete


def test_the_best_control_decides_the_trained_rank() -> None:
    ranks = {"heterogeneous": 3.0, "homogeneous": 1.0, "matched": 2.1, "free": 1.0, "shuffled": 9.0}
    arms = (*ARMS, "free", "shuffled")
    rows = frame(beats(0), BOTH, arms, rank=lambda arm, seed: ranks.get(arm, 1.0))
    found = ruling("T3", rows)
    (row,) = found.table[found.table["by"] == "trained effective rank"].to_dict("records")
    assert (
        row["control"] == "matched" and row["best"] == pytest.approx(2.1) and row["advantage"] == pytest.approx(3 / 2.1)
    )
    assert found.verdict == "not supported" and "g = I, matched" in found.why


# ---- T4 ----

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


def cells(lengths: tuple[int, ...], **more: Any) -> list[dict[str, Any]]:
    return [{"length": n, "strength": s, "layers": 24, **more} for n in lengths for s in STRENGTHS]


def test_the_corner_is_found_where_the_lines_meet() -> None:
    x = np.log10(STRENGTHS)
    depths = 5 + 3 * np.maximum(x - 0.5, 0) + np.arange(4)[:, None]
    place, low, high = corner(x, depths)
    assert low < 0.5 < high and high - low < 0.02 and low < place < high


@pytest.mark.parametrize(
    ("at", "lengths", "verdict"),
    [
        (lambda cell: 1.0, (64, 256), "a kink at tau/L"),
        (lambda cell: cell["length"] / 16, (64, 256), "no kink at tau/L"),  # at tau/R^2
        (lambda cell: 10.0, (64, 256), "no kink at tau/L"),
        (lambda cell: 1.0 if cell["length"] == 64 else 10.0, (64, 256), "no kink at tau/L"),
        (lambda cell: 1.0, (64, 128), NOT_TESTABLE),
        (lambda cell: 1.0, (64,), NOT_TESTABLE),
    ],
)
def test_the_kink(at: Any, lengths: tuple[int, ...], verdict: str) -> None:
    def depth(arm: str, seed: int, cell: dict[str, Any]) -> float:
        place = at(cell) * 10 ** (0.3 * (seed % 3 - 1))
        return round(6 + 6 * max(np.log10(cell["strength"] / place), 0) + seed % 3)

    found = ruling("T4", frame(depth, cells(lengths), ("heterogeneous",), seeds=6))
    assert found.verdict == verdict, found.why
    if verdict == NOT_TESTABLE:
        return
    both = frame(depth, [*cells(lengths), TRAINED], ("heterogeneous",), seeds=6)
    pd.testing.assert_frame_equal(ruling("T4", both).table, found.table)
    for row in found.table.to_dict("records"):
        assert row["inverse_radius"] == pytest.approx(row["length"] / 16)
        assert row["low"] <= row["kink"] <= row["high"]


def test_without_a_kink_or_without_collapse_none_is_claimed() -> None:
    straight = frame(
        lambda arm, seed, cell: round(8 + 2 * np.log10(cell["strength"])) + seed % 2, cells((64, 256)), seeds=6
    )
    assert ruling("T4", straight).verdict == "no kink at tau/L"
    never = frame(lambda arm, seed, cell: 60 if cell["strength"] > 3 else 6, cells((64, 256)), seeds=6)
    assert ruling("T4", never).verdict == NOT_TESTABLE
    few = frame(lambda arm, seed, cell: 6, cells((64, 256))[::2], seeds=6)
    assert ruling("T4", few).verdict == NOT_TESTABLE


def test_strengths_that_grow_by_depth_have_no_place_on_the_axis() -> None:
    """Tied weights and each layer's own R: Ubar^2 of tau/R^2 is another at each layer."""
    mixed = [{"unit": "tau/R^2", "strength": s, "length": n, "tied": True} for s in (1.0, 4.0, 16.0) for n in (64, 256)]
    rows = frame(lambda arm, seed, cell: 6 + seed % 2, cells((64, 256), tied=True) + mixed, seeds=4)
    assert set(ruling("T4", rows).table["strengths"]) == {len(STRENGTHS)}
    rows["held"] = "first"
    assert set(ruling("T4", rows).table["strengths"]) == {len(STRENGTHS) + 3}


# ---- all ----


def test_a_missing_column_is_told() -> None:
    rows = frame(beats(0), seeds=1)
    for name in NEEDED:
        with pytest.raises(ValueError, match=f"rows without {name.replace('^', '.')}, expected"):
            judge(rows.drop(columns=name))


def test_the_report_holds_every_table() -> None:
    rows = frame(beats(3), [{"strength": s} for s in (1.0, 4.0)] + [TRAINED])
    text = report(rows, decay("heterogeneous", False, 3.0), {"identity": {"plan": "x"}, "job_seconds": 7200})
    assert "**supported**" in text and "2.00 core hours" in text
    assert "| 4 tau/L | 8.0 [8.0, 8.0] | 5.0 [5.0, 5.0] |" in text
    assert "| Heterogeneous | untied | 3 | 12 | 3.000 [3.000, 3.000] | [2.7, 3.3] | yes |" in text
    assert "chance 0.062" in text and "0.50 [0.50, 0.50]" in text
    widths = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    assert min(widths) >= 5


RESULTS, EXPONENTS = "experiments/results.parquet", "experiments/exponents.parquet"


def test_a_row_of_the_kept_results_can_be_computed_again(root: Path) -> None:
    """One job, drawn at random: the numbers of all its rows."""
    from fbt_core.experiments import collapse

    kept, _ = results.read(root / RESULTS)
    random = np.random.default_rng(5)
    chosen = kept[(kept["stage"] == "initial") & ~kept["below_floor"] & (kept["layer"] > 0)]
    chosen = chosen[chosen["length"] == chosen["length"].min()]
    row = chosen.iloc[int(random.integers(len(chosen)))]
    given = {name: row[name] for name in collapse.DEFAULTS if name in kept and name not in ("arms",)}
    given = {name: value.item() if hasattr(value, "item") else value for name, value in given.items()}
    again = pd.DataFrame(collapse.run(given | {"arms": [row["arm"]]}))
    (same,) = again[again["layer"] == row["layer"]].to_dict("records")
    for name in ("log10_residual", "effective_rank", "entropy", "mu", "dobrushin"):
        assert same[name] == pytest.approx(float(row[name]), rel=1e-5, abs=1e-6), (name, given)

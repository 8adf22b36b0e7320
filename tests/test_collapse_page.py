"""The Collapse page: files that mean harm, figures against the rows that they are of, and the page as run."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from app import collapse_data
from app.collapse_choice import Choice
from app.figures import collapse as figures
from app.figures import theme
from app.figures.collapse import Line, Rule
from fbt_core.experiments import results, uploaded
from fbt_core.experiments.arms import ARMS
from fbt_core.experiments.rule_exponent import triples
from fbt_core.experiments.uploaded import read_uploaded
from tests.collapse_frames import decay, frame
from tests.test_pages import ENTRY, complaints

HOSTILE = "<script>alert(1)</script> ![x](y) $a$"
CELLS = [
    *({"strength": strength} for strength in (0.0, 0.1, 1.0, 10.0)),
    {"strength": 4.0, "unit": "tau/R^2"},
    {"strength": 1.0, "tied": True},
    {"strength": 1.0, "length": 256},
    {"stage": "trained", "layers": 4, "steps": 60, "task": "identify"},
]


def rows(**more: Any) -> pd.DataFrame:
    """A file with every kind of cell, of three seeds."""
    return frame(lambda arm, seed, cell: 4 + cell["strength"] % 3 + seed, CELLS, **({"seeds": 3} | more))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those rows, and exponents beside them, as files."""
    folder = tmp_path_factory.mktemp("results")
    results.write(folder / "results.parquet", rows(), {"identity": {"plan": "stand-in"}})
    both = pd.concat([decay("heterogeneous", tied, 3.0, noise=0.2) for tied in (False, True)])
    results.write(folder / "exponents.parquet", pd.concat([both, decay("positional", False, 2.0)]), {})
    return folder / "results.parquet"


# ---- a file of anybody's ----


def test_a_sound_file_is_read_as_it_is(stored: Path) -> None:
    found, about = read_uploaded(stored)
    expected = results.read(stored)[0]
    assert about["identity"]["plan"] == "stand-in"
    pd.testing.assert_frame_equal(found, expected[found.columns], check_dtype=False)
    assert set(expected.columns) == set(found.columns)
    assert found["task"].isna().any() and found["task"].notna().any()


def changed(change: Callable[[pd.DataFrame], Any]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        table = change(rows(seeds=1))
        pq.write_table(table if isinstance(table, pa.Table) else pa.Table.from_pandas(table), path)

    return write


def nested(table: pd.DataFrame) -> pa.Table:
    return pa.table({"arm": pa.array([[1, 2]] * 3), "seed": [0, 1, 2]})


def promised(path: Path) -> None:
    """A file of a few kilobytes that holds two hundred million rows."""
    values = pa.array(np.zeros(2_000_000))
    with pq.ParquetWriter(path, pa.schema({"mu": pa.float64()}), compression="zstd") as writer:
        for _ in range(2):
            writer.write_table(pa.table({"mu": values}))


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing": (lambda path: path.write_bytes(b""), "no sound Parquet"),
    "text": (lambda path: path.write_text("arm,seed\n"), "no sound Parquet"),
    "zeros": (lambda path: path.write_bytes(b"PAR1" + b"\0" * 64 + b"PAR1"), "no sound Parquet"),
    "long footer": (lambda path: path.write_bytes(b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1"), "no sound Parquet"),
    "pickle": (lambda path: path.write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR."), "no sound Parquet"),
    "many rows": (promised, "got 4000000 rows, expected at most 200000"),
    "other columns": (changed(lambda f: pa.table({"x": [1]})), "without the columns arm, seed"),
    "no rows": (changed(lambda f: f.iloc[:0]), "without rows"),
    "lists": (changed(nested), "a column arm of type list"),
    "numbers for texts": (changed(lambda f: f.assign(arm=1.5)), "column arm of the wrong kind"),
    "texts for numbers": (changed(lambda f: f.assign(seed="one")), "column seed of the wrong kind"),
    "missing arm": (changed(lambda f: f.assign(arm=[None, *f["arm"][1:]])), "column arm with missing texts"),
    "missing seed": (changed(lambda f: f.assign(seed=[None, *f["seed"][1:]])), "column seed with missing"),
    "half a layer": (changed(lambda f: f.assign(layer=f["layer"] + 0.5)), "not whole or out of range"),
    "a huge layer": (changed(lambda f: f.assign(layer=f["layer"] * 10**6)), "at most 1000 layers"),
    "twice": (changed(lambda f: pd.concat([f, f])), "the same arm, seed and layer twice"),
    "impossible": (changed(lambda f: f.assign(log10_residual=5.0)), "beyond the range of a Dong residual"),
    "long text": (changed(lambda f: f.assign(arm="a" * 65)), "longer than 64 letters"),
    "many arms": (changed(lambda f: f.assign(arm=[f"arm {i}" for i in range(len(f))])), "more than 32 different texts"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused(tmp_path: Path, case: str) -> None:
    write, message = BAD[case]
    path = tmp_path / "rows.parquet"
    write(path)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_uploaded(path)


def test_a_file_beyond_the_bytes_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: Path) -> None:
    monkeypatch.setattr(uploaded, "BOUNDS", replace(uploaded.BOUNDS, bytes=1000))
    with pytest.raises(ValueError, match=r"got a file of [\d,]+ bytes, expected at most 1,000"):
        read_uploaded(stored)


def test_mutants_never_hurt(tmp_path: Path, stored: Path) -> None:
    """Bytes changed at random: rows, or a refusal; nothing else."""
    random, content = np.random.default_rng(5), stored.read_bytes()
    for trial in range(6):
        mutant = bytearray(content)
        for place in random.integers(len(mutant), size=2 ** (trial + 1)):
            mutant[place] = int(random.integers(256))
        path = tmp_path / f"{trial}.parquet"
        path.write_bytes(bytes(mutant))
        try:
            assert len(read_uploaded(path)[0])
        except ValueError as fault:
            assert "expected" in str(fault)


# ---- figures ----


def test_every_arm_has_a_look_of_its_own() -> None:
    assert set(collapse_data.ORDER) == set(ARMS)
    arms = [*collapse_data.ORDER, "another"]
    looks = [figures.style(collapse_data.index_of(arm, arms)) for arm in arms]
    assert len({(look["line"]["color"], look["line"]["dash"], look["marker"]["symbol"]) for look in looks}) == len(arms)
    assert len({look["line"]["color"] for look in looks[:6]}) == 6


def test_a_profile_draws_the_mean_and_its_band() -> None:
    table = rows()
    cell = table[(table["stage"] == "initial") & (table["strength"] == 1) & (table["length"] == 64) & ~table["tied"]]
    layers, mean, low, high = collapse_data.by_layer(cell, "matched", "entropy")
    own = cell[cell["arm"] == "matched"].groupby("layer")["entropy"].mean()
    np.testing.assert_allclose(mean, own.to_numpy())
    assert layers.tolist() == own.index.tolist() and (low <= mean).all() and (mean <= high).all()
    figure = figures.profile(
        [Line(HOSTILE, 2, layers, mean, low, high)], HOSTILE, "tokens", [HOSTILE], [Rule("y", 40.0, HOSTILE)]
    )
    line = next(trace for trace in figure.data if trace.mode == "lines+markers")
    np.testing.assert_array_equal(line.y, mean)
    assert line.line.color == theme.CATEGORIES[2]
    assert "<script" not in figure.to_json().replace("\\u003c", "<").replace("&lt;script", "")
    assert figure.layout.yaxis.title.text == "tokens" and "layers" in figure.layout.xaxis.title.text


def test_residuals_end_at_the_floor_of_float64() -> None:
    table = rows()
    table["log10_residual"] = table["log10_residual"].where(table["layer"] < 5, -np.inf)
    found = collapse_data.by_layer(table[(table["length"] == 256)], "matched", "log10_residual")
    assert found[1].min() == collapse_data.DEEPEST == -13 and np.isfinite(found).all()


def test_rules_on_a_log_axis_stand_where_they_say() -> None:
    line = Line("a", 0, 1 + np.arange(3.0), 10.0 ** -np.arange(3.0), np.ones(3), np.ones(3))
    figure = figures.profile([line], "t", "y", rules=[Rule("y", 1e-3, "here")], log=True)
    assert figure.layout.shapes[0].y0 == 1e-3 and figure.layout.annotations[0].y == pytest.approx(-3)
    figure = figures.against_strength([line], "t", [], [Rule("x", 100.0, "there")], None, 5)
    assert figure.layout.shapes[0].x0 == 100.0 and figure.layout.annotations[0].x == pytest.approx(2)


def test_collapse_depths_are_drawn_with_their_intervals() -> None:
    made = collapse_data.judged("Ours", rows(), None, {})
    choice = Choice(
        {"stage": "initial", "tied": False, "length": 64, "layers": 20}, "tau/L", 1.0, ("matched",), ("matched",)
    )
    from app.collapse_strength import _strength_lines

    (line,), zero = _strength_lines(choice.rows(made.depths, strength=False), choice)
    table = made.depths[(made.depths["arm"] == "matched") & (made.depths["stage"] == "initial")]
    table = table[(table["length"] == 64) & ~table["tied"]].sort_values("ubar_squared")
    np.testing.assert_array_equal(np.sort(line.y), np.sort(table["depth"]))
    positive = (line.x[line.x > zero]).tolist()
    np.testing.assert_allclose(sorted(positive), [0.1, 1.0, 10.0, 4 * 64 / 16])  # tau/R^2 = 1/2, tau/L = 8/64
    assert zero is not None and zero < 0.1


def test_exponents_are_those_that_the_rule_reads() -> None:
    table = decay("heterogeneous", False, 3.0, noise=0.3)
    layer, median, low, high = collapse_data.exponents_of(table, "heterogeneous")
    held = np.stack([triples(run) for _, run in table.groupby("seed")])
    np.testing.assert_allclose(median, np.median(held, axis=0))
    assert layer.tolist() == [0, 1, 2, 3] and (low <= median).all() and (median <= high).all()


# ---- the page ----


@pytest.fixture
def page(stored: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., AppTest]]:
    """Opens the page on the stand-in; the sidebar's checkpoint is the bundled one."""
    monkeypatch.setattr(collapse_data, "RESULTS", stored)
    logging.getLogger("streamlit").setLevel(logging.ERROR)

    def open_(**query: str) -> AppTest:
        test = AppTest.from_file(ENTRY, default_timeout=120)
        for name, value in query.items():
            test.query_params[name] = value
        test.run()
        return test.switch_page("pages/collapse.py").run()

    yield open_
    collapse_data._kept.clear()


def uploader(test: AppTest) -> Any:
    return next(one for one in test.get("file_uploader") if one.key == "collapse-file")


def charts(test: AppTest) -> list[go.Figure]:
    return [go.Figure(json.loads(chart.proto.spec)) for chart in test.get("plotly_chart")]


def test_the_page_shows_the_rules_and_the_figures(page: Callable[..., AppTest]) -> None:
    test = page()
    assert complaints(test) == []
    told = " ".join(str(element.value) for element in test.markdown)
    for rule in ("T1", "T2", "T3", "T4"):
        assert f"**{rule}**" in told
    titles = [chart.layout.title.text for chart in charts(test)]
    assert titles == [
        "Residual by depth", "Collapse depth by strength", "Effective rank, raw", "Exp-entropy of rows",
        "Exponent of the collapse, untied weights", "Exponent of the collapse, tied weights",
    ]  # fmt: skip
    names = {trace.name for trace in charts(test)[0].data if trace.name}
    assert names == {"Heterogeneous", "Homogeneous", "g = I, matched"}  # the others are a click away


def test_every_choice_draws(page: Callable[..., AppTest]) -> None:
    kept = {"measure-of": ["effective_rank_centred", "M", "entropy_deficit", "norm_U_mean"]}
    for key in ("size", "tied", "strength-of", "measure-of", "stage-of"):
        test = page()
        for option in kept.get(key, test.selectbox(key=key).options[:3]):
            test.selectbox(key=key).set_value(option).run()
            assert complaints(test) == [], f"{key} = {option}"
    titles = [chart.layout.title.text for chart in charts(page(**{"stage-of": "trained"}))]
    assert {"Effective rank after the last layer", "Accuracy on held-out sequences"} <= set(titles)


def test_arms_can_be_left_out_and_keep_their_colours(page: Callable[..., AppTest]) -> None:
    test = page()
    (pills,) = [group for group in test.button_group if group.key == "arms"]
    pills.set_value(["matched"]).run()
    assert complaints(test) == []
    (line,) = [trace for trace in charts(test)[0].data if trace.name]
    assert line.name == "g = I, matched" and line.line.color == theme.CATEGORIES[2]
    next(group for group in test.button_group if group.key == "arms").set_value([]).run()
    assert complaints(test) == [] and any("at least one arm" in info.value for info in test.info)


def test_a_file_of_ones_own_stands_beside(page: Callable[..., AppTest], stored: Path, tmp_path: Path) -> None:
    test = page()
    other = frame(
        lambda arm, seed, cell: 6, [{"strength": 1.0}, {"strength": 2.0}], ("heterogeneous", HOSTILE), seeds=2
    )
    results.write(tmp_path / "mine.parquet", other, {})
    uploader(test).set_value(("mine.parquet", (tmp_path / "mine.parquet").read_bytes(), "")).run()
    test.selectbox(key="strength-of").set_value("1 τ/L").run()
    assert complaints(test) == []
    titles = [chart.layout.title.text for chart in charts(test)]
    assert "Residual by depth" in titles and "Residual by depth: your file" in titles
    uploader(test).set_value(("bad.parquet", b"PAR1 no", "")).run()
    assert len(test.error) == 1 and any("no sound Parquet" in text.value for text in test.text)
    assert next(chart.layout.title.text for chart in charts(test)) == "Residual by depth"


def test_names_of_arms_are_no_markdown_and_those_of_another_file_are_forgotten(
    page: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An image in a name would be fetched: a file could tell its writer who opens it."""
    monkeypatch.setattr(collapse_data, "RESULTS", tmp_path / "absent.parquet")
    test = page()
    for names in (["heterogeneous", HOSTILE], ["another"]):
        table = frame(lambda arm, seed, cell: 6, [{"strength": 1.0}, {"strength": 2.0}], names, seeds=2)
        pq.write_table(pa.Table.from_pandas(table), tmp_path / "mine.parquet")
        uploader(test).set_value(("mine.parquet", (tmp_path / "mine.parquet").read_bytes(), "")).run()
        assert complaints(test) == [] and charts(test)
        shown = [option.content for option in test.button_group(key="arms").proto.options]
        assert not any("![" in one.replace("\\[", "") for one in shown)


def test_without_results_the_page_says_how_to_make_them(
    page: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(collapse_data, "RESULTS", tmp_path / "absent.parquet")
    test = page()
    assert complaints(test) == [] and any("fbt_core collapse" in info.value for info in test.info)

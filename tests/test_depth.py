"""The depth page's numbers and figures, the token colours, the small charts and the tables behind the exports."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pandas as pd
import pytest

from app import depth, tables
from app.figures import theme
from app.figures.lines import Series, by_depth, difference
from app.figures.sparkline import sparkline
from app.figures.tokens import Scale, ink, scale_of
from fbt_core.measures import MEASURES, Reading


def test_the_bootstrap_interval_covers_as_often_as_it_says() -> None:
    """Of means of 16 normal values, a percentile bootstrap's 95 % interval holds the truth about 92 times in 100."""
    rng = np.random.default_rng(0)
    rows = rng.normal(3.0, 2.0, size=(16, 400))
    mean, low, high = depth.bootstrap(rows)
    np.testing.assert_allclose(mean, rows.mean(0))
    assert 0.87 <= ((low <= 3.0) & (3.0 <= high)).mean() <= 0.97


def test_one_text_has_no_width() -> None:
    rows = np.array([[1.0, 2.0]])
    for found in depth.bootstrap(rows):
        np.testing.assert_array_equal(found, rows[0])


@pytest.mark.parametrize("stage", depth.STAGES)
@pytest.mark.parametrize("layers", [1, 2, 7])
def test_places_ascend_and_end_after_the_last_layer(stage: str, layers: int) -> None:
    for relative in (False, True):
        x, names, hollow = depth.places(layers, stage, relative)
        assert len(x) == len(names) == (2 * layers + 2 if stage == "every" else layers + 1)
        assert (np.diff(x) > 0).all()
        assert names[-1] == "after the final norm"
        assert hollow is None or len(hollow) == len(x)
    if layers > 1:
        assert x[-2] == 1


def test_bands_lie_under_all_lines_and_the_final_entry_is_apart() -> None:
    y = np.array([1.0, 2.0, 3.0])
    series = [Series(name, np.arange(3.0), y, y - 1, y + 1, final=True, names=("0", "1", "end")) for name in "AB"]
    figure = by_depth(series, "title", "x", "y")
    assert [trace.fill for trace in figure.data[:2]] == ["toself"] * 2
    lines = figure.data[2:]
    assert [len(line.x) for line in lines] == [2, 2, 2, 2]  # to the last layer, then on to the final norm
    assert [line.line.dash for line in lines] == ["solid", "dot", "dash", "dot"]
    assert figure.layout.xaxis.ticktext[-1] == "final<br>norm"


def test_a_difference_is_symmetric_about_zero() -> None:
    axis = difference(np.arange(3), np.array([-0.2, np.nan, 0.1]), "t", "x", "y").layout.yaxis
    assert axis.range[0] == -axis.range[1] and axis.range[1] > 0.2


def test_labels_cannot_become_markup() -> None:
    hostile = "<b>x</b><script>"
    figure = by_depth([Series(hostile, np.arange(2.0), np.ones(2))] * 2, hostile, "x", "y")
    theme.note(figure, hostile)
    assert "<b>" not in figure.to_json().replace("\\u003c", "<")


def test_a_note_stands_under_the_title_after_what_stood_there() -> None:
    figure = by_depth([Series("A", np.arange(2.0), np.ones(2))], "title", "x", "y")
    theme.note(theme.subtitle(figure, "first"), "what-if")
    text = figure.layout.title.subtitle.text
    assert text.startswith("first<br>") and "what-if" in text
    assert not figure.layout.annotations


def test_colours_span_the_scale_and_missing_is_not_zero() -> None:
    values = np.array([0.0, 1.0, np.nan, np.inf])
    scale = scale_of(values)
    assert (scale.low, scale.high) == (0.0, 1.0)
    colours = scale.colours(values)
    assert colours[:2] == ["#440154", "#fde725"]  # the published ends of Viridis
    assert colours[2:] == ["", ""]
    assert scale_of(np.array([-1.0, 3.0]), diverging=True) == Scale(-3.0, 3.0, True)
    assert scale_of(np.array([np.nan])).colours(np.array([np.nan, 1.0]))[0] == ""


def test_ink_is_readable_on_every_colour() -> None:
    """WCAG contrast of at least 4.5, computed here from its definition."""

    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    for scale in (Scale(0, 1), Scale(-1, 1, True)):
        for colour in scale.colours(np.linspace(scale.low, scale.high, 64)):
            bright, dark = sorted((luminance(colour), luminance(ink(colour))), reverse=True)
            assert (bright + 0.05) / (dark + 0.05) >= 4.5


def test_a_sparkline_leaves_gaps_and_holds_numbers_only() -> None:
    svg = sparkline([np.array([1.0, np.nan, 3.0])], [2], first="<b>", last="2")
    path = re.search(r' d="([^"]*)"', svg)
    assert path is not None and path[1].count("M") == 2
    assert "nan" not in svg and "<b>" not in svg
    assert "circle" in svg and "circle" not in sparkline([np.full(3, np.nan)], [0], first="0", last="2")
    assert sparkline([np.ones(4), np.ones(2)], [0, 1], bars=True, first="0", last="3").count("<rect") == 6


def test_sparklines_of_unequal_lengths_share_their_indices() -> None:
    svg = sparkline([np.arange(7.0), np.arange(3.0)], [2, 2], first="0", last="6")
    places = re.findall(r'<circle cx="([^"]*)"', svg)
    assert len(places) == 2 and places[0] == places[1]


def test_a_tidy_table_is_the_reading_value_by_value() -> None:
    values = np.arange(6.0).reshape(1, 2, 3)
    labels = {"layer": ("4",), "head": ("0", "1"), "token": ("(0) <s>", "(1) a", "(2) a")}
    reading = Reading(MEASURES["entropy"], values, labels, {"score": "l2"})
    table = tables.tidy({"A": reading, "B": reading})
    assert len(table) == 12 and list(table["value"][:6]) == list(values.ravel())
    row = table[(table["checkpoint"] == "B") & (table["head"] == 1) & (table["token"] == 2)].iloc[0]
    assert row["value"] == values[0, 1, 2] and row["token_label"] == "(2) a" and row["layer_label"] == "4"
    assert tables.tidy(lambda: reading).equals(tables.tidy(reading))


def test_no_cell_of_a_csv_is_a_formula() -> None:
    attacks = ["=1+1", "+SUM(A1)", "-2+3", "@x", "\t=1", " =1", "\uff1d1", "\r", '=HYPERLINK("x")']
    plain = ["word", "-1.5", "+2", "-", "1e-3", "a=b", "", "\u2581the"]
    frame = pd.DataFrame({"=token": attacks + plain, "value": np.arange(len(attacks + plain)) - 4.0})
    rows = [*csv.reader(io.StringIO(tables.csv(frame).decode(), newline=""))]
    assert rows[0] == ["'=token", "value"]
    assert [row[0] for row in rows[1:]] == [f"'{text}" for text in attacks] + plain
    assert [float(row[1]) for row in rows[1:]] == list(frame["value"])
    mixed = pd.DataFrame({"either": ["=1", -2.0, None]})
    assert tables.csv(mixed).decode().split() == ["either", "'=1", "-2.0", '""']

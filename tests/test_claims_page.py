"""The claims page without a browser: what is asked, found, kept, stopped, drawn and taken away."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from app import answers, claims_findings, claims_results, claims_table
from app.claims_findings import Asked, judged, key_of
from app.claims_panels import frame_of
from app.figures import claims as figures
from app.kept import BUDGET
from app.request import Request
from fbt_core.claims import CLAIMS, VERDICTS, Chart, Claim, Curve, Finding, Mark
from fbt_core.claims.evidence import Unavailable
from fbt_core.sample import sample_text
from tests.test_pages import complaints, opened, stand_ins  # noqa: F401  (a fixture)

CHART = Chart(
    "Cost <b>", "rank r", "FLOP", (
        Curve("counted", np.array([1.0, 2.0]), np.array([2.0, 3.0]), style="points"),
        Curve("1 + r", np.array([1.0, 8.0]), np.array([2.0, 9.0]), np.array([1.0, 8.0]), np.array([3.0, 10.0])),
    ), (Mark("y", 100.0, "threshold"), Mark("x", math.nan, "none")), log_x=True,
)  # fmt: skip


def invented(verdict: str, statistic: float) -> Finding:
    grid = np.array([[0.5, -1.0], [np.nan, 2.0]])
    return Finding(verdict, statistic, f"<b>It {verdict}</b>.", "Another.", grid, "statistic", (("n", statistic, ""),),
                   (CHART,), ("A note.",))  # fmt: skip


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every claim answered at once, and the order in which they were asked for. The evidence itself is real."""
    order: list[str] = []

    def answering(claim: Claim):
        def function(evidence) -> Finding:
            order.append(claim.id)
            if claim.id == "C2":
                raise Unavailable("the stand-in is too small")
            if claim.id == "C3":
                raise RuntimeError("the numbers overflow")
            if claim.id == "C14" and evidence.options.results is not None:
                return invented("holds", 0.25)
            return invented("fails" if claim.id == "C5" else "holds", 0.125)

        return replace(claim, function=function)

    monkeypatch.setattr(claims_findings, "CLAIMS", {name: answering(claim) for name, claim in CLAIMS.items()})
    BUDGET.clear()
    return order


def table(test: AppTest) -> list[list[str]]:
    """The cells of the table of verdicts, without their tags."""
    body = next(part.proto.body for part in test.get("html") if 'class="claims"' in part.proto.body)
    rows = re.findall(r"<tr>(.*?)</tr>", body, flags=re.S)[1:]
    return [[re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<td.*?>(.*?)</td>", row, flags=re.S)] for row in rows]


def checked(**query: str) -> AppTest:
    test = opened("claims", **query)
    assert complaints(test) == []
    return test.button(key="claims-check").click().run()


def test_nothing_is_checked_unasked_and_every_claim_once(asked_for: list[str]) -> None:
    test = opened("claims", a="demo:riemannian")
    assert [row[0] for row in table(test)] == list(CLAIMS) and all(row[2] == "…" for row in table(test))
    assert asked_for == [] and any("not checked yet" in info.value for info in test.info)
    test.button(key="claims-check").click().run()
    assert complaints(test) == []
    assert asked_for == list(CLAIMS)
    assert "claims-check" not in {button.key for button in test.button}
    test.run()
    assert asked_for == list(CLAIMS)  # kept


def test_the_table_has_a_symbol_and_a_word_for_every_verdict(asked_for: list[str]) -> None:
    rows = {row[0]: row for row in table(checked(a="demo:riemannian"))}
    assert (
        rows["C1"][2] == "✓&nbsp;holds" and rows["C5"][2] == "✗&nbsp;fails" and rows["C2"][2] == "–&nbsp;not testable"
    )
    assert rows["C1"][3].startswith("0.125") and rows["C2"][3] == "—"
    assert rows["C2"][5] == "The stand-in is too small."
    assert "overflow" in rows["C3"][5]  # a check that breaks is told in its row, and the others go on
    assert set(claims_table.SYMBOLS) == set(claims_table.COLOURS) == set(VERDICTS)


def test_text_in_a_finding_is_shown_and_not_interpreted(asked_for: list[str]) -> None:
    test = checked(a="demo:riemannian")
    body = next(part.proto.body for part in test.get("html") if 'class="claims"' in part.proto.body)
    assert "&lt;b&gt;It holds" in body and "<b>It" not in body


def test_two_checkpoints_stand_side_by_side(asked_for: list[str]) -> None:
    test = checked(a="demo:riemannian", b="demo:l2")
    assert complaints(test) == [] and asked_for == [name for name in CLAIMS for _ in range(2)]
    assert all(len(row) == 7 for row in table(test))
    charts = [json.loads(chart.proto.spec) for chart in test.get("plotly_chart")]
    assert len(charts) == 4  # a chart and a map a side
    assert charts[2]["data"][0]["zmin"] == charts[3]["data"][0]["zmin"] == -2


def test_stop_keeps_what_was_found(asked_for: list[str]) -> None:
    """Some findings are what a stopped run leaves; the button then asks for the rest alone."""
    request = Request("demo:riemannian", "the old sailor near the ships sings")
    asked = Asked(request, sample_text(), 256)
    for name, verdict in (("C1", "holds"), ("C4", "fails")):
        answers.finding(asked, name, lambda verdict=verdict: invented(verdict, 1.0))
    test = opened("claims", a="demo:riemannian")
    assert test.button(key="claims-check").label == f"Check the other {len(CLAIMS) - 2} claims"
    test.button(key="claims-check").click().run()
    assert asked_for == [name for name in CLAIMS if name not in ("C1", "C4")]


def test_the_text_is_the_bundled_one_or_the_sidebars(asked_for: list[str]) -> None:
    test = checked(a="demo:riemannian")
    test.button_group(key="claims-text").set_value("sidebar").run()
    assert all(row[2] == "…" for row in table(test))  # another question
    test.button(key="claims-check").click().run()
    assert complaints(test) == [] and len(asked_for) == 2 * len(CLAIMS)


def test_every_claim_opens(asked_for: list[str]) -> None:
    test = checked(a="demo:riemannian")
    for name, claim in CLAIMS.items():
        test.button_group(key="claim").set_value(name).run()
        assert complaints(test) == []
        assert test.subheader[0].value == f"{name} · {claim.title}"
        assert claim.equation in test.latex[0].value
        told = " ".join(caption.value for caption in test.caption).replace("\\", "")
        assert claim.reason in told and ("What would have changed it" in told)


def test_a_real_check_without_stand_ins() -> None:
    """The page's path from the button to a verdict with nothing invented, on the quickest claims."""
    asked = Asked(Request("demo:riemannian", "the"), "the old sailor near the ships sings " * 12, 48)
    found = judged(asked, CLAIMS["C12"], None)
    assert found.verdict == "holds" and found.statistic < 1e-12
    assert judged(replace(asked, request=Request("demo:l2", "the")), CLAIMS["C10"], None).verdict == "not testable"
    assert "expected at least 2" in judged(replace(asked, text=""), CLAIMS["C12"], None).why


def test_the_sources_metric_is_what_is_checked() -> None:
    request = Request("demo:euclidean", "the", source="local", rank=2, strength=0.5)
    found = answers.evidence(request, "the old sailor near the ships sings " * 4, 16)
    assert found.trace.source == "local" and found.trace.layers[0].given.U.shape[-1] == 2
    assert found.trace.layers[0].given.U.dtype == answers.evidence(request, "the old " * 9, 16).trace.normed.dtype


# ---- what is taken away ----


class Side:
    """As much of a side as the exports read."""

    label, title, name, explained = "=riemannian", "A", "A", None


def test_the_exports_hold_every_finding() -> None:
    one = Asked(Request("demo:riemannian", "x"), "x", 64)
    found = [(Side(), {"C1": invented("holds", 1.0), "C2": invented("not testable", math.nan)}, one)]
    frame = claims_table._frame(found)
    assert list(frame["id"]) == ["C1", "C2"] and list(frame["verdict"]) == ["holds", "not testable"]
    said = json.loads(claims_table._json(found))["checkpoints"][0]
    assert said["tokens"] == 64 and said["claims"][1]["statistic"] is None
    assert said["claims"][0]["grid"] == [[0.5, -1.0], [None, 2.0]]


def test_a_results_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.parquet").write_bytes(b"PAR1 no parquet")
    with pytest.raises(ValueError, match="expected"):
        claims_results.read(tmp_path / "none.parquet")
    assert claims_results.held().rows is None and claims_results.held().digest == ""
    assert key_of("C14", "ab") == "C14 ab" and key_of("C1", "ab") == "C1" == key_of("C1", "")


# ---- figures ----


def test_a_chart_has_its_curves_marks_and_units() -> None:
    figure = figures.chart(CHART, "A & B")
    assert "&lt;b&gt;" in figure.layout.title.text and "A &amp; B" in figure.layout.title.subtitle.text
    assert figure.layout.xaxis.type == "log" and figure.layout.yaxis.type is None
    assert [shape.name for shape in figure.layout.shapes] == ["threshold"]  # a mark without a value is left out
    modes = [trace.mode for trace in figure.data]
    assert modes[0] == "markers" and "lines" in modes
    assert max(max(trace.y) for trace in figure.data) == 100  # the axis reaches the mark
    symbols = {trace.marker.symbol for trace in figure.data if trace.marker.symbol}
    assert len(symbols) == 2


@pytest.mark.parametrize("style", figures.STYLES)
def test_every_style_is_drawn_with_its_bounds(style: str) -> None:
    x, y = np.arange(3.0), np.array([1.0, 2.0, 3.0])
    figure = figures.chart(Chart("t", "x", "y", (Curve("c", x, y, y - 1, y + 2, style),), note="what-if: none"))
    if style == "line":
        assert list(figure.data[0].y) == [3, 4, 5, 2, 1, 0]
    else:
        assert list(figure.data[0].error_y.array) == [2, 2, 2] and list(figure.data[0].error_y.arrayminus) == [1, 1, 1]
    assert "what-if" in figure.layout.title.subtitle.text and "span" in figure.layout.title.subtitle.text


def test_maps_are_symmetric_where_signs_differ_and_of_one_scale() -> None:
    a, b = np.array([[0.5, np.nan]]), np.array([[-3.0, 1.0]])
    assert figures.bounds(a, b) == (-3, 3) and figures.bounds(np.array([[1.0, 2.0]])) == (1, 2)
    low, high = figures.bounds(np.full((2, 2), 4.0))
    assert low < 4 < high
    figure = figures.grid(a, "share", ("3",), limits=figures.bounds(a, b))
    assert figure.data[0].zmin == -3 and figure.data[0].text[0][1] == ""
    assert list(figure.layout.yaxis.ticktext) == ["3"]


def test_a_charts_table_holds_every_point_and_mark() -> None:
    frame = frame_of(CHART)
    assert len(frame) == 6 and set(frame["curve"]) == {"counted", "1 + r", "threshold", "none"}
    assert frame.loc[frame["curve"] == "threshold", "FLOP"].item() == 100
    assert isinstance(frame, pd.DataFrame) and frame["low"].notna().sum() == 2

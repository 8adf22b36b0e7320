"""Many checkpoints on the depth page: a results file as one figure, coloured by step, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from plotly.colors import sample_colorscale
from streamlit.testing.v1 import AppTest

from app import depth_results
from app.figures import theme
from app.figures.by_step import SEEN, Checkpoint, by_step
from fbt_core.experiments import results
from fbt_core.experiments.rank_file import NUMBERS, TEXTS, read_rank_file
from fbt_core.experiments.ranks import BLOCK, EMBEDDING, FINAL, NAMES

ENTRY = Path(__file__).parent.parent / "streamlit_app.py"
LAYERS = 4
STEPS = (1, 10, 100, 1000)


def rows(checkpoint: str, model: str = "m", step: float = float("nan"), error: str = "") -> pd.DataFrame:
    """Rows as the command writes them, of one variant and treatment: value = 100 layer + step."""
    places = [(EMBEDDING, 0), *((BLOCK, layer) for layer in range(1, LAYERS + 1)), (FINAL, LAYERS)]
    table = [
        {"model": model, "checkpoint": checkpoint, "step": step, "variant": "full", "where": where, "layer": layer,
         "tokens": "raw", "sinks": "kept", "count": 8, "error": error}
        | {name: 100.0 * layer + (step if np.isfinite(step) else 0) for name in NAMES}
        for where, layer in places
    ]  # fmt: skip
    return pd.DataFrame(table)[[*TEXTS, *NUMBERS]]


def drawn(frame: pd.DataFrame) -> list[Checkpoint]:
    return depth_results.checkpoints(frame, "effective_rank", relative=False)


def test_a_line_goes_from_the_embedding_through_the_blocks_to_the_final_norm() -> None:
    (one,) = drawn(rows("a", step=7.0).sample(frac=1, random_state=0))
    np.testing.assert_array_equal(one.series.x, [0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(one.series.y, [7, 107, 207, 307, 407, 407])
    assert one.series.names[0] == "embedding" and one.series.names[-1] == "after the final norm" and one.series.final
    (relative,) = depth_results.checkpoints(rows("a"), "mu", relative=True)
    np.testing.assert_allclose(relative.series.x[:-1], np.linspace(0, 1, LAYERS + 1))


def test_colour_follows_the_logarithm_of_the_step_and_dash_the_model() -> None:
    frame = pd.concat([rows(f"{model}{step}", model, float(step)) for model in "ab" for step in STEPS])
    figure = by_step(drawn(frame), "title", "x", "y")
    lines = [trace for trace in figure.data if trace.x[0] is not None and len(trace.x) == LAYERS + 1]
    low, high = SEEN[False]
    share = np.log1p(STEPS) - np.log1p(STEPS[0])
    expected = sample_colorscale(theme.SEQUENTIAL, list(low + (high - low) * share / share[-1]))
    assert [trace.line.color for trace in lines] == [*expected] * 2
    assert [trace.line.dash for trace in lines] == [theme.DASHES[0]] * 4 + [theme.DASHES[1]] * 4
    bar = next(trace for trace in figure.data if trace.marker.showscale).marker.colorbar
    assert [*bar.ticktext] == ["1", "10", "100", "1,000"] and "log" in bar.title.text
    assert [trace.name for trace in figure.data if trace.showlegend is not False] == ["a", "b"]


def test_steps_that_span_little_are_coloured_evenly() -> None:
    figure = by_step(drawn(pd.concat([rows(f"{step}", "m", step) for step in (100.0, 150.0, 200.0)])), "t", "x", "y")
    bar = next(trace for trace in figure.data if trace.marker.showscale).marker.colorbar
    assert [*bar.tickvals] == [0.0, 0.5, 1.0] and "log" not in bar.title.text


def test_without_two_steps_of_one_model_colour_tells_checkpoints_and_names_are_no_markup() -> None:
    figure = by_step(drawn(pd.concat([rows("<b>a</b>", "a", 2500.0), rows("b", "b", 2500.0)])), "t", "x", "y")
    assert [trace.line.color for trace in figure.data if trace.showlegend is not False] == [*theme.CATEGORIES[:2]]
    assert figure.data[0].name == "&lt;b&gt;a&lt;/b&gt;"


def test_of_very_many_steps_some_are_drawn_first_and_last_among_them() -> None:
    found = drawn(pd.concat([rows(f"c{step}", "m", float(step)) for step in range(100)]))
    kept, said = depth_results._some(found)
    assert len(kept) == depth_results.MOST_LINES and "40 of 100" in said
    assert (kept[0].step, kept[-1].step) == (0, 99)
    assert len(depth_results.table(found, "mu")) == 100 * (LAYERS + 2)


@pytest.fixture
def page() -> AppTest:
    """The depth page, opened as by a link."""
    test = AppTest.from_file(str(ENTRY), default_timeout=120)
    test.query_params["text"] = "every sailor sings ."
    return test.run().switch_page("pages/depth.py").run()


def give(page: AppTest, frame: pd.DataFrame, tmp_path: Path) -> AppTest:
    results.write(tmp_path / "rows.parquet", frame, {})
    return page.file_uploader(key="ranks-file").set_value(("r.parquet", (tmp_path / "rows.parquet").read_bytes(), ""))


def test_the_page_draws_a_file_lists_what_failed_and_refuses_a_bad_one(page: AppTest, tmp_path: Path) -> None:
    frame = pd.concat(
        [*(rows(f"c{step}", "m", float(step)) for step in STEPS), rows("bad", error="<b>no</b>").iloc[:1]]
    )
    test = give(page, frame, tmp_path).run()
    assert not test.exception and not test.error
    assert any("Colour: step of training" in caption.value for caption in test.main.caption)
    assert any("bad full: <b>no</b>" in text.value for text in test.main.text)
    test.selectbox(key="many-measure").set_value("dong_residual").run()
    assert not test.exception and not test.error
    test.file_uploader(key="ranks-file").set_value(("r.parquet", b"PAR1 and no more", "")).run()
    assert not test.exception and len(test.error) == 1
    assert any("expected a results file" in text.value for text in test.main.text)


def test_only_failures_are_told_as_such(page: AppTest, tmp_path: Path) -> None:
    test = give(page, rows("bad", error="no").iloc[:1], tmp_path).run()
    assert not test.exception and not test.error
    assert [info.value for info in test.info] == ["No checkpoint of this file could be used."]
    assert len(read_rank_file(tmp_path / "rows.parquet")) == 1

"""Dong's four ablations on the depth page: what attention alone makes of the tokens, and what holds them apart."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from app import answers, depth, widgets
from app.depth_panels import FINAL, frame_of, x_title
from app.figures import lines, theme
from app.figures.lines import Series
from app.side import Side
from app.view import View
from fbt_core.measures import MEASURES
from fbt_core.model.ablation import VARIANTS

MEASURE = "dong_residual"

QUICK = 4000
"""Tokens times layers up to which the four passes are run unasked: a second or two."""

CAPTION = (
    "The same model with parts of it left out, on the same text: contributions of the feed-forward are dropped, or the "
    "skip connections, or both; norms and the embedding stay (Dong et al., arXiv 2103.03404, Figure 2). In theory the "
    "residual of attention alone falls doubly exponentially; in float32 what is below about $10^{-6}$ is rounding. "
    "What-if: none but the full model was trained so."
)


def draw(view: View, options: dict[str, str]) -> None:
    """The section: at once where that is quick, else at a click."""
    st.subheader("Attention alone: rank collapse by ablation", anchor=False)
    cost = sum(len(side.tokens) * side.layers for side in view.sides)
    words = f"Run the four ablations ({len(view.sides) * len(VARIANTS)} forward passes)"
    if cost > QUICK and not st.toggle(words, key="ablate", bind="query-params"):
        return
    found = [(side, readings) for side in view.sides if (readings := _readings(side, options))]
    if not found:
        return
    for column, (side, readings) in zip(st.columns(len(found)), found, strict=True):
        with column:
            _panel(side, readings, options, _limits(found))


def _limits(found: list[tuple[Side, dict[str, np.ndarray]]]) -> list[float] | None:
    """The exponents of ten between which two panels stand, so that they can be compared; None leaves one free."""
    drawn = np.concatenate([values.ravel() for _, readings in found for values in readings.values()])
    drawn = np.log10(drawn[np.isfinite(drawn) & (drawn > 0)])
    if len(found) < 2 or not drawn.size:
        return None
    room = 0.05 * max(float(np.ptp(drawn)), 1.0)
    return [float(drawn.min()) - room, float(drawn.max()) + room]


def _readings(side: Side, options: dict[str, str]) -> dict[str, np.ndarray]:
    """Dong's residual after every layer, by variant; empty, with the reason on the page, where parts cannot be left
    out."""
    bar = st.progress(0.0, f"{side.title}: ablations")
    found = {}
    try:
        for done, (name, variant) in enumerate(VARIANTS.items()):
            bar.progress(done / len(VARIANTS), f"{side.title}: {variant.title.lower()}")
            request = side.request.bare
            found[name] = answers.ablated(request, MEASURE, name, stage="out", final=True, **options).values
    except ValueError as reason:
        st.info(f"{widgets.plain(side.title)} cannot be ablated.")
        st.text(str(reason)[:600])
        return {}
    finally:
        bar.empty()
    return found


def _panel(side: Side, readings: dict[str, np.ndarray], options: dict[str, str], limits: list[float] | None) -> None:
    x, names, _ = depth.places(side.layers, "out", False)
    series = [
        Series(VARIANTS[name].title, x, np.where(values > 0, values, np.nan), final=True, names=names)
        for name, values in readings.items()
    ]  # fmt: skip
    measure = MEASURES[MEASURE]
    figure = lines.by_depth(series, side.title, x_title("out", False), theme.axis_title(measure), log=True)
    figure.update_yaxes(range=limits)
    theme.subtitle(figure, f"after each block; tokens {options['tokens']}, sinks {options['sinks']}")
    theme.note(figure, "; ".join(filter(None, [side.what_if_forward, "what-if: all but the full model"])))
    zeros = sum(int((values == 0).sum()) for values in readings.values())
    lost = sum(int((~np.isfinite(values)).sum()) for values in readings.values())
    gone = f" {zeros} values are exactly 0 and are not drawn." if zeros else ""
    gone += f" {lost} values are not finite, where the numbers of a variant overflow or vanish." if lost else ""
    widgets.show(
        figure, lambda: _table(series), f"ablation-{side.name}", f"{theme.caption(measure)} {CAPTION} {FINAL}{gone}",
        f"ablation-{side.name}", height=430,
    )  # fmt: skip


def _table(series: list[Series]) -> pd.DataFrame:
    return frame_of(series, MEASURE).rename(columns={"checkpoint": "variant"})

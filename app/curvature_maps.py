"""Curvature over layers and tokens: maps of each side, B minus A, and the volume by depth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from app import curvature, depth, widgets
from app.curvature import UNIT, Choice, Curved
from app.curvature_panels import joined, omega_unit, table
from app.curvature_truth import extreme
from app.curvature_words import sampled
from app.depth_panels import x_title
from app.figures import curvature as figures
from app.figures import lines, theme
from app.figures.curvature_maps import Panel, maps
from app.figures.signed_log import scale_of
from app.view import View

SIGNS = (
    "Blue: negative, as of a saddle; red: positive, as of a sphere. The framed cell is the sidebar's layer and token."
)

MARKED = " Coloured names: marked tokens."


def draw(view: View, choice: Choice, found: list[Curved]) -> None:
    """Proxy, scalar curvature, extreme sectional curvature and its uncertainty over tokens and layers."""
    several = [layers_by_tokens(one) for one in found]
    bounds = {name: figures.bound([cells[name] for cells in several]) for name in several[0]}
    scales = {name: scale_of([cells[name] for cells in several], choice.log) for name in bounds}
    for column, one, cells in zip(st.columns(len(found)), found, several, strict=True):
        panels = [
            Panel(title, unit, cells[name], bounds[name], signed, scales[name])
            for name, title, unit, signed in (
                ("omega", "Curvature proxy Ω", omega_unit(one, choice), False),
                ("scalar_curvature", "Scalar curvature S", UNIT, True),
                ("extreme", "Extreme sectional curvature K", UNIT, True),
                ("sampling_error", _uncertain(one, choice), UNIT, False),
            )
        ]  # fmt: skip
        place = one.place, min(view.token, len(one.side.tokens) - 1)
        figure = maps(panels, f"Curvature by layer and token · {one.side.title}", one.side.tokens, one.layers,
                      place, view.marked)  # fmt: skip
        over = "mean over the heads" if len(one.heads) > 1 else one.where
        lost = sum(int((~np.isfinite(panel.values)).sum()) for panel in panels)
        told = [over, "signed log colours" if choice.log else ""]
        told += [f"{lost} cells not finite, left empty"] if lost else []
        figures.tell(figure, [joined(told), sampled(one, choice.planes)], one.side.what_if, room=28)
        with column:
            widgets.show(
                figure, lambda one=one: table(one), f"maps-{one.side.name}",
                SIGNS + MARKED * bool(view.marked) + " The same colour scales on both sides." * (len(found) > 1),
                f"curvature-maps-{one.side.name}",
            )  # fmt: skip
            widgets.remarks(list(one.notes))


def difference(view: View, choice: Choice, found: list[Curved]) -> None:
    """B - A of proxy and truth, or why it cannot be had."""
    if not view.compare:
        return
    why = view.mismatch or ("one side has no curvature" if len(found) < 2 else "")
    if not why and len(found[0].layers) != len(found[1].layers):
        why = f"A has {len(found[0].layers)} layers, B {len(found[1].layers)}"
    if why:
        st.caption(f"No difference between A and B: {widgets.plain(why)}.")
        return
    a, b = (layers_by_tokens(one) for one in found)
    named = {
        "omega": ("Curvature proxy Ω", omega_unit(found[0], choice)),
        "scalar_curvature": ("Scalar curvature S", UNIT),
        "extreme": ("Extreme sectional curvature", UNIT),
    }
    panels = [
        Panel(f"{title}, B − A", unit, b[name] - a[name], figures.bound([b[name] - a[name]]), True,
              scale_of([b[name] - a[name]], choice.log))
        for name, (title, unit) in named.items()
    ]  # fmt: skip
    place = found[0].place, view.token
    figure = maps(panels, "B − A by layer and token", view.a.tokens, found[0].layers, place, view.marked)
    over = "mean over the heads" if len(found[0].heads) > 1 else f"A {found[0].where}, B {found[1].where}"
    told = joined([over, "signed log colours" if choice.log else ""])
    figures.tell(figure, [told], view.what_if, room=28)
    frame = pd.concat([table(one) for one in found], ignore_index=True)
    widgets.show(figure, frame, "maps-difference", "On the same text, layer by layer of the same number. A length is "
                 "that of each model's own metric.", "curvature-difference")  # fmt: skip


def volume(view: View, choice: Choice, found: list[Curved]) -> None:
    """log sqrt det g along depth, mean and spread over tokens, and heads; of constant metrics, too."""
    relative = view.compare and view.run.match == "depth"
    readings = {
        side.title: curvature.volume(side, choice)
        for side in view.sides if side.has_metric and (curvature.unavailable(side) or found)
    }  # fmt: skip
    if not readings or not choice.deep:
        return
    series = [depth.spread_series(reading, title, relative) for title, reading in readings.items()]
    figure = lines.by_depth(series, "Volume by depth", x_title("out", relative), "ln √det g (nats)")
    several = any(reading.values.shape[1] > 1 for reading in readings.values())
    over = "heads and tokens" if several else "tokens"
    theme.subtitle(figure, f"mean over {over}, band: 10th to 90th percentile; exact")
    theme.note(figure, view.what_if)
    caption = (
        r"$\ln \sqrt{\det g} = \tfrac12 \ln \det (I + U^\top U)$: by what factor, in nats, the metric swells a volume "
        "at a token."
    )
    widgets.show(
        figure, readings, "volume", caption, "volume-by-depth", height=300 if len(readings) > 1 or not found else 560
    )


def layers_by_tokens(one: Curved) -> dict[str, np.ndarray]:
    """(layer, token) maps: the head's, or the mean over the heads that have a value."""
    parts = {name: one.parts[name] for name in ("omega", "scalar_curvature", "sampling_error")}
    return {name: _mean(values) for name, values in (parts | {"extreme": extreme(one.parts)}).items()}


def _mean(values: np.ndarray) -> np.ndarray:
    good = np.isfinite(values)
    return np.where(good.any(1), np.where(good, values, 0.0).sum(1) / np.maximum(good.sum(1), 1), np.nan)


def _uncertain(one: Curved, choice: Choice) -> str:
    told = "if from" if one.exact else "from"
    return f"Standard error of S {told} {choice.planes} planes"

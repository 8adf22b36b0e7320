"""The panels of the depth page: figures, their tables and captions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import streamlit as st

from app import depth, loading, uploads, widgets
from app.figures import lines, theme
from app.figures.lines import Series
from app.request import Request
from app.view import View
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.measures import MEASURES

Drawn = tuple[str, Request, int]
"""Label, request, layers: one line of a figure."""

FINAL = "Star after a dotted line: the residual after the final norm; a jump there is the norm's doing."


def drawn(view: View, also: tuple[str, ...]) -> list[Drawn]:
    """The sides, then the other bundled checkpoints asked for, on the same text."""
    found = [(side.title, side.request.bare, side.layers) for side in view.sides]  # no source touches the residuals
    for reference in also:
        try:
            loaded = loading.checkpoint(reference)
        except CheckpointError as fault:
            st.caption(f"{widgets.plain(uploads.label_of(reference))}: {widgets.plain(str(fault))}")
            continue
        request = Request(reference, view.run.text, 1.0, view.run.device)  # as trained: the slider is of the sides
        found.append((uploads.label_of(reference), request, loaded.config.layers))
    return found


def residual_panel(
    view: View, also: tuple[str, ...], name: str, stage: str, texts: int, options: dict[str, str], *, key: str,
    log: bool = False,
) -> None:  # fmt: skip
    """A measure of the residual stream by depth, a line a checkpoint."""
    measure, relative = MEASURES[name], view.compare and view.run.match == "depth"
    entries = drawn(view, also)
    if texts:
        series, table = _banded(entries, name, stage, texts, options, relative)
    else:
        series = [
            depth.residual_series(request, label, layers, name, stage, relative, **options)
            for label, request, layers in entries
        ]
        table = frame_of(series, measure.name)
    how = f"{depth.STAGES[stage]}; tokens {options['tokens']}, sinks {options['sinks']}"
    figure = lines.by_depth(series, measure.title, x_title(stage, relative), theme.axis_title(measure), log=log)
    theme.subtitle(figure, how)
    theme.note(figure, view.what_if_forward)
    band = f" Mean over {texts} sampled passages, band: 95 % bootstrap interval." if texts else ""
    hollow = " Open markers: after attention, inside a block." if stage == "every" else ""
    widgets.show(figure, table, key, f"{theme.caption(measure)} {FINAL}{hollow}{band}", f"{name}-by-depth")
    _remarks(entries, name, stage, options)


def difference_panel(view: View, name: str, stage: str, options: dict[str, str]) -> None:
    """B - A by depth, or why it cannot be had."""
    a, b = view.sides
    if a.layers != b.layers:
        st.caption(f"No difference by layer: A has {a.layers} layers, B {b.layers}. Lines above share their axes.")
        return
    if view.mismatch:
        st.caption(f"No difference: {view.mismatch}.")
        return
    for column, shown in zip(st.columns(2), dict.fromkeys((name, "dong_residual")), strict=False):
        with column:
            _difference(view, shown, stage, options)


def _difference(view: View, name: str, stage: str, options: dict[str, str]) -> None:
    measure, (a, b) = MEASURES[name], view.sides
    values = [depth.residual_values(side.request.bare, name, stage, **options)[:-1] for side in view.sides]
    x, names, _ = depth.places(a.layers, stage, False)
    unit = f"B − A ({measure.unit or 'dimensionless'})"
    figure = lines.difference(x[:-1], values[1] - values[0], f"{measure.title}, B − A", x_title(stage, False), unit)
    theme.note(figure, view.what_if_forward)
    table = pd.DataFrame({"where": names[:-1], "A": values[0], "B": values[1], "B - A": values[1] - values[0]})
    caption = f"{widgets.plain(b.title)} minus {widgets.plain(a.title)}, on the same text."
    widgets.show(figure, table, f"difference-{name}", caption, f"{name}-difference")


def spread_panel(view: View, name: str, *, key: str) -> None:
    """A measure with values for heads and tokens: its mean a layer, and a band of its spread."""
    measure, relative = MEASURES[name], view.compare and view.run.match == "depth"
    readings = {side.title: side.by_layer(name) for side in view.sides}
    series = [depth.spread_series(reading, label, relative) for label, reading in readings.items()]
    figure = lines.by_depth(series, measure.title, x_title("out", relative), theme.axis_title(measure))
    over = "heads and tokens" if "token" in measure.axes else "heads"
    theme.subtitle(figure, f"mean over {over}, band: 10th to 90th percentile")
    theme.note(figure, view.what_if_of(name))
    widgets.show(figure, readings, key, theme.caption(measure), f"{name}-by-layer")
    notes = {f"{label}: {note}" for label, reading in readings.items() for note in reading.notes}
    widgets.remarks(sorted(notes))


def x_title(stage: str, relative: bool) -> str:
    """The horizontal axis: layers count from 0; blocks passed when every stage is drawn."""
    if relative:
        ends = "0 the embedding, 1 the last block's output" if stage == "every" else "0 the first layer, 1 the last"
        return f"relative depth ({ends})"
    return "blocks passed (0 is the embedding)" if stage == "every" else "layer (counted from 0)"


def frame_of(series: list[Series], name: str) -> pd.DataFrame:
    """What is drawn, a row a point."""
    rows = [
        {"checkpoint": one.label, "where": where, "depth": x, name: y}
        | ({} if one.low is None or one.high is None else {"low": one.low[index], "high": one.high[index]})
        for one in series
        for index, (where, x, y) in enumerate(zip(one.names, one.x, one.y, strict=True))
    ]
    return pd.DataFrame(rows)


def _banded(
    entries: list[Drawn], name: str, stage: str, texts: int, options: Mapping[str, str], relative: bool
) -> tuple[list[Series], pd.DataFrame]:
    """Mean and interval over sampled passages. The progress bar is where the app's Stop takes effect."""
    bar = st.progress(0.0, f"Sampling {texts} passages")
    series, done = [], 0
    for label, request, layers in entries:
        rows = []
        for values in depth.over_texts(request, texts, name, stage, **options):
            rows.append(values)
            done += 1
            bar.progress(done / (texts * len(entries)), f"{name}: passage {done} of {texts * len(entries)}")
        mean, low, high = depth.bootstrap(np.array(rows))
        x, names, hollow = depth.places(layers, stage, relative)
        series.append(Series(label, x, mean, low, high, final=True, hollow=hollow, names=names))
    bar.empty()
    return series, frame_of(series, name)


def _remarks(entries: list[Drawn], name: str, stage: str, options: dict[str, str]) -> None:
    read = "out" if stage == "every" else stage
    notes = []
    for label, request, _ in entries:
        notes += [f"{label}: {note}" for note in depth.residual_reading(request, name, read, **options).notes]
    widgets.remarks(notes)

"""Many checkpoints on the depth page: the rows that ``python -m fbt_core ranks`` wrote, as one figure."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from app import results_file, widgets
from app.depth_panels import FINAL as STAR
from app.depth_panels import x_title
from app.figures import theme
from app.figures.by_step import Checkpoint, by_step, has_steps
from app.figures.lines import Series
from fbt_core.experiments.rank_file import BOUNDS, read_rank_file
from fbt_core.experiments.ranks import BLOCK, EMBEDDING, FINAL, NAMES, SINKS, TOKENS
from fbt_core.measures import MEASURES
from fbt_core.model.ablation import VARIANTS

MOST_LINES = 40
"""Lines of one figure; of more checkpoints, this many are drawn, evenly from the first to the last."""

MOST_CATEGORIES = 7
"""Without steps, a line is told by its colour, dash and symbol, of which there are so many."""

LONGEST_NAME = 60
FALLING = ("dong_residual", "mu")
"""Measures that fall by orders of magnitude: on a log axis."""


def draw() -> None:
    """The section: a file is asked for, then drawn."""
    st.subheader("Many checkpoints: a results file", anchor=False)
    frame = chosen()
    if frame is None:
        st.caption(
            "`python -m fbt_core ranks CHECKPOINT... --out rows.parquet` measures any number of checkpoints, or the "
            "steps of a training, on one text; `--ablations` adds Dong's. Open its file here."
        )
        return
    used = frame[frame["error"] == ""]
    if used.empty:
        st.info("No checkpoint of this file could be used.")
    else:
        _figure(used)
    faults = frame.loc[frame["error"] != "", ["checkpoint", "variant", "error"]].drop_duplicates()
    told = [" ".join(filter(None, row[:2])) + f": {row[2]}" for row in faults.itertuples(index=False)]
    widgets.remarks([line[:400] for line in told[:200]])


def chosen() -> pd.DataFrame | None:
    """The rows of the file that the visitor chose, or None. Raises ``ValueError`` for one that cannot be used."""
    return results_file.chosen("Results of `fbt_core ranks`", "ranks-file", BOUNDS.bytes, "", read_rank_file)


def _figure(frame: pd.DataFrame) -> None:
    name, options, relative = _choices(frame)
    part = frame
    for column, value in options.items():
        part = part[part[column] == value]
    found = checkpoints(part, name, relative)
    drawn, left_out = _some(found)
    if not drawn:
        st.info("No checkpoint of this file was measured so, or none is chosen.")
        return
    measure, variant = MEASURES[name], VARIANTS[options["variant"]]
    figure = by_step(
        drawn,
        measure.title,
        x_title("every", relative),
        theme.axis_title(measure),
        log=name in FALLING,
        dark=widgets.is_dark(),
    )
    counts = part["count"].dropna()
    length = f"{counts.min():.0f} to {counts.max():.0f}" if counts.nunique() > 1 else f"{counts.max():.0f}"
    how = f"{variant.title.lower()}; {length} tokens, {options['tokens']}, sinks {options['sinks']}"
    theme.subtitle(figure, f"{how}; {len(drawn)} checkpoints" + (f" of {len(found)}" if left_out else ""))
    theme.note(figure, "what-if: the models were trained whole" if variant.name != "full" else "")
    colour = "Colour: step of training; dash and symbol: model. " if has_steps(drawn) else ""
    caption = f"{theme.caption(measure)} {colour}{STAR}{left_out}"
    widgets.show(figure, lambda: table(found, name), "many", caption, f"{name}-of-many", height=480)


def _choices(frame: pd.DataFrame) -> tuple[str, dict[str, str], bool]:
    """What is drawn: the measure, the columns that say how it was taken, and whether depth is relative."""

    def choose(label: str, options: list[str], key: str) -> str:
        return st.segmented_control(label, options, default=options[0], required=True, key=f"many-{key}")

    variants = [name for name in VARIANTS if (frame["variant"] == name).any()]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox(
            "Measure by depth", NAMES, key="many-measure", format_func=lambda one: MEASURES[one].title, width=200
        )
        variant = st.selectbox(
            "What runs", variants, key="many-variant", format_func=lambda one: VARIANTS[one].title, width=290
        )
        tokens = choose("Tokens", [*TOKENS], "tokens")
        sinks = choose("Sink tokens", [*SINKS], "sinks")
        depth = choose("Depth", ["blocks", "relative"], "depth")
    return name, {"variant": variant, "tokens": tokens, "sinks": sinks}, depth == "relative"


def checkpoints(part: pd.DataFrame, name: str, relative: bool) -> list[Checkpoint]:
    """The lines, in the file's order: rows of one variant and one way to take the tokens."""
    found = []
    for label, rows in part.groupby("checkpoint", sort=False):
        inside = rows[rows["where"].isin([EMBEDDING, BLOCK])].sort_values("layer")
        x, y = inside["layer"].to_numpy(), inside[name].to_numpy()
        depth = max(float(x.max(initial=1.0)), 1.0)
        names = [f"after block {layer:.0f}" if layer else "embedding" for layer in x]
        last = rows.loc[rows["where"] == FINAL, name].to_numpy()[:1]
        x = np.append(x, depth + max(depth / 10, 1.0))[: len(x) + len(last)] / (depth if relative else 1.0)
        series = Series(
            str(label)[:LONGEST_NAME], x, np.append(y, last), final=bool(len(last)),
            names=(*names, *["after the final norm"][: len(last)]),
        )  # fmt: skip
        found.append(Checkpoint(series, str(rows["model"].iloc[0])[:LONGEST_NAME], float(rows["step"].iloc[0])))
    return found


def _some(found: list[Checkpoint]) -> tuple[list[Checkpoint], str]:
    """Those that one figure can tell apart, and a sentence on the others; empty where there are none."""
    most = MOST_LINES if has_steps(found) else MOST_CATEGORIES
    if len(found) <= most:
        return found, ""
    if not has_steps(found):
        names, places = [one.series.label for one in found], range(len(found))  # names cut short may be the same
        wanted = st.multiselect(
            "Checkpoints", places, default=places[:most], max_selections=most, key="many-checkpoints",
            format_func=names.__getitem__,
        )  # fmt: skip
        return [found[place] for place in sorted(wanted)], " Not all checkpoints are drawn."
    kept = np.unique(np.linspace(0, len(found) - 1, most).round().astype(int))
    return [found[place] for place in kept], f" {len(kept)} of {len(found)} are drawn, evenly by their order."


def table(found: list[Checkpoint], name: str) -> pd.DataFrame:
    """A row a point of all lines, those that are not drawn as well."""
    rows = [
        {"model": one.model, "checkpoint": one.series.label, "step": one.step, "where": where, "depth": x, name: y}
        for one in found
        for where, x, y in zip(one.series.names, one.series.x, one.series.y, strict=True)
    ]
    return pd.DataFrame(rows)

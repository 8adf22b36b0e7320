"""The panels of the weights page. Tensor names are of a file's choosing: tables and escaped figure text only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from app import answers, loading, uploads, weights, weights_numbers, weights_spectrum, widgets
from app.figures import spectra
from fbt_core.checkpoints import Checkpoint
from fbt_core.checkpoints.faults import CheckpointError

SPECTRUM = (
    r"Singular values $\sigma_k$ of the stored matrix. Dashed and dotted: the law of Marchenko and Pastur (1967) for "
    r"independent entries of the same mean square $s^2$, whose singular values lie in "
    r"$s\,[\,|\sqrt m-\sqrt n|,\ \sqrt m+\sqrt n\,]$. What stands above is structure that a random matrix has not."
)
VALUES = "Density of the stored values; dashed: a Gaussian of the same mean and spread. Heavy tails stand above it."
NORMS = (
    r"$\|W\|_F/\sqrt{mn}$ of tensors whose names differ in the layer's number alone (#). Layers without such a tensor "
    "are left out."
)

COLUMNS = {
    "name": st.column_config.TextColumn("tensor", width="large"),
    "numbers": st.column_config.NumberColumn("numbers", format="localized"),
    **{name: st.column_config.NumberColumn(name, format="%.4g") for name in ("norm", "rms", "min", "max")},
    "remarks": st.column_config.TextColumn("remarks", width="medium"),
}


@dataclass(frozen=True)
class Stored:
    """One side of the page."""

    name: str
    reference: str
    checkpoint: Checkpoint

    @property
    def title(self) -> str:
        """``A · riemannian``."""
        return f"{self.name} · {uploads.label_of(self.reference)}"


def sides() -> list[Stored]:
    """What the run names and this server can open. What is wrong with the rest the sidebar has said."""
    found = []
    for name, reference in zip("AB", map(uploads.stamped, st.session_state["run"].references), strict=False):
        try:
            found.append(Stored(name, reference, loading.checkpoint(reference)))
        except CheckpointError:
            continue
    return found


def tensors(side: Stored) -> pd.DataFrame:
    """The table of one side; its rows."""
    with st.spinner("Reading every tensor"):
        rows = answers.of_weights(side.reference, weights_numbers.table)
    remarkable = int((rows["remarks"] != "").sum())
    said = f"{len(rows):,} tensors · {int(rows['numbers'].sum()):,} numbers · {remarkable:,} with remarks"
    st.markdown(f"**{widgets.plain(side.title)}** · {said}")
    if side.checkpoint.config is None:
        st.caption("Weights only: without a configuration there is no model to run, so the other pages stay empty.")
    widgets.remarks(list(side.checkpoint.notices))
    order = rows.sort_values("remarks", key=lambda column: column == "", kind="stable") if remarkable else rows
    st.dataframe(
        order, hide_index=True, column_config=COLUMNS, height=36 * min(len(rows) + 1, 10), key=f"tensors-{side.name}"
    )
    return rows


def chosen(shown: list[Stored]) -> list[tuple[Stored, str]]:
    """The tensor to look at on each side: B's is A's own where it has one of that name."""
    picked = []
    for column, side in zip(st.columns(len(shown)), shown, strict=True):
        known = weights.names(side.checkpoint)
        same = picked[0][1] if picked and picked[0][1] in known else weights.first_choice(side.checkpoint)
        if not known or same is None:
            continue
        key = f"matrix-{side.name}"
        if st.session_state.get(key) not in known:
            st.session_state[key] = same
        label = "Tensor" if len(shown) == 1 else f"Tensor of {side.name}"
        with column:
            name = st.selectbox(label, known, key=key, format_func=weights.visible_name)
        picked.append((side, name))
    return picked


Measured = list[tuple[Stored, str, weights_spectrum.Spectrum]]


def measured(picked: list[tuple[Stored, str]]) -> Measured:
    """The spectra of what was chosen, with their summary on the page, or why there are none."""
    found = [(side, name, s) for side, name in picked if (s := _spectrum(side, name)) is not None]
    for side, _, s in found:
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            for title, value in summary(s).items():
                st.metric(f"{side.name}: {title}" if len(picked) > 1 else title, value, width="content")
    return found


def summary(s: weights_spectrum.Spectrum) -> dict[str, str]:
    """A spectrum in six numbers."""
    top, bottom = (float(s.values[0]), float(s.values[-1])) if len(s.values) else (0.0, 0.0)
    return {
        "Shape": " × ".join(map(str, s.shape)), "Largest σ": f"{top:.4g}", "Stable rank": f"{s.stable_rank:.1f}",
        "Effective rank": f"{s.effective_rank:.1f}", "Beyond the random edge": f"{s.beyond:,} of {len(s.values):,}",
        "Condition": f"{top / bottom:.3g}" if bottom > 1e-15 * top * max(s.shape) else "∞",
    }  # fmt: skip


def spectrum(picked: list[tuple[Stored, str]], found: Measured) -> None:
    """Singular values against those of random matrices."""
    drawn, frames = [], []
    for side, name, s in found:
        label = _label(picked, side, name)
        random = s.random()
        drawn.append(spectra.Values(label, s.values, random, s.edges))
        rank = np.arange(1, len(s.values) + 1)
        columns = {"side": side.title, "tensor": name, "k": rank, "sigma": s.values, "random": random}
        frames.append(pd.DataFrame(columns))
    notes = " ".join(f"{side.name}: {s.note}." for side, _, s in found if s.note)
    figure = spectra.spectrum(drawn, "Singular values")
    widgets.show(figure, pd.concat(frames), "spectrum", " ".join([SPECTRUM, notes]), "singular-values")


def _spectrum(side: Stored, name: str) -> weights_spectrum.Spectrum | None:
    work = weights_spectrum.cost(side.checkpoint, name)
    if work > weights_spectrum.QUICK and not st.toggle(
        f"Compute the spectrum of {side.name}: {work:.0e} multiplications, a minute or more", key=f"want-{side.name}"
    ):
        return None
    try:
        return answers.of_weights(side.reference, weights_spectrum.spectrum, name=name)
    except CheckpointError as fault:
        st.text(f"{side.name} has no spectrum here: got {fault.got}; expected {fault.expected}. {fault.remedy}")
        return None


def values(picked: list[tuple[Stored, str]]) -> None:
    """The values themselves."""
    drawn, frames = [], []
    for side, name in picked:
        counts, edges = answers.of_weights(side.reference, weights_numbers.histogram, name=name)
        if len(counts):
            drawn.append(spectra.Counts(_label(picked, side, name), counts, edges))
            columns = {"side": side.title, "tensor": name, "from": edges[:-1], "to": edges[1:], "count": counts}
            frames.append(pd.DataFrame(columns))
    if drawn:
        widgets.show(spectra.histogram(drawn, "Values"), pd.concat(frames), "values", VALUES, "values")
    else:
        st.info("No finite value to draw.")


def norms(shown: list[Stored], rows: list[pd.DataFrame]) -> None:
    """Norms by layer, a figure a side, on one scale."""
    tables = [weights_numbers.by_layer(table) for table in rows]
    kinds = (
        pd.concat(tables).groupby("pattern", sort=False).agg(layers=("layer", "nunique"), numbers=("numbers", "max"))
    )
    kinds = kinds[kinds["layers"] > 1]
    if kinds.empty:
        st.caption("No two tensors here have names that differ in a layer's number alone.")
        return
    largest = list(kinds.sort_values("numbers", ascending=False, kind="stable").index[:6])
    picked = st.multiselect("Kinds of tensor", list(kinds.index), default=largest, key="kinds", max_selections=7)
    found = [table[table["pattern"].isin(picked) & (table["rms"] > 0)] for table in tables]
    every = pd.concat(found)
    if every.empty:
        return
    bounds = (float(every["rms"].min()), float(every["rms"].max()))
    for column, side, table in zip(st.columns(len(shown)), shown, found, strict=True):
        series = []
        for kind in picked:
            lines = table[table["pattern"] == kind].sort_values("layer")
            if len(lines):
                series.append(spectra.Norms(kind, lines["layer"].to_numpy(), lines["rms"].to_numpy()))
        with column:
            title = "Root mean square by layer" + (f" · {side.title}" if len(shown) > 1 else "")
            widgets.show(spectra.norms(series, title, bounds), table, f"norms-{side.name}", NORMS, "norms-by-layer")


def _label(picked: list[tuple[Stored, str]], side: Stored, name: str) -> str:
    shown = weights.visible_name(name)
    return f"{side.name}: {shown}" if len(picked) > 1 else shown

"""What each symbol, measure, score and option means: the same rows that the numbers come from."""

from __future__ import annotations

import streamlit as st

from app import frame
from fbt_core.attention.decompose import TERMS
from fbt_core.attention.scores import SCORES
from fbt_core.geometry.sources import SOURCES
from fbt_core.measures import GEOMETRY, MEASURES, OPTIONS, Measure
from fbt_core.model.ablation import VARIANTS

SYMBOLS = {
    r"i,\ j": "a query (row of attention) and a key (column); tokens, layers and heads count from 0",
    r"L,\ H": "number of tokens of the text, heads a layer",
    r"D,\ d = D / H": "width of the residual stream, width of one head",
    r"X": "residual stream of one layer, a token a row",
    r"q_i,\ k_j,\ v_j": "gated query, gated key, value of one head",
    r"U_t": "the d × r factor that MetricNet gives token t (after the ceiling and the strength slider)",
    r"g_t = I + U_t U_t^\top": "the metric of token t, one a head; r is its rank",
    r"A_t = U_t U_t^\top,\ K_t = U_t^\top U_t": "what the metric adds to the identity, and its r × r Gram matrix",
    r"\tau": "temperature of squared distance, one a head",
    r"\Omega_j": "curvature proxy, subtracted from column j: a bias, not a curvature",
    r"T_t": "torsion proxy, an antisymmetric matrix; this connection is pure gauge, its holonomy is zero",
    r"a_{ij}": "attention: the softmax over keys j of the scores of query i",
}

GROUPS = {
    "The residual stream by layer": ("layer",),
    "The metric and attention by token": ("layer", "head", "token"),
    "Attention by head": ("layer", "head"),
    "Terms of the score": ("layer", "head", "term"),
}


def entry(row: Measure) -> None:
    """One measure: its equation, and what it is counted in."""
    with st.container(border=True):
        st.markdown(f"**{row.title}** · `{row.name}`")
        st.latex(f"{row.symbol} = {row.equation}")
        st.caption(f"unit {row.unit or 'none (a pure number)'} · range {row.range} · {row.source}")


def two_columns(rows: list[Measure]) -> None:
    """Entries side by side."""
    for start in range(0, len(rows), 2):
        for column, row in zip(st.columns(2), rows[start : start + 2], strict=False):
            with column:
                entry(row)


frame.open_text_page("Glossary")
st.markdown(
    "\n".join(["| symbol | meaning |", "|---|---|", *(f"| ${key}$ | {text} |" for key, text in SYMBOLS.items())])
)
st.subheader("Scores", anchor=False)
st.caption("A score is softmaxed over the keys. All read the same gated q and k, so that only the score differs.")
for column, score in zip(st.columns(2) * len(SCORES), SCORES.values(), strict=False):
    with column.container(border=True):
        st.markdown(f"**{score.title}** · `{score.name}`" + (" · reads the metric" if score.reads_metric else ""))
        st.latex(f"s_{{ij}} = {score.formula}")
for title, axes in GROUPS.items():
    rows = [row for row in MEASURES.values() if row.axes == axes]
    if rows:
        st.subheader(title, anchor=False)
        two_columns(rows)
st.subheader("The metric as a function of the residual stream", anchor=False)
st.caption("What the proxies are called, and are not: here the model is asked again, at points beside the tokens.")
two_columns(list(GEOMETRY.values()))
st.subheader("Where a metric comes from, for a model that has none", anchor=False)
st.caption(
    "All are what-ifs: the model was not trained with the metric and does not run with it. U is scaled to a mean tr K "
    "of 1 a layer, times the strength; the temperature stays that of the model's own dot product, tau = 2 / scale."
)
for column, source in zip(st.columns(2) * len(SOURCES), SOURCES.values(), strict=False):
    with column.container(border=True):
        st.markdown(f"**{source.title}** · `{source.name}`")
        st.latex(source.formula)
        st.caption(f"{source.source} · cost {source.cost} · memory {source.memory}")
st.subheader("Dong's ablations", anchor=False)
kept = {True: "kept", False: "left out"}
rows = [f"| {variant.title} | {kept[variant.skip]} | {kept[variant.feed_forward]} |" for variant in VARIANTS.values()]
st.markdown("\n".join(["| variant | skip connections | feed-forward |", "|---|---|---|", *rows]))
st.subheader("Terms of the Riemannian score", anchor=False)
st.markdown("\n".join(["| term | formula |", "|---|---|", *(f"| {t.title} | ${t.formula}$ |" for t in TERMS.values())]))
st.subheader("Options of measures", anchor=False)
st.table(
    {"option": [o.name for o in OPTIONS.values()], "default": [str(o.default) for o in OPTIONS.values()],
     "accepts": [o.expected for o in OPTIONS.values()], "meaning": [o.meaning for o in OPTIONS.values()]}
)  # fmt: skip

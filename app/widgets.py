"""Pieces that every page uses: a figure with its caption and exports, and the selection shared by all pages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from app.components.figure_export import figure_export
from app.figures import theme
from app.kept import BUDGET
from app.side import Side
from app.tables import Table, csv
from app.view import View
from fbt_core.checkpoints.memory import gib
from fbt_core.geometry.sources import WHAT_IF

SENDING = 0.03
"""Seconds that the loop needs: it sends every hundredth of a second, and shares the interpreter with the script."""

PENDING = "_pending"
"""Session state: selections made inside a page. The sidebar takes them up at the start of the next script run."""


THEME = "_theme"
"""Session state: dark or light, as the entry script last found it."""


def is_dark() -> bool:
    """Whether the browser shows the dark theme."""
    return st.session_state.get(THEME, st.context.theme.type) == "dark"


def show(
    figure: go.Figure,
    table: Table,
    key: str,
    caption: str = "",
    name: str = "figure",
    *,
    on_select: Any = "ignore",
    height: int | None = None,
) -> Any:
    """Draw a figure, its caption (markdown with LaTeX) and its exports.

    ``key`` is unique on the page; ``name`` starts the file names. The CSV holds the unpooled data of ``table``.
    Returns the selection event when ``on_select`` asks for one.
    """
    theme.dress(figure, is_dark())
    if height:
        figure.update_layout(height=height)
    with st.container(key=f"figure-{key}"):
        event = st.plotly_chart(figure, width="stretch", theme=None, key=key, on_select=on_select, config=CONFIG)
        below(key, figure, table, caption, name)
    return event


CONFIG = {"displaylogo": False, "responsive": True, "scrollZoom": False}


Twin = go.Figure | Callable[[], go.Figure]
"""A figure, or a function that makes it when someone downloads it."""


def below(key: str, figure: Twin, table: Table, caption: str, name: str, *, seen: bool = True) -> None:
    """The line under a figure: its caption, and the exports.

    A component's page calls this with the Plotly twin as ``figure`` and ``seen=False``: HTML then holds the twin, and
    PNG and SVG are the component's own affair.
    """
    with st.container(horizontal=True, wrap=False, vertical_alignment="top"):
        st.caption(caption)
        with st.popover("Export", type="tertiary"):
            if seen:
                figure_export(key, name)
            exports(key, figure, table, name)


def exports(key: str, figure: Twin, table: Table, name: str) -> None:
    """Self-contained HTML and CSV, made when asked for."""
    dark = is_dark()
    paper = theme.PAPER[dark]

    def page() -> bytes:
        """The figure on the page's colour: on the page itself its paper is transparent."""
        made = go.Figure(figure() if callable(figure) else figure).update_layout(paper_bgcolor=paper)
        return made.to_html(include_plotlyjs=True, config=CONFIG).encode()

    st.download_button(
        "HTML, self-contained", data=page, file_name=f"{name}.html", mime="text/html", on_click="ignore",
        key=f"{key}-html", width="stretch",
    )  # fmt: skip
    st.download_button(
        "CSV, unpooled data", data=lambda: csv(table), file_name=f"{name}.csv",
        mime="text/csv", on_click="ignore", key=f"{key}-csv", width="stretch",
    )  # fmt: skip


def select(**values: int) -> None:
    """Select a token, layer or head everywhere: ``select(layer=2, head=1)``. Reruns when that changes anything.

    Call it with a trigger value (which lives for one script run), not with a component's lasting state: that would
    undo what the user later chooses in the sidebar.
    """
    run = st.session_state["run"]
    changed = {name: int(value) for name, value in values.items() if getattr(run, name) != value}
    if changed:
        st.session_state[PENDING] = {**st.session_state.get(PENDING, {}), **changed}
        st.rerun()


def select_token(index: int) -> None:
    """Select a token everywhere."""
    select(token=index)


def mark(tokens: Iterable[int]) -> None:
    """Mark these tokens on every page, and no others. Reruns when that changes anything; see ``select``."""
    run = st.session_state["run"]
    marked = run.marking(tokens).marked
    if marked != run.marked:
        st.session_state[PENDING] = {**st.session_state.get(PENDING, {}), "marked": marked}
        st.rerun()


def open_head(view: View, side: Side, layer: int, head: int) -> None:
    """Select a side's head everywhere. A head of B selects the head of A that leads to it."""
    if side.name == "B":
        layer, head = _partner(view, layer, side.layers, view.a.layers), _partner(view, head, side.heads, view.a.heads)
    select(layer=layer, head=head)


def _partner(view: View, index: int, own: int, other: int) -> int:
    if view.run.match == "depth" and own > 1:
        return round(index * (other - 1) / (own - 1))
    return min(index, other - 1)


def remarks(notes: list[str]) -> None:
    """What a reader of the numbers must know, folded when it is long. Plain text: token labels are in it."""
    if notes:
        with st.expander(f"{len(notes)} remarks on these numbers" if len(notes) > 1 else "A remark on these numbers"):
            st.text("\n".join(notes))


def send() -> None:
    """Let the server's loop send what is drawn so far, before this thread goes on with what is less waited for."""
    time.sleep(SENDING)


def footnotes(view: View) -> None:
    """What holds for the whole page: how B's layers were found, what is not as trained, what the traces say."""
    told = [view.mapping] if view.mapping else []
    for side in view.sides:
        start = f"{side.name}: " if view.compare else ""
        told += [f"{start}{side.explained}"] if side.explained else []
        told += [plain(f"{start}{note[:1].upper()}{note[1:]}") for note in side.trace.notes if note != WHAT_IF]
    told.append(plain(f"This server keeps {gib(BUDGET.held)} of at most {gib(BUDGET.most)} of models and results."))
    st.caption("  \n".join(dict.fromkeys(told)))


def plain(text: str) -> str:
    """Text that markdown will show and not interpret: file names are of their owners' choosing."""
    return "".join(f"\\{character}" if character in MARKDOWN else character for character in text)


MARKDOWN = frozenset("\\`*_{}[]()<>#+-.!|~$:&=\"'")

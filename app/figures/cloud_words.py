"""What a cloud says of its tokens: labels, and where they stand; hover texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.figures import theme
from app.figures.cloud_points import scatter, xyz
from app.figures.cloud_view import LABELLED, CloudView


def told(view: CloudView, at: int, token: int) -> str:
    """What hovering says of a token at a stage: escaped, because Plotly reads tags in it."""
    value = view.values[at, token]
    shown = view.names[int(value)] if view.names else f"{value:.4g}" if np.isfinite(value) else "none"
    coloured = f"{theme.label(view.value_title)}: {theme.label(shown)}"
    return "<br>".join([named(view, token), theme.label(view.stages[at]), coloured])


def named(view: CloudView, token: int) -> str:
    """A token's number and label, and which text it is of where there are several."""
    index = view.index[token] if view.index else token
    origin = [theme.label(view.origin[token])] if view.origin else []
    return "<br>".join([f"({index}) {theme.label(view.tokens[token])}", *origin])


def end_labels(view: CloudView) -> Any:
    """Labels where the ways end, when they are few."""
    chosen = list(range(len(view.tokens))) if view.labels and len(view.tokens) <= LABELLED else []
    sides = sides_of(view.positions[-1])
    return scatter(view)(
        **xyz(view.positions[-1][chosen]), mode="markers+text", marker={"size": 9, "opacity": 0},
        text=[flat(view, view.tokens[token]) for token in chosen], textfont={"size": 12}, hoverinfo="skip",
        textposition=[sides[token] for token in chosen] or None, showlegend=False, name="labels",
    )  # fmt: skip


def sides_of(here: np.ndarray) -> list[str]:
    """Where each label stands: away from the nearest other token, above where that says nothing."""
    flat = np.where(np.isfinite(here[:, :2]), here[:, :2], np.inf)
    found = []
    for token, point in enumerate(flat):
        gaps = ((flat - point) ** 2).sum(1) if np.isfinite(point).all() else np.full(len(flat), np.inf)
        gaps[token] = np.inf
        gaps[gaps == 0] = np.inf
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        if not np.isfinite(gaps).any():
            found.append("top center")
            continue
        dx, dy = point - flat[int(gaps.argmin())]
        upright = "top" if dy >= 0 else "bottom"
        found.append(f"{upright} center" if abs(dy) >= abs(dx) else f"middle {'right' if dx > 0 else 'left'}")
    return found


def label_of(view: CloudView, token: int) -> str:
    """A token beside its mark; beside its ring, where it has one."""
    room = "\u2002" if token == view.selected or token in view.marked else ""
    return f"{room}{flat(view, view.tokens[token])}{room}"


def flat(view: CloudView, token: str) -> str:
    """A token as text in the picture, not too long."""
    short = token if len(token) <= 16 else token[:15] + "…"
    return theme.flat(short) if view.dims == 3 else theme.label(short)

"""Clouds of requests: which points are laid out together, cached, behind a progress bar that can be stopped."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

import numpy as np
import streamlit as st

from app import answers, traces
from app.line import COMPUTING
from app.request import Request
from fbt_core.cloud import CLOUDS, Cloud, cloud, jacobians, picture_axes, procrustes, stages
from fbt_core.cloud.jacobian import Jacobians, linear
from fbt_core.cloud.points import derivative, known, scaled

ALIGNED = "B is turned and moved onto A"
"""How the note begins that tells of it."""

STOPPED = "_cloud-stopped"
"""Session state: the fit that the user stopped, and that does not begin by itself again."""


@dataclass(frozen=True)
class Piece:
    """Tokens of one request, all its stages. ``onto``: stages of the first piece each goes with, of another model."""

    request: Request
    tokens: tuple[int, ...]
    onto: tuple[int, ...] = ()


@dataclass(frozen=True)
class Fit:
    """All that a cloud depends on."""

    pieces: tuple[Piece, ...]
    method: str
    dims: int
    scale: str
    seed: int = 0
    neighbours: int = 15
    min_dist: float = 0.1

    @property
    def plain(self) -> Fit:
        """The same points by PCA: what is shown while UMAP is at work."""
        return replace(self, method="pca", seed=0, neighbours=15, min_dist=0.1)


@dataclass(frozen=True)
class Glyphs:
    """Semi-axes (layer, token, dims, dims) of g and of g = I as the picture sees them, and the local maps' R^2."""

    axes: np.ndarray
    plain: np.ndarray
    r2: np.ndarray
    directions: int  # that a map sees; 0 where the picture is linear

    @property
    def shown(self) -> np.ndarray:
        """(layer, token): where the map can be trusted and there is a metric."""
        return np.isfinite(self.axes).all((-2, -1))


def points(pieces: tuple[Piece, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    """(stage, token, width) of all pieces, and what was done to bring them together.

    Another checkpoint's points are turned, moved and scaled onto the first piece's: its tokens match one to one.
    """
    first = stages(traces.trace(pieces[0].request), pieces[0].tokens)
    found, notes = [first], []
    for piece in pieces[1:]:
        own = stages(traces.trace(piece.request), piece.tokens)
        if piece.onto:
            own, note = _moved(own[list(piece.onto)], first)
            notes.append(note)
        found.append(own)
    return np.concatenate(found, axis=1), tuple(notes)


def _moved(own: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, str]:
    turn = procrustes(own.reshape(-1, own.shape[-1]), first.reshape(-1, first.shape[-1]), scaled=True)
    widths = "" if own.shape[-1] == first.shape[-1] else f" (width {own.shape[-1]} onto {first.shape[-1]}, with zeros)"
    return turn.apply(own), (
        f"{ALIGNED} and scaled ×{turn.scale:.3g}{widths} by orthogonal Procrustes of all tokens and stages; "
        f"{100 * turn.residual:.3g} % of A's scatter is not matched"
    )


def fitted(fit: Fit, watch: Callable[[float, str], None] | None = None) -> Cloud:
    """The cloud, cached."""
    return answers.watched(fit, _fitted, watch)


def _fitted(fit: Fit, tell: Callable[[float, str], None]) -> Cloud:
    layers, notes = points(fit.pieces)
    found = cloud(
        fit.method, layers, fit.dims, scale=fit.scale, seed=fit.seed, neighbours=fit.neighbours,
        min_dist=fit.min_dist, progress=tell,
    )  # fmt: skip
    return replace(found, notes=(*notes, *found.notes))


def glyphs(fit: Fit, metric: Request, dual: bool) -> Glyphs:
    """The metric of ``metric``'s trace in the picture, at the first piece's tokens, cached."""
    return answers.watched((fit, metric), _glyphs, dual=dual)


def _glyphs(of: tuple[Fit, Request], _tell: Callable[..., None], dual: Hashable) -> Glyphs:
    fit, metric = of
    layers, _ = points(fit.pieces)
    count = len(fit.pieces[0].tokens)
    local = _local(fitted(fit), layers, fit.scale)
    maps = derivative(layers, local.maps, fit.scale)[:, :count]
    trace = traces.trace(metric)
    shape = (*maps.shape[:2], fit.dims, fit.dims)
    axes, plain = np.full(shape, np.nan), np.full(shape, np.nan)
    for stage, layer in enumerate(trace.layers):
        if layer.factors is None or (trace.source and layer.residual_U is None):
            continue
        blocks = layer.residual_blocks[:, list(fit.pieces[0].tokens)]
        axes[stage], plain[stage] = picture_axes(maps[stage], blocks, bool(dual))
    hidden = ~local.trusted[:, :count]
    axes[hidden], plain[hidden] = np.nan, np.nan
    return Glyphs(axes, plain, local.r2[:, :count], local.directions)


def _local(found: Cloud, layers: np.ndarray, scale: str) -> Jacobians:
    with np.errstate(invalid="ignore", over="ignore"):
        prepared = scaled(layers, scale)
    if found.directions is not None:
        return linear(found.directions, known(prepared))
    return jacobians(prepared, found.positions)


def at_once(fit: Fit) -> bool:
    """Whether the cloud is there, or quick."""
    return not CLOUDS[fit.method].slow or answers.is_there(fit, _fitted)


def settled(fit: Fit, key: str) -> Cloud | None:
    """The cloud where it is there, or quick; of a slow one, None when the user stopped it. Shows the progress.

    ``key`` tells the buttons of two sides apart.
    """
    row = CLOUDS[fit.method]
    if at_once(fit):
        return fitted(fit)
    if st.session_state.get(STOPPED) == fit:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.text(f"{row.title} was stopped: the picture is the PCA.")
            st.button("Go on", key=f"{key}-go", on_click=_go_on)
        return None
    line = st.empty()
    with line.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, f"{row.title}: importing")
        st.button("Stop", key=f"{key}-stop", on_click=_stop, args=(fit,), help="At once. Go on begins anew.")
    found = fitted(fit, bar.progress)
    line.empty()
    return found


def _stop(fit: Fit) -> None:
    st.session_state[STOPPED] = fit
    COMPUTING.give_up(fit)


def _go_on() -> None:
    st.session_state.pop(STOPPED, None)

"""Maps of long texts: pooled for a first look, and exact in any part that is asked for. See ``app.tiles``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from app import answers, leases, server, tiles, traces
from app.components.attention_maps import pack_part, pack_row
from app.request import Request
from fbt_core.attention.pooling import rollout
from fbt_core.attention.tiles import PooledPair, Rows, crop_pair, multipliers, pool_pair, rows_of
from fbt_core.attention.views import hidden_rows, is_causal
from fbt_core.trace import Trace

BINS = 512
"""Cells a side of the first look: more than a map has pixels on a page of three."""


@dataclass(frozen=True)
class Half:
    """One map of a request. Plain values: it holds no tensor, so nothing that was let go of stays alive by it."""

    request: Request
    score: str
    layer: int
    head: int
    view: str
    alpha: float | None = None
    match: str | None = None  # the score to whose mean row entropy its temperature is brought

    @property
    def options(self) -> dict[str, Any]:
        """The options of ``views.one_map``."""
        given = {"score": self.score, "layer": self.layer, "head": self.head, "view": self.view}
        more = {"alpha": self.alpha, "match": self.match}
        return given | {name: value for name, value in more.items() if value is not None}

    @property
    def multiplied(self) -> np.ndarray | None:
        """By what the logits of each head are multiplied, cached; None where nothing is matched."""
        if self.match is None:
            return None
        options = {"layer": self.layer, "head": self.head, "view": self.view, "alpha": self.alpha}
        return answers.derived(self.request, multipliers, score=self.score, match=self.match, **options)

    def rows(self) -> Rows:
        """What gives its rows. A rollout, whose rows cannot be had one by one, is kept whole."""
        if self.view == "rollout":
            whole = answers.derived(self.request, _rolled, score=self.score, layer=self.layer, alpha=self.alpha)
            return whole.__getitem__
        return rows_of(
            traces.trace(self.request), score=self.score, layer=self.layer, head=self.head, view=self.view,
            alpha=self.alpha, multiplied=self.multiplied,
        )  # fmt: skip

    def hidden(self, rows: slice) -> np.ndarray | None:
        """Where its mask lets nothing be, for some queries."""
        if self.view == "rollout":
            return None
        return hidden_rows(traces.trace(self.request), self.layer, self.head if self.view == "head" else 0, rows)


@dataclass(frozen=True)
class Pair:
    """Two maps that are drawn beside each other, and their difference."""

    left: Half
    right: Half

    def read(self) -> tuple[Rows, Rows]:
        """What gives the rows of both; one and the same where they are one map."""
        left = self.left.rows()
        return left, left if self.left == self.right else self.right.rows()

    def hidden(self, rows: slice) -> np.ndarray | None:
        """Where neither map may be attended to: a window of one leaves the other's cells in sight."""
        left, right = (half.hidden(rows) for half in (self.left, self.right))
        return None if left is None or right is None else left & right

    @property
    def shape(self) -> tuple[int, int]:
        """Queries and keys."""
        trace = traces.trace(self.left.request)
        return trace.length, len(trace.key_tokens) or trace.length

    @property
    def causal(self) -> bool:
        """Whether nothing above the diagonal may be attended to."""
        return is_causal(traces.trace(self.left.request), self.left.layer)


def factor_of(length: int, keys: int) -> int:
    """Tokens a cell of the first look, each way."""
    return -(-max(length, keys) // BINS)


def _rolled(trace: Trace, *, score: str, layer: int, alpha: float | None) -> np.ndarray:
    return rollout(trace, score, layer, alpha).detach().float().cpu().numpy()


def _overview(_trace: Trace, *, pair: Pair) -> PooledPair:
    return pool_pair(*pair.read(), pair.shape, factor_of(*pair.shape), pair.causal, pair.hidden)


def overview(pair: Pair) -> PooledPair:
    """The first look at a pair, cached: 3 MB whatever the text's length."""
    return answers.derived(pair.left.request, _overview, pair=pair)


def address(pair: Pair) -> str:
    """Where this session's browser may ask for parts of a pair; empty on a server without the route."""
    if not tiles.SERVED:
        return ""
    return f"{server.base()}/tiles/{tiles.DESK.issue(leases.session(), pair)}"


def part(pair: Pair, rows: slice, columns: slice, factor: int) -> bytes:
    """The message of a part. Raises ``ValueError`` for one that is not inside the maps."""
    length, keys = pair.shape
    if rows.stop > length or columns.stop > keys:
        raise ValueError(f"got rows to {rows.stop} and columns to {columns.stop}, expected at most {length} and {keys}")
    return pack_part(crop_pair(*pair.read(), rows, columns, factor, pair.causal, pair.hidden), factor)


def row(pair: Pair, index: int) -> bytes:
    """One row of both maps in float32. Raises ``ValueError`` for one that is not there."""
    if index >= pair.shape[0]:
        raise ValueError(f"got row {index}, expected one below {pair.shape[0]}")
    return pack_row(exact_row(pair, index))


def exact_row(pair: Pair, index: int) -> np.ndarray:
    """(2, K) float32."""
    return np.stack([read(slice(index, index + 1))[0] for read in pair.read()])


def _selected_row(_trace: Trace, *, pair: Pair, index: int) -> np.ndarray:
    return exact_row(pair, index)


def selected_row(pair: Pair, index: int) -> np.ndarray:
    """``exact_row``, cached: every run of the page asks for that of the selected token."""
    return answers.derived(pair.left.request, _selected_row, pair=pair, index=index)

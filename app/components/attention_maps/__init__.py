"""Two attention maps and their difference on linked canvases (``attention_maps.js``): this file packs the bytes.

A message is four bytes of length, a JSON header, the selected row of both maps in float32, and the zlib-compressed
cells. A cell is a uint16 code: the square root of value / peak in ``steps`` steps (finer where attention is small, off
by at most peak / steps), 65,534 where a mask hides it, 65,535 where not finite. ``steps`` is 65,532, or fewer where
the message would else exceed ``BUDGET``: the readout tells the error, and rows are exact on demand. A causal map sends
only its lower triangle. ``keys`` in the header are the columns' tokens where those are others than the rows'. High
bytes stand before low bytes, since they compress far better apart.

The difference is computed in the browser; only where cells are bins of several tokens it is sent as a third map, since
the largest difference of a bin is not a difference of maxima. Its codes are steps / 2 plus or minus the square root.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from streamlit.components.v2 import component

from app.components.files import DRAWING, FRAMING, joined
from app.components.message import message
from app.figures import theme
from app.figures.colour_scales import stops
from app.figures.maps import MapPanels

HERE = Path(__file__).parent

HTML = """
<div class="maps">
  <div class="heading"><span></span><span class="note"></span></div>
  <div class="panels">
    <div><canvas tabindex="0" role="img" aria-label="attention map, left score"></canvas></div>
    <div><canvas tabindex="0" role="img" aria-label="attention map, right score"></canvas></div>
    <div><canvas tabindex="0" role="img" aria-label="difference of the two attention maps"></canvas></div>
  </div>
  <div class="legend"></div>
  <div class="foot">
    <output class="readout"></output>
    <button name="reset" title="Show the whole map (double click or 0)">Whole map</button>
    <button name="png" title="What is seen, at this zoom, three pixels a CSS pixel">PNG</button>
    <button name="svg" title="What is seen, at this zoom; the cells are an embedded raster">SVG</button>
    <button name="column" title="SVG set for a column of 3.25 in: the maps stand below each other">SVG 3.25 in</button>
  </div>
</div>
"""

NOT_FINITE = 65535
HIDDEN = 65534

STEPS = (65532, 16380, 4092, 1020)
"""Of a code, the first whose message is within ``BUDGET``; the last bounds it, however little a map compresses."""

BUDGET = 1_400_000
"""Bytes of compressed cells: a head's two maps at 1,024 tokens stay below 1.5 MB with all that is sent beside them."""

SCRIPTS = ("sheets.js", "parts.js", "layout.js", "readout.js", "panels.js", "gestures.js", "attention_maps.js")
"""One module to the browser, in this order."""

_component = component(
    "fiberscope_attention_maps",
    html=HTML,
    css=joined(FRAMING, HERE / "attention_maps.css"),
    js=joined(*DRAWING, *(HERE / name for name in SCRIPTS)),
)


def attention_maps(maps: MapPanels, key: str) -> tuple[int, int] | None:
    """Draw the maps; returns the (query, key) token numbers that were clicked in this script run, or None."""
    result = _component(key=key, data=pack(maps), on_picked_change=lambda: None)
    picked = result.picked
    if not picked:
        return None
    rows, columns = maps.numbers, maps.key_numbers
    return rows[min(int(picked[0]), len(rows) - 1)], columns[min(int(picked[1]), len(columns) - 1)]


def pack(maps: MapPanels) -> bytes:
    """The message of a ``MapPanels``."""
    sent = np.tri(len(maps.left), dtype=bool) if maps.causal else np.ones(maps.left.shape, dtype=bool)
    several = (maps.left, maps.right, *([maps.difference] if maps.pooled else []))
    peaks, body, steps = compressed(several, sent, maps.hidden)
    words = _header(maps, peaks, body) | {"steps": steps}
    exact = b"" if maps.selected is None else pack_row(_selected(maps, maps.selected))
    return message(words, exact + body)


def pack_part(part: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], factor: int) -> bytes:
    """The message of a part of two maps, of their difference, and of where it is masked: all cells are sent."""
    *cells, masked = part
    peaks, body, steps = compressed(cells if factor > 1 else cells[:2], np.ones_like(masked), masked)
    words = {"peaks": peaks, "steps": steps, "rows": masked.shape[0], "columns": masked.shape[1]}
    return message(words, body)


def pack_row(both: np.ndarray) -> bytes:
    """(2, K) in float32, little-endian."""
    return np.ascontiguousarray(both, "<f4").tobytes()


def compressed(
    several: Sequence[np.ndarray], sent: np.ndarray, hidden: np.ndarray | None = None
) -> tuple[list[float], bytes, int]:
    """The peaks of the maps (a third one is signed), their codes compressed, and the steps of a code."""
    for steps in STEPS:
        coded = [encode(cells, sent, hidden, steps, signed=place == 2) for place, cells in enumerate(several)]
        body = zlib.compress(b"".join(codes for _, codes in coded), 1)
        if len(body) <= BUDGET:
            break
    return [peak for peak, _ in coded], body, steps


def encode(
    cells: np.ndarray, sent: np.ndarray, hidden: np.ndarray | None = None, steps: int = STEPS[0], signed: bool = False
) -> tuple[float, bytes]:
    """The peak, and the codes of the cells that are sent, row by row: all high bytes, then all low bytes."""
    values = np.asarray(cells, np.float32)[sent]
    finite = np.isfinite(values)
    sizes = np.abs(values[finite]) if signed else np.clip(values[finite], 0, None)
    peak = float(sizes.max(initial=0.0)) or 1.0
    roots = np.sqrt(sizes / peak)
    place = steps / 2 * (1 + np.copysign(roots, values[finite])) if signed else steps * roots
    codes = np.full(values.shape, NOT_FINITE, "<u2")
    codes[finite] = np.rint(place)
    if hidden is not None:
        codes[hidden[sent]] = HIDDEN
    return peak, (codes >> 8).astype(np.uint8).tobytes() + codes.astype(np.uint8).tobytes()


def _selected(maps: MapPanels, row: int) -> np.ndarray:
    """The exact row of both maps."""
    return np.stack([maps.left[row], maps.right[row]]) if maps.exact is None else maps.exact


def _header(maps: MapPanels, peaks: list[float], body: bytes) -> dict[str, Any]:
    left, right = (np.asarray(values, np.float64) for values in maps.entropy)
    entropy = [left, right, right - left]
    scales = [np.nanmax([_most(left), _most(right)]), _most(entropy[2])]
    return {
        "tokens": list(maps.tokens), "numbers": list(maps.numbers),
        "keys": list(maps.key_tokens), "key_numbers": list(range(len(maps.key_tokens))),
        "factor": maps.factor, "tiles": maps.tiles, "causal": maps.causal, "single": maps.single,
        "titles": list(maps.all_titles),
        "heading": maps.heading, "note": maps.note, "name": maps.name, "unit": maps.unit, "colour": maps.colour,
        "ceiling": maps.top(), "difference_ceiling": maps.difference_top(), "peaks": peaks,
        "entropy": [[round(float(x), 5) if np.isfinite(x) else None for x in values] for values in entropy],
        "entropy_scale": [float(scale) for scale in scales],
        "selected": maps.selected, "marked": list(maps.marked), "exact": maps.selected,
        "expected": [list(pair) for pair in maps.expected],
        "expected_name": maps.expected_name, "not_finite": maps.not_finite,
        "sequential": stops(theme.SEQUENTIAL), "diverging": stops(theme.DIVERGING),
        "digest": hashlib.sha256(body).hexdigest()[:16] + repr(peaks),
    }  # fmt: skip


def _most(values: np.ndarray) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max(initial=0.0))

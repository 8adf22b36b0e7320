"""Every head of every layer in one picture (``head_atlas.js``): this file packs the bytes.

A message is four bytes of length, a JSON header and the zlib-compressed cells: one byte each, 0 to 254 the place on
the bent colour scale, 255 not finite; layers outermost, then heads, rows, columns.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from streamlit.components.v2 import component

from app.components.files import DRAWING, FRAMING, joined
from app.components.message import message
from app.figures import theme
from app.figures.atlas import HeadAtlas
from app.figures.colour_scales import shade, stops

HERE = Path(__file__).parent

HTML = """
<div class="atlas">
  <div class="heading"><span></span><span class="note"></span></div>
  <canvas tabindex="0" role="img" aria-label="all heads of all layers; arrows move, Enter opens a head"></canvas>
  <div class="foot">
    <output class="readout"></output>
    <button name="png" title="Three pixels a CSS pixel">PNG</button>
    <button name="svg" title="The cells are an embedded raster, the text is not">SVG</button>
    <button name="column" title="SVG set for a column of 3.25 in">SVG 3.25 in</button>
  </div>
</div>
"""

NOT_FINITE = 255
CODES = 254

_component = component(
    "fiberscope_head_atlas",
    html=HTML,
    css=joined(FRAMING, HERE / "head_atlas.css"),
    js=joined(*DRAWING, HERE / "head_atlas.js"),
)


def head_atlas(atlas: HeadAtlas, key: str) -> tuple[int, int] | None:
    """Draw the atlas; returns the (layer, head) that was clicked in this script run, or None."""
    picked = _component(key=key, data=pack(atlas), on_picked_change=lambda: None).picked
    if not picked:
        return None
    layer = min(int(picked[0]), len(atlas.numbers) - 1)
    return atlas.numbers[layer], min(int(picked[1]), atlas.counts[layer] - 1)


def pack(atlas: HeadAtlas) -> bytes:
    """The message of a ``HeadAtlas``."""
    header = {
        "layers": [str(layer) for layer in atlas.numbers], "heads": atlas.cells.shape[1], "counts": list(atlas.counts),
        "rows": atlas.cells.shape[-2], "cells": atlas.cells.shape[-1],
        "causal": atlas.causal and atlas.cells.shape[-1] > 1, "chosen": list(atlas.place),
        "title": atlas.title, "note": atlas.note, "name": atlas.name,
        "unit": atlas.unit, "colour": atlas.colour, "diverging": atlas.diverging, "ceiling": atlas.top(),
        "stops": stops(theme.DIVERGING if atlas.diverging else theme.SEQUENTIAL),
        "readings": [[float(x) if np.isfinite(x) else None for x in row] for row in atlas.readings],
        "readings_name": atlas.readings_name,
    }  # fmt: skip
    return message(header, zlib.compress(encode(atlas), 6))


def encode(atlas: HeadAtlas) -> bytes:
    """One byte a cell."""
    finite = np.isfinite(atlas.cells)
    place = shade(np.where(finite, atlas.cells, 0), atlas.top(), atlas.colour, atlas.diverging)
    return np.where(finite, np.rint(place * CODES), NOT_FINITE).astype(np.uint8).tobytes()

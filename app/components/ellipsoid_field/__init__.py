"""The ellipsoid field in WebGL2: glyphs are ray-cast, the camera outlives a change of data, a click selects a token.

Its Plotly twin, ``app.figures.ellipsoids.figure``, draws the same ``EllipsoidView``.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from plotly.colors import sample_colorscale, unlabel_rgb
from streamlit.components import v2

from app.components.files import PENS, joined
from app.figures import theme
from app.figures.ellipsoid_view import EllipsoidView

HERE = Path(__file__).parent
SCRIPTS = ("glyphs.js", "camera.js", "scene.js", "scene_pens.js", "words.js", "curves.js", "gestures.js",
           "ellipsoid_field.js")  # fmt: skip
"""One module to the browser, in this order; ``glyphs.js`` says what a message holds."""

HTML = """
<div class="field">
  <canvas class="scene" tabindex="0" role="img"></canvas>
  <canvas class="overlay" aria-hidden="true"></canvas>
  <div class="tools">
    <button name="fit" title="Double click or 0: see everything. Drag or arrows: turn. With shift: move. Wheel or +/-: zoom">Fit</button>
    <button name="png" title="The picture as it is seen, two pixels a point">PNG</button>
    <button name="svg" title="Words as text, the 3-D view as an embedded raster image">SVG</button>
    <button name="column" title="SVG set for a column of 3.25 in">SVG 3.25 in</button>
  </div>
  <div class="tip" role="status"></div>
  <div class="fault" role="alert"></div>
</div>
"""  # noqa: E501


@cache
def _component() -> Any:
    """Registered at the first use and once a process."""
    return v2.component(
        "ellipsoid_field",
        html=HTML,
        css=(HERE / "ellipsoid_field.css").read_text(encoding="utf-8"),
        js=joined(PENS / "page.js", *(HERE / script for script in SCRIPTS)),
    )


def ellipsoid_field(view: EllipsoidView, key: str, height: int = 620) -> int | None:
    """Draw the field, ``height`` CSS pixels high; the token that was clicked in this very script run, or None.

    ``key`` must stay the same when the data change: the camera belongs to it.
    """
    result = _component()(key=key, data=pack(view, height), on_picked_change=lambda: None)
    picked = result.picked
    return int(picked) if isinstance(picked, (int, float)) and 0 <= picked < len(view.tokens) else None


def pack(view: EllipsoidView, height: int = 620) -> bytes:
    """The message to the browser, little-endian: see ``decode`` in ``glyphs.js``.

    About (13 + m) floats a token, m the number of extra measures: 0.09 MB at 1,024 tokens, 0.35 MB at 4,096. Curves
    add three floats a point. Eigenvalues are not sent: they are the semi-axes' lengths over the scale, to the power
    -2, or 2 of a dual glyph.
    """
    header = json.dumps(_header(view, height), ensure_ascii=False, allow_nan=False).encode()
    field = view.field
    vectors = field.drawn_axes.transpose(0, 2, 1)  # each semi-axis in turn, not row by row
    curves = [curve.points for curve in view.curves]
    columns = [field.centres, vectors, view.values, *view.extras.values(), *curves]
    points = sum(map(len, curves))
    head = np.array([len(view.tokens), len(view.extras), len(header), points], "<u4").tobytes()
    floats = b"".join(np.ascontiguousarray(column, "<f4").tobytes() for column in columns)
    return head + floats + _colour_table() + header


def _header(view: EllipsoidView, height: int) -> dict[str, Any]:
    """The words and the frame."""
    low, high = view.value_range
    return {
        "title": view.title, "description": view.description, "note": view.note or "", "name": view.name,
        "axes": view.axis_titles, "box": view.box.tolist(),
        "witness": {"centre": view.witness.tolist(), "radius": view.field.witness_radius,
                    "label": "unit sphere, g = I"},
        "colour": {"title": view.value_title, "range": [low, high], "missing": view.not_a_number},
        "eigenvalues": view.eigenvalue_title, "scale": view.field.stage.scale, "dual": view.field.dual,
        "extras": list(view.extras),
        "tokens": [str(token) for token in view.tokens], "selected": view.selected,
        "marked": list(view.marked), "labels": view.labels,
        "height": height,
        "curves": [
            {"name": curve.name, "colours": [theme.category(curve.category, dark) for dark in (False, True)],
             "dash": curve.dash, "width": curve.width, "arrow": curve.arrow, "count": len(curve.points)}
            for curve in view.curves
        ],
    }  # fmt: skip


@cache
def _colour_table() -> bytes:
    """256 RGB colours of the sequential scale."""
    colours = sample_colorscale(theme.SEQUENTIAL, list(np.linspace(0, 1, 256)))
    return np.round([unlabel_rgb(colour) for colour in colours]).astype("u1").tobytes()

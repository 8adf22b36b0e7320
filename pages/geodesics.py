"""Ways between two tokens: geodesic, chord and graph path, their lengths, and what attention would make of them."""

from __future__ import annotations

from app import frame, geodesics, widgets
from app.geodesics_matrices import matrices
from app.geodesics_panels import draw_ways, tell_missing

view = frame.open_page("Geodesics")
choice = geodesics.choose(view)
tell_missing(view, choice.reading, choice.token)
draw_ways(view, choice)
matrices(view, choice)
widgets.footnotes(view)

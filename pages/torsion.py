"""What turns vectors: FiberTransport's rotations of the values, and the metric's own transport around loops."""

from __future__ import annotations

from app import frame, widgets
from app.torsion_loops import loops
from app.torsion_panels import rotations

view = frame.open_page("Torsion and transport")
rotations(view)
loops(view)
widgets.footnotes(view)

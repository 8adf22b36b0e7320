"""The open conjecture: does a metric for each token prevent rank collapse? The experiment's rows, and what they say."""

from __future__ import annotations

from app import collapse, frame

frame.open_text_page("Collapse")
collapse.draw()

"""The text as tokens on coloured ground. Token text reaches the page as text nodes only: it may be hostile."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from streamlit.components.v2 import component

from app.figures.tokens import Scale, ink

HERE = Path(__file__).parent


@cache
def _component() -> Any:
    return component(
        "token_strip",
        html='<div class="bar"></div><div class="strip" role="listbox" aria-label="tokens"></div>',
        css=(HERE / "token_strip.css").read_text(),
        js=(HERE / "token_strip.js").read_text(),
    )


def token_strip(
    tokens: tuple[str, ...], ids: list[int], unknown: list[bool], values: np.ndarray, scale: Scale, *, title: str,
    selected: int, key: str, raw: list[str] | None = None, marked: tuple[int, ...] = (),
) -> int | None:  # fmt: skip
    """Draw L tokens coloured by ``values`` (L,); the index that was just clicked, else None (a trigger, not a state).

    Hover shows index, id, label, how the vocabulary writes it (``raw``) and value. A value that is not finite is
    hatched. ``unknown`` tokens are underlined by dots, ``marked`` ones by a bar.
    """
    colours = scale.colours(values)
    data = {
        "title": title, "low": f"{scale.low:.4g}", "high": f"{scale.high:.4g}", "stops": scale.stops,
        "tokens": list(tokens), "ids": list(ids), "unknown": list(unknown), "colours": colours,
        "inks": [ink(colour) for colour in colours], "values": [f"{value:.5g}" for value in values],
        "selected": selected, "raw": list(raw or []), "marked": list(marked),
    }  # fmt: skip
    found = _component()(key=key, data=data, on_picked_change=lambda: None)
    return None if found.picked is None else int(found.picked)

"""A chooser and drop zone that sends files to the upload route one after the other, past Streamlit's memory."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

HERE = Path(__file__).parent


@cache
def _component() -> Any:
    return component(
        "file_drop",
        html=(HERE / "file_drop.html").read_text(),
        css=(HERE / "file_drop.css").read_text(),
        js=(HERE / "file_drop.js").read_text(),
    )


def file_drop(key: str, address: str, token: str, limit: int, most: int, on_sent: Any) -> None:
    """Sends to ``address``/token/0, 1, ... at most ``most`` files of at most ``limit`` bytes each.

    When all have arrived ``on_sent`` is called, and ``st.session_state[key]`` holds ``sent``: the token, the names as
    their owner has them, in the order of the numbers, and the name of the folder if one was chosen. It also holds
    ``stale``, a token that is no longer taken, after which the page is drawn again with another.
    """
    data = {"address": address, "token": token, "limit": limit, "most": most}
    _component()(key=key, data=data, on_sent_change=on_sent, on_stale_change=lambda: None)

"""How a page waits for a computation: it shows what is before it, and Streamlit's Stop ends its waiting at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import ExitStack
from typing import Any

import streamlit as st
import torch
from streamlit.runtime.scriptrunner import StopException, get_script_run_ctx

from app.line import Job, Line, Stopped, at_work

POLL = 0.1
"""Seconds between two looks at whether the page was stopped or left."""

Watch = Callable[[float, str], None]
"""Told of the share that is done, in [0, 1], and of what that is, in words."""


def taken(line: Line, key: Hashable, work: Callable[[], Any], words: str = "", watch: Watch | None = None) -> Any:
    """``work()``, once it is its turn in the line. Whoever asks for the same ``key`` meanwhile waits for the same.

    ``words`` say what is done, beside a spinner. ``watch`` draws the progress instead, in this script run. A script
    that is stopped gives the work up; one that begins anew may come back to it. What a server's other threads ask for
    waits as well, unseen. Inside of other work, and where there is no server, the work is done at once.
    """
    on_page = get_script_run_ctx(suppress_warning=True) is not None
    if at_work() or not (on_page or st.runtime.exists()):
        with torch.no_grad():
            return work()
    job, stopped = line.join(key, work), False
    try:
        if on_page:
            _wait(line, job, words or "Computing", watch)
        while not job.done.wait(POLL):
            line.before(job)  # moves the line past what is stuck
        return job.answer()
    except StopException:
        stopped = True
        raise
    except Stopped:  # its time ran out in the very moment in which this page came
        pass
    finally:
        line.leave(job, at_once=stopped)
    return taken(line, key, work, words, watch)


def _wait(line: Line, job: Job, words: str, watch: Watch | None) -> None:
    """Until it is done. Raises what Streamlit raises in a script that is to stop or to begin anew."""
    shown: Any = None
    with ExitStack() as spinner:
        while not job.done.wait(POLL):
            st.session_state.get("run")  # where Streamlit looks whether the script is to go on
            before = line.before(job)
            now = job.told if watch and not before else _place(before, words)
            if now != shown:
                shown = now
                if watch:
                    watch(*(now if isinstance(now, tuple) else (0.0, now)))
                else:
                    spinner.close()
                    spinner.enter_context(st.spinner(now))


def _place(before: int, words: str) -> str:
    """``2 computations before yours``, or what is being done."""
    return words if not before else f"{before} computation{'s' * (before > 1)} before yours: it begins by itself"

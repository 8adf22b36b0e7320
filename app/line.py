"""One heavy computation at a time, first come, first served: two at once would only be slower on the same cores.

Whoever asks waits in a thread of its own and stays awake to be stopped: the work itself runs in the line's worker.
Stopped work ends at its next torch function, or where it tells of its progress, whichever comes first; what heeds
neither, as a compiler does, is left to end in its thread, and the line goes on with another. Nothing here knows
Streamlit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

PATIENCE = 0.7
"""Seconds that work goes on unwatched: who clicks elsewhere on the page comes back to ask for the same in the next run
of its script."""

STUCK = 0.5
"""Seconds after which the line no longer waits for stopped work."""


class Stopped(BaseException):
    """Nobody waits for this work any more. No ``Exception``: what catches faults must not catch it."""


@dataclass(eq=False)
class Job:
    """One computation, and how far it is. ``watchers`` wait for it."""

    key: Hashable
    work: Callable[[], Any]
    watchers: int = 0
    told: tuple[float, str] | None = None
    done: threading.Event = field(default_factory=threading.Event)
    deadline: float | None = None  # time.monotonic() from which it is unwanted
    found: Any = None
    fault: BaseException | None = None

    @property
    def unwanted(self) -> bool:
        """Whether it is to end. Asked at every torch function, so it is quick."""
        deadline = self.deadline  # read once: who comes back sets it to None meanwhile
        return deadline is not None and time.monotonic() >= deadline

    def run(self) -> None:
        """Do the work in this thread."""
        token = _JOB.set(self)
        try:
            with torch.no_grad(), _Watch(self):  # the watch inside: what it ends leaves the thread as it was
                self.found = self.work()
        except BaseException as fault:  # of whatever kind, it is raised where someone waits
            self.fault = fault
        finally:
            _JOB.reset(token)
            self.done.set()

    def answer(self) -> Any:
        """What was found; raises what was raised."""
        if self.fault is not None:
            raise self.fault
        return self.found


_JOB: ContextVar[Job | None] = ContextVar("the work of this thread", default=None)


class _Watch(TorchFunctionMode):
    """Ends unwanted work at its next torch function."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.job.unwanted and func is not torch._C._set_grad_enabled:  # by which a context ends: it must
            raise Stopped
        return func(*args, **kwargs) if kwargs else func(*args)


def at_work() -> bool:
    """Whether this thread is a line's worker: what it asks for it computes itself, at once."""
    return _JOB.get() is not None


def tell(share: float, words: str) -> None:
    """How far the work of this thread is, in [0, 1], and in words, for all who wait. Ends unwanted work."""
    if (job := _JOB.get()) is not None:
        job.told = (share, words)
        if job.unwanted:
            raise Stopped


@dataclass(eq=False)
class Line:
    """The jobs that wait, in order, and the one that runs."""

    waiting: deque[Job] = field(default_factory=deque)
    running: Job | None = None
    change: threading.Condition = field(default_factory=threading.Condition)
    worker: threading.Thread | None = None

    def join(self, key: Hashable, work: Callable[[], Any]) -> Job:
        """Stand in line for ``work``, or beside whoever already waits for the same ``key``. Go with ``leave``."""
        with self.change:
            job = next((one for one in self._all() if one.key == key and not one.unwanted), None)
            if job is None:
                job = Job(key, work)
                self.waiting.append(job)
            job.watchers, job.deadline = job.watchers + 1, None
            self._attend()
            self.change.notify()
            return job

    def leave(self, job: Job, at_once: bool) -> None:
        """Wait no longer. The last who waited ends the work: ``at_once``, or when nobody has come for a moment."""
        with self.change:
            job.watchers -= 1
            if not job.watchers:
                job.deadline = time.monotonic() + (0.0 if at_once else PATIENCE)

    def give_up(self, of: Hashable) -> None:
        """End at once what nobody waits for, however lately someone did, where ``of`` is a part of its key."""
        with self.change:
            for job in self._all():
                if not job.watchers and isinstance(job.key, tuple) and of in job.key:
                    job.deadline = time.monotonic()

    def before(self, job: Job) -> int:
        """How many computations come before it. Also moves the line past work that does not heed its stop.

        Not while it differentiates forward: torch has the levels of that once for all threads, not for each.
        """
        with self.change:
            if self.running is not None and self.running.deadline is not None:
                if time.monotonic() > self.running.deadline + STUCK and forward_ad._current_level < 0:
                    self.running = self.worker = None
                    self._attend()
            ahead = [one for one in self._all() if not one.unwanted]
            return ahead.index(job) if job in ahead else 0

    def _all(self) -> list[Job]:
        return [*([self.running] if self.running and not self.running.done.is_set() else []), *self.waiting]

    def _attend(self) -> None:
        """See to a worker. The caller holds the lock."""
        if self.worker is None:
            self.worker = threading.Thread(target=self._serve, name="computations", daemon=True)
            self.worker.start()

    def _serve(self) -> None:
        while True:
            with self.change:
                if self.worker is not threading.current_thread():
                    return  # the line went on without this one
                self.running = None
                self.change.wait_for(lambda: self.waiting)
                if self.worker is not threading.current_thread():
                    return
                self.running = job = self.waiting.popleft()
            if job.unwanted:
                job.fault = Stopped()
                job.done.set()
            else:
                job.run()
            del job  # what it found is not kept alive by an idle worker


COMPUTING = Line()
"""Forward passes, measures, all that keeps the cores busy."""

READING = Line()
"""Checkpoints from disk: a page has its sidebar while others compute."""

ZOOMING = Line()
"""Parts of large attention maps, while someone zooms: they wait neither for a page's computation nor for a file."""

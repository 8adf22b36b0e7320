"""The line of computations: first come, first served, shared where the same is asked for, and stopped when told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import streamlit as st
import torch
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.scriptrunner import ScriptRunner, ScriptRunnerEvent
from streamlit.testing.v1 import AppTest

from app import answers, line, traces, turns
from app.claims_findings import Asked, judged
from app.kept import BUDGET
from app.line import Job, Line, Stopped, at_work, tell
from app.request import Request
from fbt_core.checkpoints import load
from fbt_core.claims import CLAIMS
from fbt_core.measures import MEASURES, read
from fbt_core.model import build

ENTRY = Path(__file__).parent.parent / "streamlit_app.py"
LONG = 30.0
"""Seconds after which something that must happen counts as missing."""


class Gate:
    """Work that says when it begins, and goes on when it may, by torch functions or by telling, as it is asked to."""

    def __init__(self, by: str = "torch") -> None:
        self.began, self.may_end, self.by, self.ended = threading.Event(), threading.Event(), by, ""

    def __call__(self) -> str:
        self.began.set()
        try:
            start = time.monotonic()
            while not self.may_end.is_set() and time.monotonic() - start < LONG:
                time.sleep(0.005)
                if self.by == "torch":
                    torch.zeros(1) + 1
                elif self.by == "tell":
                    tell(0.5, "half")
            self.ended = "done"
        except Stopped:
            self.ended = "stopped"
            raise
        return self.ended


@pytest.fixture
def gates() -> Iterator[Callable[..., Gate]]:
    """Gates that all open when the test is over."""
    made: list[Gate] = []

    def make(by: str = "torch") -> Gate:
        made.append(Gate(by))
        return made[-1]

    yield make
    for gate in made:
        gate.may_end.set()


def soon(condition: Callable[[], Any], within: float = LONG) -> bool:
    """Whether it comes true."""
    start = time.monotonic()
    while not condition() and time.monotonic() - start < within:
        time.sleep(0.005)
    return bool(condition())


def finished(job: Job) -> Any:
    assert job.done.wait(LONG)
    return job.answer()


# ---- the line ----


def test_first_come_first_served_and_one_at_a_time(gates: Callable[..., Gate]) -> None:
    queue, order, busy = Line(), [], []

    def work(name: str) -> Callable[[], str]:
        def run() -> str:
            busy.append(name)
            order.append((name, len(busy)))
            time.sleep(0.002)
            busy.remove(name)
            return name

        return run

    gate = gates()
    first = queue.join("gate", gate)
    jobs = [queue.join(name, work(name)) for name in "abcde"]
    assert gate.began.wait(LONG)
    assert [queue.before(job) for job in (first, *jobs)] == [0, 1, 2, 3, 4, 5]
    gate.may_end.set()
    assert [finished(job) for job in jobs] == list("abcde")
    assert order == [(name, 1) for name in "abcde"]


def test_who_asks_for_the_same_shares_it(gates: Callable[..., Gate]) -> None:
    queue, gate = Line(), gates()
    one, other = queue.join("same", gate), queue.join("same", gate)
    assert one is other and one.watchers == 2
    queue.leave(one, at_once=True)  # the first is stopped, the second still waits
    assert not one.unwanted
    gate.may_end.set()
    assert finished(other) == "done"


@pytest.mark.parametrize("by", ["torch", "tell"])
def test_stopped_work_ends_and_the_next_begins(by: str, gates: Callable[..., Gate]) -> None:
    queue, gate = Line(), gates(by)
    job, after = queue.join("first", gate), queue.join("second", lambda: at_work())
    assert gate.began.wait(LONG)
    queue.leave(job, at_once=True)
    assert finished(after) is True and gate.ended == "stopped"
    with pytest.raises(Stopped):
        job.answer()


def test_work_that_was_never_begun_is_left_out(gates: Callable[..., Gate]) -> None:
    queue, gate, ran = Line(), gates(), []
    queue.join("gate", gate)
    gone = queue.join("gone", lambda: ran.append("gone"))
    stays = queue.join("stays", lambda: ran.append("stays"))
    queue.leave(gone, at_once=True)
    assert gate.began.wait(LONG) and queue.before(stays) == 1  # who left is not before anybody
    gate.may_end.set()
    finished(stays)
    assert ran == ["stays"]


def test_the_line_goes_past_work_that_does_not_heed_its_stop(
    gates: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "STUCK", 0.0)
    queue, deaf = Line(), gates("nothing")
    job, after = queue.join("deaf", deaf), queue.join("after", lambda: "answered")
    assert deaf.began.wait(LONG)
    queue.leave(job, at_once=True)
    assert soon(lambda: queue.before(after) == 0) and finished(after) == "answered" and deaf.ended == ""
    deaf.may_end.set()
    assert finished(job) == "done"  # in the thread where it was left
    assert finished(queue.join("last", lambda: "still served")) == "still served"


def test_it_does_not_go_past_work_whose_forward_levels_the_next_would_meet(
    gates: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "STUCK", 0.0)
    queue, deaf, ones = Line(), gates("nothing"), (torch.ones(2),)

    def differentiates() -> Any:
        return torch.func.jvp(torch.sin, ones, ones)[1][0].item()

    job = queue.join("deaf", lambda: torch.func.jvp(lambda x: (deaf(), x)[1], ones, ones))
    after = queue.join("after", differentiates)
    assert deaf.began.wait(LONG)
    queue.leave(job, at_once=True)
    assert not soon(lambda: [queue.before(after), after.done.is_set()][1], within=0.1)
    deaf.may_end.set()
    assert finished(after) == differentiates()
    with pytest.raises(Stopped):
        finished(job)


def test_who_comes_back_at_once_finds_the_work_going_on(
    gates: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "PATIENCE", LONG)
    queue, gate = Line(), gates()
    job = queue.join("same", gate)
    assert gate.began.wait(LONG)
    queue.leave(job, at_once=False)  # its script begins anew
    assert queue.join("same", gate) is job and job.deadline is None
    monkeypatch.setattr(line, "PATIENCE", 0.0)
    queue.leave(job, at_once=False)
    assert soon(lambda: gate.ended == "stopped")


def test_a_stop_button_ends_its_own_work_that_nobody_waits_for_and_nothing_else(
    gates: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "PATIENCE", LONG)
    queue, mine, theirs = Line(), gates(), gates()
    job, left = queue.join(("claim", "mine"), mine), queue.join(("claim", "theirs"), theirs)
    awaited = queue.join(("another", "mine"), gates())
    assert mine.began.wait(LONG)
    queue.leave(job, at_once=False)
    queue.leave(left, at_once=False)  # of another session, whose script begins anew
    queue.give_up("mine")
    assert soon(lambda: mine.ended == "stopped") and theirs.began.wait(LONG)
    assert not left.unwanted and not awaited.unwanted


def test_faults_reach_who_waits_and_the_line_goes_on() -> None:
    queue = Line()

    def broken() -> None:
        raise ValueError("no such layer")

    job = queue.join("broken", broken)
    assert job.done.wait(LONG)
    with pytest.raises(ValueError, match="no such layer"):
        job.answer()
    assert finished(queue.join("next", lambda: torch.is_grad_enabled())) is False


def test_who_comes_when_the_work_is_just_being_ended_has_it_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Line):
        joined = 0

        def join(self, key: Any, work: Callable[[], Any]) -> Job:
            job, self.joined = super().join(key, work), self.joined + 1
            assert job.done.wait(LONG)
            job.fault = Stopped() if self.joined == 1 else None
            return job

    monkeypatch.setattr(st.runtime, "exists", lambda: True)
    assert turns.taken(Late(), "same", lambda: "done") == "done"


def test_work_stopped_inside_of_contexts_leaves_its_thread_as_it_was() -> None:
    job = Job("nested", lambda: None)

    def nested() -> None:
        with torch.enable_grad():
            x = torch.ones(3, requires_grad=True)
            with torch.no_grad():
                job.deadline = 0.0
            (x * x).sum().backward()

    job.work = nested
    job.run()
    with pytest.raises(Stopped):
        job.answer()
    assert torch.is_grad_enabled() and not at_work()


def test_what_it_found_is_not_kept_alive() -> None:
    import gc
    import weakref

    queue = Line()
    job = queue.join("large", lambda: torch.zeros(10))
    gone = weakref.ref(finished(job))
    finished(queue.join("next", lambda: None))
    del job
    assert soon(lambda: gc.collect() >= 0 and gone() is None)


# ---- what can be stopped ----


def stopped_inside(work: Callable[[], Any]) -> int:
    """Run it, unwanted from its twentieth torch function on: how many it still began."""
    job = Job("long", lambda: None)
    began = 0

    class Counting(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal began
            began += 1
            if began == 20:
                job.deadline = 0.0
            return func(*args, **(kwargs or {}))

    def counted() -> None:
        with Counting():
            work()

    job.work = counted
    job.run()
    with pytest.raises(Stopped):
        job.answer()
    return began


def test_a_forward_pass_and_measures_end_at_the_next_torch_function(assets: Path) -> None:
    model = build(load(assets / "riemannian.safetensors"))
    ids = torch.arange(24)
    trace = model.trace(ids)
    assert stopped_inside(lambda: model.traces(ids)) <= 21
    assert stopped_inside(lambda: read(trace, "entropy")) <= 21


def test_under_the_watch_the_numbers_are_the_same(assets: Path) -> None:
    model = build(load(assets / "riemannian.safetensors"))
    ids = torch.arange(24)
    job = Job("trace", lambda: model.trace(ids))
    job.run()
    assert torch.equal(job.answer().logits, model.trace(ids).logits)
    readings = Job("readings", lambda: [read(job.answer(), name).values for name in MEASURES])
    readings.run()
    expected = [read(job.answer(), name).values for name in MEASURES]
    assert all(np.array_equal(*pair, equal_nan=True) for pair in zip(readings.answer(), expected, strict=True))


def test_a_claim_that_is_stopped_leaves_no_finding() -> None:
    asked = Asked(Request("demo:riemannian", "the"), "the old sailor near the ships sings " * 12, 48)
    asked.evidence  # noqa: B018  (made beforehand, so that the claim itself is stopped)
    assert stopped_inside(lambda: judged(asked, CLAIMS["C3"], None)) <= 21
    job = Job("claim", lambda: answers.finding(asked, "C3", lambda: judged(asked, CLAIMS["C3"], None)))
    job.deadline = 0.0
    job.run()
    assert job.fault is not None and answers.finding(asked, "C3") is None


# ---- on a page ----


class Page:
    """A script in a thread of its own, as Streamlit's server runs it; what it showed, and its end."""

    def __init__(self, script: Path) -> None:
        self.test = AppTest.from_file(script)
        self.spinners: list[str] = []
        self.over = threading.Event()
        self.runner: ScriptRunner | None = None

    def start(self, monkeypatch: pytest.MonkeyPatch) -> Page:
        begin = ScriptRunner.start

        def seen(runner: ScriptRunner) -> None:
            self.runner = runner
            runner.on_event.connect(self._event, weak=False)
            begin(runner)

        monkeypatch.setattr(ScriptRunner, "start", seen)
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def _run(self) -> None:
        self.test.run(timeout=LONG)
        self.over.set()

    def _event(self, _runner: Any, event: ScriptRunnerEvent, forward_msg: ForwardMsg | None = None, **_: Any) -> None:
        if event == ScriptRunnerEvent.ENQUEUE_FORWARD_MSG and forward_msg is not None:
            transient = forward_msg.delta.new_transient.elements
            self.spinners += [one.spinner.text for one in transient if one.WhichOneof("type") == "spinner"]


SCRIPT = """
import streamlit as st
from app import line, turns
st.session_state["began"] = True
st.text(turns.taken(line.COMPUTING, "page", lambda: "answered", "Working"))
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.setattr(line, "COMPUTING", Line())
    monkeypatch.setattr(turns, "POLL", 0.02)
    (tmp_path / "script.py").write_text(SCRIPT)
    return Page(tmp_path / "script.py")


def test_a_page_says_what_is_before_it_and_then_answers(
    page: Page, gates: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = gates(), gates()
    jobs = [line.COMPUTING.join(name, gate) for name, gate in (("one", first), ("two", second))]
    page.start(monkeypatch)
    assert soon(lambda: any("2 computations before yours" in text for text in page.spinners))
    first.may_end.set()
    assert soon(lambda: any("1 computation before yours" in text for text in page.spinners))
    second.may_end.set()
    assert page.over.wait(LONG) and [finished(job) for job in jobs] == ["done", "done"]
    assert page.test.text[0].value == "answered"


def test_a_page_that_is_stopped_leaves_the_line(
    page: Page, gates: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = gates()
    line.COMPUTING.join("before", gate)
    page.start(monkeypatch)
    assert soon(lambda: len(line.COMPUTING.waiting) == 1)
    assert page.runner is not None
    page.runner.request_stop()
    assert page.over.wait(LONG)  # while what is before it still runs
    assert not gate.ended and all(job.unwanted for job in line.COMPUTING.waiting)


def test_a_page_draws_in_the_line_what_it_draws_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole entry: all that is asked for is computed in the worker, and none of it in the script's own thread."""
    BUDGET.clear()
    threads: set[str] = set()
    run = traces.run
    monkeypatch.setattr(traces, "run", lambda *a, **k: (threads.add(threading.current_thread().name), run(*a, **k))[1])
    test = AppTest.from_file(ENTRY, default_timeout=120)
    test.query_params["text"] = "the ships sing"
    test.run()
    assert not test.exception and not test.error
    assert threads == {"computations"}


def test_outside_of_a_page_it_is_done_at_once() -> None:
    assert st.runtime.exists() is False
    assert turns.taken(Line(), "here", lambda: threading.current_thread().name) == threading.current_thread().name

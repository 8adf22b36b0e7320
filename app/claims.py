"""The claims page: what is checked on which text, one claim after the other, and the table of verdicts."""

from __future__ import annotations

import html
import json
import math
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import streamlit as st

from app import answers, claims_results, tables, widgets
from app.line import COMPUTING
from app.request import Request
from app.side import Side
from app.view import View
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.claims import CLAIMS, Claim, Finding, attempt
from fbt_core.claims.evidence import Evidence, Options
from fbt_core.claims.table import FAILS, HOLDS, NOT_TESTABLE
from fbt_core.commands.claims import record
from fbt_core.sample import sample_text

TEXTS = {"bundled": "the bundled text", "sidebar": "the sidebar's text"}
"""Which text is read: claims on losses and ranks need some thousand words, and the sidebar's has seldom so many."""

SYMBOLS = {HOLDS: "✓", FAILS: "✗", NOT_TESTABLE: "–"}
COLOURS = {HOLDS: "#009E73", FAILS: "#D55E00", NOT_TESTABLE: "#8a8d98"}
"""Of Okabe and Ito; the symbol and the word say the same."""

RUNNING = "_claims_running"
"""Session state: the questions that are being answered, until Stop."""

BY_RESULTS = "C14"
"""The claim that a sweep's results decide."""


@dataclass(frozen=True)
class Asked:
    """One side's question: all that its findings depend on, the sweep's results apart."""

    request: Request
    text: str
    tokens: int

    @property
    def evidence(self) -> Evidence:
        """What the claims look at, cached. Raises ``ValueError`` or ``CheckpointError`` where there is none."""
        return answers.evidence(self.request, self.text, self.tokens)


def choose(view: View) -> list[Asked]:
    """The controls, and what they ask of every side."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        which = st.segmented_control(
            "Read", list(TEXTS), default="bundled", required=True, key="claims-text", bind="query-params",
            format_func=TEXTS.__getitem__,
        )  # fmt: skip
        tokens = st.number_input(
            "Tokens traced", 16, 1024, 256, step=16, key="claims-tokens", bind="query-params", width=160,
            help="The ranks and maps are of the text's first so many tokens; losses are of windows behind them.",
        )  # fmt: skip
        claims_results.choose()
    text = sample_text() if which == "bundled" else view.run.text
    return [Asked(side.request, text, int(tokens)) for side in view.sides]


def findings(asked: Asked) -> dict[str, Finding]:
    """What was found so far, by claim."""
    digest = claims_results.held().digest
    found = {name: answers.finding(asked, _key(name, digest)) for name in CLAIMS}
    return {name: one for name, one in found.items() if one is not None}


def check(asked: Asked, name: str) -> Finding:
    """One claim on one side, kept. Stopped, it leaves nothing behind."""
    results = claims_results.held()
    rows = results.rows if name == BY_RESULTS else None
    found = answers.finding(asked, _key(name, results.digest), lambda: _judged(asked, CLAIMS[name], rows))
    answers.evidence.weigh(asked.request, asked.text, asked.tokens)  # it keeps what several claims share
    assert found is not None
    return found


def _judged(asked: Asked, claim: Claim, results: Any) -> Finding:
    """Why there is no evidence is a finding as well: the same for every claim."""
    try:
        evidence = asked.evidence
    except (ValueError, CheckpointError) as fault:
        return Finding(NOT_TESTABLE, math.nan, f"{fault}.", "A checkpoint that can be run on a text.")
    if results is not None:
        evidence = replace(evidence, options=Options(asked.tokens, results=results))
    return attempt(claim, evidence)


def _key(name: str, digest: str) -> str:
    return f"{name} {digest}" if name == BY_RESULTS and digest else name


def run(view: View, asked: list[Asked], place: Any) -> None:
    """The button; once pressed, claim after claim, the table in ``place`` growing with every one. Stop ends it at
    once, and what was found stays; after any other click it goes on."""
    todo = [(side, one, name) for name in CLAIMS for side, one in zip(view.sides, asked, strict=True)
            if name not in findings(one)]  # fmt: skip
    total = len(CLAIMS) * len(asked)
    if not todo:
        return
    words = f"Check {'all' if len(todo) == total else 'the other'} {len(todo)} claims"
    button, line = st.empty(), st.empty()  # two places: what stood in one would linger beside what comes
    if st.session_state.get(RUNNING) != tuple(asked):
        with button.container(horizontal=True, vertical_alignment="center"):
            st.button(words, type="primary", key="claims-check", on_click=_go, args=(tuple(asked),))
            st.caption("About a minute a checkpoint on two cores, more for a large model: everything is in float64.")
        return
    button.empty()
    with line.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, "Running the model in float64")
        st.button("Stop", key="claims-stop", on_click=_stopped, help="At once; what was found stays.")
    for done, (side, one, name) in enumerate(todo):
        bar.progress(done / len(todo), f"{side.name + ': ' if view.compare else ''}{name} {CLAIMS[name].title}")
        check(one, name)
        with place.container():
            table(view, asked)
    _stop()
    line.empty()


def _go(asked: tuple[Asked, ...]) -> None:
    st.session_state[RUNNING] = asked


def _stopped() -> None:
    for asked in st.session_state.get(RUNNING, ()):
        COMPUTING.give_up(asked)
    _stop()


def _stop() -> None:
    st.session_state.pop(RUNNING, None)


def chip(verdict: str) -> str:
    """A verdict as HTML: symbol, word, colour."""
    return (f'<span style="color:{COLOURS[verdict]};font-weight:600;white-space:nowrap">'
            f"{SYMBOLS[verdict]}&nbsp;{verdict}</span>")  # fmt: skip


def measured(claim: Claim, found: Finding) -> str:
    """``0.669 times``; a dash for none."""
    if not math.isfinite(found.statistic):
        return "—"
    return f"{found.statistic:.3g} {claim.unit}".strip()


def table(view: View, asked: list[Asked]) -> None:
    """Every claim in a row: its verdict and statistic a side, and with one side the reason."""
    found = [findings(one) for one in asked]
    sides = [f"<th>{_text(side.title)}</th><th>statistic</th>" for side in view.sides]
    why = "" if view.compare else '<th class="why">why</th>'
    head = f"<tr><th></th><th>claim</th>{''.join(sides)}<th>threshold</th>{why}</tr>"
    st.html(STYLE + f'<table class="claims">{head}{"".join(_row(claim, found) for claim in CLAIMS.values())}</table>')
    counts = [
        f"{_said(view, side)}{sum(one.verdict == HOLDS for one in each.values())} hold, "
        f"{sum(one.verdict == FAILS for one in each.values())} fail, "
        f"{sum(one.verdict == NOT_TESTABLE for one in each.values())} not testable"
        for side, each in zip(view.sides, found, strict=True)
    ]
    st.caption(". ".join(counts) + ". Verdicts are of these checkpoints and this text; each claim opens below.")


STYLE = """<style>
table.claims { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
table.claims th { text-align: left; font-weight: 600; opacity: 0.75; white-space: nowrap; }
table.claims th, table.claims td { padding: 0.28rem 0.7rem 0.28rem 0; vertical-align: top;
  border-bottom: 1px solid rgba(128,128,128,0.25); }
table.claims td.n { white-space: nowrap; font-variant-numeric: tabular-nums; }
table.claims td.why { opacity: 0.85; }
@media (max-width: 1200px) { table.claims .why { display: none; } }
.katex-display { overflow-x: auto; overflow-y: hidden; }
</style>"""


def _row(claim: Claim, found: list[dict[str, Finding]]) -> str:
    cells = [f'<td class="n"><b>{claim.id}</b></td><td>{_text(claim.title)}</td>']
    for one in found:
        if claim.id in one:
            finding = one[claim.id]
            cells.append(f'<td>{chip(finding.verdict)}</td><td class="n">{_text(measured(claim, finding))}</td>')
        else:
            cells.append("<td>…</td><td></td>")
    cells.append(f'<td class="n">{claim.threshold:g}</td>')
    if len(found) == 1:
        cells.append(f'<td class="why">{_text(found[0][claim.id].why) if claim.id in found[0] else ""}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _text(text: str) -> str:
    return html.escape(text, quote=False)


def _said(view: View, side: Side) -> str:
    return f"{side.name}: " if view.compare else ""


def export(view: View, asked: list[Asked]) -> None:
    """The whole table as CSV and as JSON, which has what the command writes."""
    found = [(side, findings(one), one) for side, one in zip(view.sides, asked, strict=True)]
    if not any(each for _, each, _ in found):
        return
    with st.container(horizontal=True):
        st.download_button(
            "Table as CSV", lambda: tables.csv(_frame(found)), "claims.csv", "text/csv", on_click="ignore",
            key="claims-csv",
        )  # fmt: skip
        st.download_button(
            "All findings as JSON", lambda: _json(found), "claims.json", "application/json", on_click="ignore",
            key="claims-json",
        )  # fmt: skip


def _frame(found: list[tuple[Side, dict[str, Finding], Asked]]) -> pd.DataFrame:
    rows = [
        {"checkpoint": side.label, "id": claim.id, "claim": claim.title, "verdict": each[claim.id].verdict,
         "statistic": each[claim.id].statistic, "threshold": claim.threshold, "unit": claim.unit,
         "why": each[claim.id].why, "would_change": each[claim.id].would_change}
        for side, each, _ in found for claim in CLAIMS.values() if claim.id in each
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _json(found: list[tuple[Side, dict[str, Finding], Asked]]) -> bytes:
    sides = [
        {"checkpoint": side.label, "what_if": side.explained, "tokens": asked.tokens,
         "claims": [record(CLAIMS[name], one) for name, one in each.items()]}
        for side, each, asked in found
    ]  # fmt: skip
    return json.dumps({"checkpoints": sides}, allow_nan=False, ensure_ascii=False, indent=1).encode()


def remarks(view: View, asked: list[Asked]) -> None:
    """What a reader must know of everything on the page, once a claim was checked."""
    told = []
    for side, one in zip(view.sides, asked, strict=True):
        if findings(one):
            try:
                told += [f"{_said(view, side)}{note}" for note in one.evidence.notes]
            except (ValueError, CheckpointError):
                continue  # every finding says it
        if side.explained:
            told.append(f"{_said(view, side)}{side.explained}")
    for note in dict.fromkeys(told):
        st.caption(widgets.plain(note))

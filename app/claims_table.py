"""The table of verdicts, and what can be taken away of it."""

from __future__ import annotations

import json
import math

import pandas as pd
import streamlit as st

from app import tables, widgets
from app.claims_findings import Asked, findings
from app.figures.theme import label
from app.side import Side
from app.view import View
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.claims import CLAIMS, Claim, Finding
from fbt_core.claims.table import FAILS, HOLDS, NOT_TESTABLE
from fbt_core.commands.claims import record

SYMBOLS = {HOLDS: "✓", FAILS: "✗", NOT_TESTABLE: "–"}
COLOURS = {HOLDS: "#009E73", FAILS: "#D55E00", NOT_TESTABLE: "#8a8d98"}
"""Of Okabe and Ito; the symbol and the word say the same."""


def table(view: View, asked: list[Asked]) -> None:
    """Every claim in a row: its verdict and statistic a side, and with one side the reason."""
    found = [findings(one) for one in asked]
    sides = [f"<th>{label(side.title)}</th><th>statistic</th>" for side in view.sides]
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
    cells = [f'<td class="n"><b>{claim.id}</b></td><td>{label(claim.title)}</td>']
    for one in found:
        if claim.id in one:
            finding = one[claim.id]
            cells.append(f'<td>{chip(finding.verdict)}</td><td class="n">{label(measured(claim, finding))}</td>')
        else:
            cells.append("<td>…</td><td></td>")
    cells.append(f'<td class="n">{claim.threshold:g}</td>')
    if len(found) == 1:
        cells.append(f'<td class="why">{label(found[0][claim.id].why) if claim.id in found[0] else ""}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def chip(verdict: str) -> str:
    """A verdict as HTML: symbol, word, colour."""
    return (f'<span style="color:{COLOURS[verdict]};font-weight:600;white-space:nowrap">'
            f"{SYMBOLS[verdict]}&nbsp;{verdict}</span>")  # fmt: skip


def measured(claim: Claim, found: Finding) -> str:
    """``0.669 times``; a dash for none."""
    if not math.isfinite(found.statistic):
        return "—"
    return f"{found.statistic:.3g} {claim.unit}".strip()


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

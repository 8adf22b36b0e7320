"""``python -m fbt_core claims``: the paper's claims on one checkpoint and text, each with a verdict."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from fbt_core.checkpoints import load
from fbt_core.claims import CLAIMS, Claim, Evidence, Finding, Options, attempt, gather
from fbt_core.commands.arguments import (
    CheckpointArgument,
    DeviceOption,
    PartOption,
    RankOption,
    SourceOption,
    StrengthOption,
    checked_device,
    number,
    one_line_errors,
    what_if_of,
    write,
)
from fbt_core.sample import sample_text

BUNDLED = "the bundled sample"


def claims(
    checkpoint: CheckpointArgument,
    text: Annotated[str, typer.Option(help="A file with the text to read; default: the bundled one.")] = "",
    only: Annotated[str, typer.Option(help=f"Some of {', '.join(CLAIMS)}, with commas between; default: all.")] = "",
    tokens: Annotated[int, typer.Option(min=2, max=4096, help="How many of the first tokens are traced.")] = 256,
    seed: Annotated[int, typer.Option(min=0, max=10**9, help="Of everything that is drawn at random.")] = 0,
    results: Annotated[Path | None, typer.Option(help="Results of a sweep (Parquet) with twins, for C14.")] = None,
    json_to: Annotated[str, typer.Option("--json", help="Write JSON to this file, - for standard output.")] = "",
    strength: StrengthOption = 1.0,
    source: SourceOption = "",
    rank: RankOption = 4,
    part: PartOption = None,
    device: DeviceOption = "cpu",
) -> None:
    """Check the paper's claims on a checkpoint and a text, in float64: each holds, fails, or cannot be tested."""
    with one_line_errors():
        chosen, name, read = _chosen(only), Path(text.removeprefix("@")).name or BUNDLED, _text(text)
        rows = None if results is None else _rows(results)
        loaded = load(checkpoint[0] if len(checkpoint) == 1 else checkpoint, part=part)
        options, device = Options(tokens, seed, rows), checked_device(device)
        evidence = gather(loaded, read, options, source=source, rank=rank, strength=strength, device=device)
        about = {"checkpoint": loaded.origin.name, "text": name, "tokens": evidence.trace.length, **_remarks(evidence)}
        if json_to:
            table = [record(claim, finding) for claim, finding in _judged(chosen, evidence, aloud=sys.stderr.isatty())]
            write(json_to, json.dumps({**about, "claims": table}, allow_nan=False, ensure_ascii=False) + "\n")
            return
        write("-", _heading(about))
        for claim, finding in _judged(chosen, evidence, aloud=False):
            write("-", _lines(claim, finding))


def _judged(chosen: list[Claim], evidence: Evidence, aloud: bool) -> Iterator[tuple[Claim, Finding]]:
    """One after another, named on a terminal while the whole is awaited."""
    for done, claim in enumerate(chosen, 1):
        if aloud:
            typer.echo(f"{done}/{len(chosen)} {claim.id} {claim.title}", err=True)
        yield claim, attempt(claim, evidence)


def _chosen(only: str) -> list[Claim]:
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = {name.lower(): claim for name, claim in CLAIMS.items()}
    if unknown := [name for name in names if name.lower() not in known]:
        raise ValueError(f"got --only {unknown[0]!r}, expected some of {', '.join(CLAIMS)}")
    wanted = {name.lower() for name in names}
    return [claim for name, claim in known.items() if not wanted or name in wanted]


def _text(text: str) -> str:
    if not text:
        return sample_text()
    path = Path(text.removeprefix("@"))
    if len(text) > 4096 or not path.is_file():
        raise ValueError(f"got --text {text[:60]!r}, expected a file: write the text into one, or leave the option out")
    return path.read_text(encoding="utf-8")


def _rows(path: Path) -> Any:
    from fbt_core.experiments import results  # pyarrow and pandas are slow to import, and seldom needed here

    return results.read(path)[0]


def _remarks(evidence: Evidence) -> dict[str, Any]:
    """What a reader must know of all findings; nothing where there is nothing."""
    found = {"what_if": what_if_of(evidence.trace), "notes": [*evidence.notes, *evidence.trace.notes]}
    return {name: value for name, value in found.items() if value}


def record(claim: Claim, found: Finding) -> dict[str, Any]:
    """One claim as the JSON has it. A value that is not a number is null."""
    return {
        "id": claim.id, "title": claim.title, "verdict": found.verdict, "statistic": number(found.statistic),
        "threshold": number(claim.threshold), "unit": claim.unit, "why": found.why, "would_change": found.would_change,
        "numbers": {name: number(value) for name, value, _ in found.numbers},
        "grid": None if found.grid is None else [[number(value) for value in row] for row in found.grid],
        "grid_title": found.grid_title, "notes": list(found.notes),
    }  # fmt: skip


def _heading(about: dict[str, Any]) -> str:
    lines = [f"{about['checkpoint']} on {about['tokens']} tokens of {about['text']}, float64"]
    lines += [about["what_if"]] if "what_if" in about else []
    return "\n".join([*lines, *about.get("notes", ()), ""])


def _lines(claim: Claim, found: Finding) -> str:
    """A line with the verdict, one with the reason."""
    measured = "" if number(found.statistic) is None else f"{found.statistic:.4g} (threshold {claim.threshold:g})"
    unit = f" {claim.unit}" if measured and claim.unit else ""
    return f"\n{claim.id:<4} {found.verdict:<13}{claim.title}: {measured}{unit}\n     {found.why}\n"

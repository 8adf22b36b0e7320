"""``python -m fbt_core ranks``: rank and spread by depth of many checkpoints, as rows of a file and as one table."""

from __future__ import annotations

import hashlib
import math
import tempfile
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from fbt_core.commands.arguments import DeviceOption, DtypeOption, checked_device, one_line_errors, write
from fbt_core.experiments.backends import BACKENDS
from fbt_core.experiments.ranks import BLOCK, CHARACTERS_A_TOKEN, EMBEDDING, run
from fbt_core.experiments.series import Member, members
from fbt_core.experiments.sweep import SweepError, sweep
from fbt_core.model.ablation import VARIANTS
from fbt_core.sample import sample_text

SHOWN = ("effective_rank", "dong_residual")
"""Measures of the printed table; the file has all of them."""

HEADS = (
    "checkpoint", "step", "variant", "tokens", "blocks",
    *(f"{title} {place}" for title in ("rank", "Dong") for place in ("at 0", "half", "end")),
)  # fmt: skip
"""Of the printed table. 0 is the embedding, the end is after the last block."""


def ranks(
    checkpoint: Annotated[
        list[Path], typer.Argument(help="Checkpoints: files, folders, folders of many such as a training's steps.")
    ],
    text: Annotated[Path | None, typer.Option(help="The text to read, a file; default: the bundled one.")] = None,
    tokens: Annotated[int, typer.Option(min=2, help="How many of its first tokens are read.")] = 256,
    ablations: Annotated[
        bool, typer.Option("--ablations", help="Also without feed-forward, without skips, and without both.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write all rows here (Parquet); the same command again resumes.")
    ] = None,
    backend: Annotated[str, typer.Option(help=" | ".join(BACKENDS))] = "joblib",
    workers: Annotated[int | None, typer.Option(min=1, help="Checkpoints at a time; default: one a core.")] = None,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs, or a share of one, that each asks for.")] = 0.0,
    address: Annotated[str | None, typer.Option(help="Of a running Ray or Dask cluster; default: a local one.")] = None,
    restart: Annotated[bool, typer.Option(help="Forget what was done, and what stands in the results file.")] = False,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = "auto",
) -> None:
    """Measure rank and spread by depth of many checkpoints on one text; what cannot be used is a row that says why."""
    with one_line_errors(SweepError), tempfile.TemporaryDirectory() as folder:
        read = sample_text() if text is None else text.read_text(encoding="utf-8")
        variants = [*VARIANTS] if ablations else ["full"]
        shared = {"variants": variants, "text": read[: tokens * CHARACTERS_A_TOKEN], "length": tokens, "dtype": dtype}
        shared["device"] = device if gpus else checked_device(device)  # the GPUs asked for may be another machine's
        jobs = [job(member, shared) for member in members(checkpoint)]
        identity = {"experiment": "ranks", "text": "" if text is None else text.name, "tokens": tokens}
        identity["text_sha256"] = hashlib.sha256(read.encode()).hexdigest()
        frame = sweep(
            jobs, run, out or Path(folder) / "ranks.parquet", identity=identity, backend=backend, workers=workers,
            gpus=gpus, address=address, restart=restart, name="ranks",
        )  # fmt: skip
    write("-", table(frame) + "\n")


def job(member: Member, shared: dict[str, Any]) -> dict[str, Any]:
    """The parameters of one checkpoint's job; its ``stamp`` makes a changed file another job."""
    own = {"path": str(member.path), "model": member.model, "checkpoint": member.name, "step": member.step}
    return own | {"stamp": member.stamp} | shared


def table(frame: pd.DataFrame) -> str:
    """A line a checkpoint and variant: raw tokens, sinks kept, at the embedding, half way and after the last block."""
    found = [part for _, part in frame.groupby(["checkpoint", "variant"], sort=False)]
    lines = [HEADS, *map(_line, found)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEADS))]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    errors = ["", *(part["error"].iloc[0] for part in found)]
    told = [(row.rstrip() if not why else f"{row.rstrip()}  {why}") for row, why in zip(rows, errors, strict=True)]
    used = sum(not why for why in errors[1:])
    told += [
        "",
        f"{used} of {len(found)} could be used. Effective rank and Dong residual of the raw tokens, sinks kept, at",
    ]
    told += ["the embedding (0), half way and after the last block. Every measure: docs/measures.md."]
    return "\n".join(told)


def _line(part: pd.DataFrame) -> tuple[str, ...]:
    """The cells of one checkpoint and variant; those of its values are empty where it has none."""
    first = part.iloc[0]
    start = (str(first["checkpoint"]), _whole(first["step"]), str(first["variant"]))
    shown = part[(part["tokens"] == "raw") & (part["sinks"] == "kept") & part["where"].isin([EMBEDDING, BLOCK])]
    if shown.empty:
        return (*start, *[""] * (len(HEADS) - len(start)))
    shown = shown.sort_values("layer")
    places = (0, len(shown) // 2, len(shown) - 1)
    values = [f"{shown[name].iloc[place]:.4g}" for name in SHOWN for place in places]
    return (*start, _whole(first["count"]), str(len(shown) - 1), *values)


def _whole(value: float) -> str:
    return f"{int(value)}" if math.isfinite(value) else "-"

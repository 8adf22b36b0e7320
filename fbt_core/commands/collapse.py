"""The command line of the collapse experiment: ``python -m fbt_core collapse``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from fbt_core.commands.arguments import one_line_errors
from fbt_core.experiments import collapse as experiment
from fbt_core.experiments import results
from fbt_core.experiments.backends import BACKENDS
from fbt_core.experiments.exponents import exponents as exponents_of
from fbt_core.experiments.plan import Plan, cost, read_plan
from fbt_core.experiments.report import exponents_table, report, verdict_lines
from fbt_core.experiments.rule_exponent import exponent_table
from fbt_core.experiments.rules import judge
from fbt_core.experiments.sweep import SweepError, sweep


def collapse(
    plan: Annotated[Path | None, typer.Option(help="Run this plan (TOML); the same command again resumes it.")] = None,
    out: Annotated[Path | None, typer.Option(help="Results file (Parquet); default: the plan's name in runs/.")] = None,
    backend: Annotated[str, typer.Option(help=" | ".join(BACKENDS))] = "joblib",
    workers: Annotated[int | None, typer.Option(min=1, help="Jobs at a time; default: one a core.")] = None,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs, or a share of one, that each job asks for.")] = 0.0,
    address: Annotated[str | None, typer.Option(help="Of a running Ray or Dask cluster; default: a local one.")] = None,
    restart: Annotated[bool, typer.Option(help="Forget what was done, and what stands in the results file.")] = False,
    exponents: Annotated[
        bool, typer.Option("--exponents", help="Residual exponents in high precision; with --out also to a file.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Of --exponents.")] = 3,
    report_file: Annotated[
        Path | None, typer.Option("--report", help="Print the tables of a results file as Markdown.")
    ] = None,
) -> None:
    """Does a metric for each token prevent rank collapse? Run a plan and print the four rules, or a file's tables."""
    if sum((plan is not None, exponents, report_file is not None)) != 1:
        with one_line_errors():
            raise ValueError("got none or several of --plan, --exponents and --report, expected one of them")
    with one_line_errors(SweepError):
        if report_file is not None:
            frame, about = results.read(report_file)
            print(report(frame, _beside(report_file), about), end="")
        elif exponents:
            print(exponents_table(exponent_table(_exponents(out, seeds))))
        elif plan is not None:
            _run(read_plan(plan), out, backend, workers, gpus, address, restart)


def _run(
    plan: Plan, out: Path | None, backend: str, workers: int | None, gpus: float, address: str | None, restart: bool
) -> None:
    target = out or Path("runs") / f"{plan.name}.parquet"
    own = results.own_exponents(target)
    if restart:
        own.unlink(missing_ok=True)
    frame = sweep(
        plan.jobs, experiment.run, target, identity=plan.identity, backend=backend, workers=workers, gpus=gpus,
        address=address, restart=restart, name=plan.name, cost=cost, single=experiment.COLUMNS,
    )  # fmt: skip
    if plan.exponents and not (own.is_file() and results.read(own)[0]["seed"].nunique() == plan.exponents):
        _exponents(own, plan.exponents)
    print(f"{target}: {len(frame):,} rows of {len(plan.jobs)} jobs")
    print(verdict_lines(judge(frame, _beside(target))))


def _exponents(out: Path | None, seeds: int) -> pd.DataFrame:
    frame = exponents_of(seeds=range(seeds))
    if out is not None:
        results.write(out, frame, {"identity": {"experiment": "exponents"}, "versions": results.versions()})
    return frame


def _beside(file: Path) -> pd.DataFrame | None:
    """The residuals in high precision that lie beside a results file."""
    place = results.exponents_beside(file)
    return results.read(place)[0] if place else None

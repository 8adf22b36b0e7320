"""Many jobs, one table: run on cores or a cluster, resumed after a kill, the same rows whatever ran them.

Each finished job is a line of ``OUT.journal``; the same command goes on where a killed one was. At the end there is one
Parquet file, its rows in the order of the jobs, and the journal is gone.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pandas as pd

from fbt_core.experiments import results
from fbt_core.experiments.backends import BACKENDS, Cluster, Outcome, Run, Task
from fbt_core.experiments.journal import REMEDY, Journal
from fbt_core.experiments.progress import SweepProgress


class SweepError(Exception):
    """Jobs that failed. Those that did not are in the journal, so the same command tries the failed ones again."""


def sweep(
    jobs: Sequence[dict[str, Any]],
    run: Run,
    out: Path,
    *,
    identity: dict[str, Any],
    backend: str = "joblib",
    workers: int | None = None,
    gpus: float = 0.0,
    address: str | None = None,
    restart: bool = False,
    name: str = "sweep",
    cost: Callable[[dict[str, Any]], float] = lambda job: 1.0,
    single: Sequence[str] = (),
) -> pd.DataFrame:
    """The rows of all jobs, in the order of the jobs, which are then in the Parquet file ``out`` as well.

    ``jobs`` are dicts of plain values, ``run`` a module-level, deterministic function from one to its rows.
    ``identity`` says in plain values what is run; with the jobs themselves it decides whether a journal or a finished
    file is of the same sweep. ``workers`` jobs run at a time (default: one a core); each asks for ``gpus``. ``address``
    is that of a running Ray or Dask scheduler. ``cost`` estimates a job, for the time left. Columns of
    ``single`` are kept in single precision, in a file of half the size.

    Raises ``ValueError`` (got, expected: remedy) for a journal or file of another sweep, and ``SweepError``, when all
    other jobs are done, for jobs that failed.
    """
    if backend not in BACKENDS:
        raise ValueError(f"got --backend {backend!r}, expected one of {', '.join(BACKENDS)}")
    jobs = [json.loads(json.dumps(job)) for job in jobs]
    whole = json.loads(json.dumps(identity)) | {"jobs": len(jobs), "jobs_sha256": digest(jobs)}
    journal = Journal(out.with_name(f"{out.name}.journal"), whole, restart)
    if out.exists() and not restart:
        return _finished(out, whole)
    cluster = Cluster(workers or cores(), gpus, address)
    began = time.monotonic()
    with journal:
        if restart:  # not before the journal is ours: another command may be at work on the same file
            out.unlink(missing_ok=True)
        _work(jobs, run, journal, BACKENDS[backend], cluster, name, cost)
        frame = pd.DataFrame([row for number in range(len(jobs)) for row in journal.done[number]])
        frame = frame.astype({column: "float32" for column in single if column in frame})
        about = {
            "identity": whole, "versions": results.versions(), "backend": backend, "workers": cluster.workers,
            "job_seconds": round(journal.seconds, 1), "last_command_seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip
        results.write(out, frame, about)
        journal.remove()
    return results.read(out)[0]


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def digest(jobs: Sequence[dict[str, Any]]) -> str:
    """SHA-256 of the jobs' parameters, in their order."""
    return hashlib.sha256(json.dumps(list(jobs), sort_keys=True).encode()).hexdigest()


def _finished(out: Path, whole: dict[str, Any]) -> pd.DataFrame:
    """The rows of a file that is there already, if it is of this sweep."""
    frame, about = results.read(out)
    if about.get("identity") != whole:
        raise ValueError(f"got {out.name}, the results of another plan, expected those of this one: {REMEDY}")
    return frame


def _work(
    jobs: list[dict[str, Any]], run: Run, journal: Journal, backend: Callable[..., Any], cluster: Cluster,
    name: str, cost: Callable[[dict[str, Any]], float],
) -> None:  # fmt: skip
    """Run what is not in the journal yet; raise ``SweepError`` at the end if some of it failed."""
    left = [number for number in range(len(jobs)) if number not in journal.done]
    failed: list[Outcome] = []
    shown = SweepProgress(name, [cost(job) for job in jobs], left)
    try:
        for outcome in backend([Task(number, run, jobs[number]) for number in left], cluster) if left else ():
            if outcome.fault:
                failed.append(outcome)
                continue
            journal.append(outcome.number, outcome.rows, outcome.seconds)
            shown.finished(outcome.number)
    except BrokenProcessPool as fault:
        remedy = "the same command goes on, better with fewer --workers"
        raise SweepError(f"a worker died, perhaps for want of memory: {remedy}") from fault
    finally:
        shown.close()
    if failed:
        first = min(failed, key=lambda outcome: outcome.number)
        raise SweepError(
            f"{len(failed)} of {len(jobs)} jobs failed, the others are kept; the first is number {first.number}, "
            f"{jobs[first.number]}:\n{first.fault}"
        )

"""Jobs that a sweep can send to other processes: small stand-ins for the real ones. As a script, a sweep to be killed.

``python -m tests.sweep_jobs OUT LOG JOBS`` runs that many slow jobs.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch

from fbt_core.experiments.sweep import sweep


def trivial(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Two rows whose last digits would tell another order of the sums, and one number that is not defined."""
    generator = torch.Generator().manual_seed(parameters["seed"])
    matrix = torch.randn(64, 64, generator=generator)
    values = torch.linalg.svdvals(matrix @ matrix)
    rows = [{**parameters, "layer": layer, "value": float(values[layer]), "loss": float("nan")} for layer in range(2)]
    return [row | {"threads": torch.get_num_threads()} for row in rows]


def slow(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """The same, a twentieth of a second later, told to a file of the caller's."""
    time.sleep(0.05)
    with Path(parameters["log"]).open("a") as log:
        log.write(f"{parameters['seed']}\n")
    return trivial(parameters)


def failing(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Fails for seed 1 until a file is there."""
    if parameters["seed"] == 1 and not Path(parameters["log"]).exists():
        raise RuntimeError("seed 1 fails")
    return trivial(parameters)


def jobs(count: int, **more: Any) -> list[dict[str, Any]]:
    """Jobs that differ in their seed."""
    return [{"seed": seed, **more} for seed in range(count)]


if __name__ == "__main__":
    out, log, count = sys.argv[1:]
    sweep(jobs(int(count), log=log), slow, Path(out), identity={"plan": "kill"}, workers=1)

"""A plan of the collapse experiment: a TOML file of grids, each the product of its lists, as a list of jobs.

name = "smoke"
says = "what it is for"
exponents = 1  # seeds of the residuals in high precision (rule T1); 0: none
[[grid]]
stage = "initial"
arms = ["heterogeneous", "homogeneous", "matched"]     # one job runs all of them, on the same tokens
strengths = { "tau/L" = [0, 1, 10], "tau/R^2" = [4] }  # unit = values
sizes = [{ length = 64, width = 8, layers = 12 }]
tied = [false, true]                                   # any other parameter of a job: a value, or a list of them
seeds = 10                                             # 0 to 9; or a list
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fbt_core.experiments import collapse

Job = dict[str, Any]

MOST_JOBS = 100_000
"""Of a plan."""

NAME = re.compile(r"[^\W_][\w-]{0,99}")
"""Of a plan: its results file is named after it."""


@dataclass(frozen=True)
class Plan:
    """What a file asks for. ``jobs`` hold every parameter, those that the file left out as well."""

    name: str
    says: str
    jobs: tuple[Job, ...]
    exponents: int = 0  # seeds; not among the jobs, for they take no plan's sizes

    @property
    def identity(self) -> dict[str, Any]:
        """What a journal and a results file say of it."""
        return {"experiment": "collapse", "plan": self.name, "says": self.says}


def read_plan(path: Path) -> Plan:
    """The plan in a file. Raises ``ValueError`` (got, expected: remedy) for what is not one."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise ValueError(f"got {path.name}, which is not TOML ({fault}), expected a plan") from fault
    if unknown := sorted(table.keys() - {"name", "says", "exponents", "grid"}):
        raise ValueError(f"got {', '.join(unknown)} in {path.name}, expected name, says, exponents and [[grid]]")
    name, says, exponents = table.get("name", path.stem), table.get("says", ""), table.get("exponents", 0)
    grids = table.get("grid")
    if not (isinstance(name, str) and isinstance(says, str)):
        raise ValueError(f"got name {name!r} and says {says!r} in {path.name}, expected texts")
    if not NAME.fullmatch(name):
        raise ValueError(
            f"got name {name[:60]!r} in {path.name}, expected letters, digits, - and _: files are named so"
        )
    if type(exponents) is not int or not 0 <= exponents <= 1000:
        raise ValueError(f"got exponents = {exponents!r} in {path.name}, expected a number of seeds")
    if not (isinstance(grids, list) and grids and all(isinstance(grid, dict) for grid in grids)):
        raise ValueError(f"got no grid in {path.name}, expected at least one [[grid]] table")
    jobs: list[Job] = []
    for number, grid in enumerate(grids, 1):
        jobs += _jobs(grid, f"grid {number} of {path.name}", MOST_JOBS - len(jobs))
    _distinct(jobs, path.name)
    return Plan(name, says, tuple(jobs), exponents)


def cost(job: Job) -> float:
    """About how many seconds a job takes on one core: a constant a layer, and the maps, which are L x L.

    Measured at lengths 16 to 256 and widths 4 to 16.
    """
    layers, area = job["layers"] * len(job["arms"]), job["length"] ** 2
    step = 1.3e-3 + 1e-7 * job.get("batch", 1) * area
    return layers * (6e-3 + 3.2e-7 * area + job.get("steps", 0) * step)


def _distinct(jobs: list[Job], file: str) -> None:
    """No arm of a cell and seed twice: the rules would find two rows where there is one, when all was run."""
    seen = set()
    for job in jobs:
        cell = tuple((name, value) for name, value in sorted(job.items()) if name != "arms")
        for arm in job["arms"]:
            if (cell, arm) in seen:
                raise ValueError(
                    f"got the arm {arm} twice in {file} at seed {job['seed']} and strength {job['strength']:g} "
                    f"{job['unit']}, expected each combination once: look for a value that is listed twice"
                )
            seen.add((cell, arm))


def _jobs(grid: dict[str, Any], where: str, most: int) -> Iterator[Job]:
    """Every combination, the seeds outermost: what is done of an unfinished plan covers all of its cells."""
    rest = dict(grid)
    seeds = _seeds(rest.pop("seeds", 1), where)
    arms = _list(rest.pop("arms", []), "arms", where)
    if "strengths" in rest and (both := sorted(rest.keys() & {"strength", "unit"})):
        raise ValueError(f"{where}: got strengths and {' and '.join(both)} too, expected one way: leave out the second")
    axes = [_strengths(rest.pop("strengths", {}), where), _sizes(rest.pop("sizes", [{}]), where)]
    if twice := sorted(rest.keys() & {"arm", "seed"}):
        raise ValueError(f"{where}: got {' and '.join(twice)}, expected arms and seeds")
    for name, value in rest.items():
        axes.append([{name: one} for one in (value if isinstance(value, list) else [value])])
        if not axes[-1]:
            raise ValueError(f"{where}: got {name} = [], expected at least one value")
    if (count := len(seeds) * math.prod(map(len, axes))) > most:
        raise ValueError(f"{where}: got {count} jobs, expected at most {MOST_JOBS} in a plan: shorten its lists")
    for seed in seeds:
        for parts in itertools.product(*axes):
            job: Job = {"arms": arms, "seed": seed}
            for part in parts:
                job |= part
            yield _checked(job, where)


def _checked(job: Job, where: str) -> Job:
    """The job with every parameter, as the experiment itself checks them, and with L >= d^2 as fixed before."""
    try:
        full = collapse.complete(job)
    except (ValueError, TypeError) as fault:
        raise ValueError(f"{where}: {fault}") from fault
    if type(full["tied"]) is not bool or not isinstance(full["device"], str):
        raise ValueError(
            f"{where}: got tied = {full['tied']!r} and device = {full['device']!r}, expected true or false, and a name"
        )
    if full["length"] < full["width"] ** 2:
        raise ValueError(
            f"{where}: got length {full['length']} at width {full['width']}, expected at least its square, "
            f"{full['width'] ** 2}: with fewer tokens the experiment is another one"
        )
    return full | {"arms": list(full["arms"])}


def _seeds(value: Any, where: str) -> list[int]:
    seeds = list(range(min(value, MOST_JOBS + 1))) if type(value) is int else value
    if not (isinstance(seeds, list) and seeds and all(type(seed) is int and 0 <= seed < 2**31 for seed in seeds)):
        raise ValueError(f"{where}: got seeds = {value!r}, expected their number or a list of them, each at least 0")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"{where}: got a seed twice, expected each once: the same seed gives the same rows")
    return seeds


def _strengths(value: Any, where: str) -> list[Job]:
    if not isinstance(value, dict):
        raise ValueError(f'{where}: got strengths = {value!r}, expected a table such as {{ "tau/L" = [0, 1, 10] }}')
    pairs = [
        {"unit": unit, "strength": _number(strength, "strengths", where)}
        for unit, strengths in value.items()
        for strength in _list(strengths, "strengths", where)
    ]
    return pairs or [{}]


def _sizes(value: Any, where: str) -> list[Job]:
    sizes = _list(value, "sizes", where)
    allowed = {"length", "width", "rank", "layers"}
    if not (sizes and all(isinstance(size, dict) and size.keys() <= allowed for size in sizes)):
        raise ValueError(f"{where}: got sizes = {value!r}, expected tables of {', '.join(sorted(allowed))}")
    return sizes


def _list(value: Any, name: str, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{where}: got {name} = {value!r}, expected a list")
    return value


def _number(value: Any, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{where}: got {value!r} in {name}, expected a number")
    return float(value)

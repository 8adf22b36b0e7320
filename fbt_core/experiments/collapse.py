"""The collapse experiment's job: one seed, one strength, and all arms on the same tokens and the same weights.

``run(parameters)`` gives tidy rows, one an arm and layer; row 0 is the input. Deterministic, and without state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fbt_core.experiments.arms import ARMS, REFERENCE
from fbt_core.experiments.profile import FLOOR, Step, of_attention, of_contraction, of_tokens, walk
from fbt_core.experiments.stack import HELD, TRANSPORTS, UNITS, PureStack, Shape, first_tokens
from fbt_core.experiments.task import TASKS
from fbt_core.experiments.trained import Training

Row = dict[str, Any]

DEFAULTS: dict[str, Any] = {
    "stage": "initial",
    "arms": (),  # empty: all of the stage. "arm" may name one instead
    "strength": 16.0,
    "unit": "tau/R^2",
    "held": "layer",  # whose R
    "tied": False,
    "transport": "none",
    "omega": 0.0,
    "seed": 0,
    "length": 64,
    "width": 8,
    "rank": 4,
    "layers": 12,
    "device": "cpu",
}
"""A job's parameters, and what they are where a job does not say."""

TRAINED: dict[str, Any] = {
    "layers": 4,
    "task": "identify",
    "vocabulary": 16,
    "steps": 300,
    "batch": 2,
    "learning_rate": 0.02,
}
"""Those of the trained stage that are more, or other."""

CHOICES: dict[str, tuple[Any, ...]] = {
    "unit": UNITS, "held": HELD, "transport": tuple(TRANSPORTS), "tied": (False, True), "task": tuple(TASKS),
}  # fmt: skip

LEAST: dict[str, float] = {
    "length": 2, "width": 1, "rank": 1, "layers": 1, "strength": 0, "omega": 0, "vocabulary": 2, "steps": 0, "batch": 1,
    "learning_rate": 0,
}  # fmt: skip

COLUMNS = (
    "log10_residual", "mu", "effective_rank", "effective_rank_centred", "participation_ratio", "entropy",
    "entropy_deficit", "narrowness", "dobrushin", "norm_U_mean", "norm_U_max", "self_attention", "M", "R", "tau",
    "match_gap", "diameter", "contraction", "bound", "accuracy", "loss", "chance",
)  # fmt: skip
"""The numbers of a row, NaN where one is not defined."""


def run(parameters: Row) -> list[Row]:
    """The rows of one job: its parameters, ``arm``, ``layer``, ``below_floor`` and ``COLUMNS``.

    Raises ``ValueError`` (got, expected) for a parameter that is unknown or out of its range.
    """
    given = complete(parameters)
    return STAGES[given["stage"]](given)


def complete(parameters: Row) -> Row:
    """The parameters with the defaults filled in, checked; "arm" becomes "arms"."""
    given = dict(parameters)
    if "arm" in given:
        given["arms"] = (given.pop("arm"),)
    stage = given.get("stage", "initial")
    if stage not in STAGES:
        raise ValueError(f"got stage {stage!r}, expected one of {', '.join(STAGES)}")
    known = DEFAULTS | (TRAINED if stage == "trained" else {})
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"got parameters {', '.join(unknown)}, expected, when {stage}, some of {', '.join(known)}")
    full = known | given
    for name in full:
        _check(name, full[name])
    offered = [name for name, arm in ARMS.items() if stage in arm.stages]
    full["arms"] = tuple(full["arms"]) or tuple(offered)
    if wrong := [name for name in full["arms"] if name not in offered]:
        raise ValueError(f"got arms {', '.join(wrong)}, expected some of {', '.join(offered)}")
    return full


def _check(name: str, value: Any) -> None:
    """One parameter's kind and range."""
    if name in CHOICES and value not in CHOICES[name]:
        raise ValueError(f"got {name} = {value!r}, expected one of {', '.join(map(str, CHOICES[name]))}")
    whole = isinstance(({**DEFAULTS, **TRAINED})[name], int)
    if name in LEAST and (isinstance(value, bool) or not isinstance(value, int if whole else (int, float))):
        raise ValueError(f"got {name} = {value!r}, expected a {'whole number' if whole else 'number'}")
    if name in LEAST and not LEAST[name] <= value < math.inf:
        raise ValueError(f"got {name} = {value}, expected a number of at least {LEAST[name]}")


def shape_of(given: Row) -> Shape:
    """The stack of a job."""
    names = ("length", "width", "rank", "layers", "strength", "unit", "tied", "held", "transport", "omega")
    return Shape(**{name: given[name] for name in names})


def initial(given: Row) -> list[Row]:
    """All arms at initialisation, the heterogeneous one first: its exp-entropy is what the matched arms get."""
    shape, seed = shape_of(given), given["seed"]
    x, rows = first_tokens(shape, seed).to(given["device"]), []

    def steps(name: str, wanted: list[float] | None = None) -> list[Step]:
        return walk(PureStack(shape, ARMS[name], seed).to(given["device"]), x, wanted)

    reference = steps(REFERENCE)
    wanted = [step.narrowness for step in reference]
    for name in given["arms"]:
        matched = ARMS[name].temperature == "matched"
        rows += rows_of(given, name, reference if name == REFERENCE else steps(name, wanted if matched else None))
    return rows


def trained(given: Row) -> list[Row]:
    """All arms after training, each measured on held-out sequences; accuracy and loss stand in the last layer's row."""
    training = Training(given, shape_of(given))
    rows: list[Row] = []
    for name in given["arms"]:
        steps, learned = training.profile(name)
        rows += rows_of(given, name, steps, **learned)
    return rows


def rows_of(given: Row, arm: str, steps: list[Step], **more: float) -> list[Row]:
    """One row for the input and one for each layer; ``more`` stands in the last."""
    found = [of_tokens(steps[0].x)]
    for number, step in enumerate(steps, 1):
        found.append(of_tokens(step.out) | of_attention(step) | of_contraction(step, given["seed"], number))
    found[-1] |= more
    parameters = {name: value for name, value in given.items() if name != "arms"} | {"arm": arm}
    return [
        parameters
        | {"layer": layer, "below_floor": numbers["log10_residual"] < math.log10(FLOOR)}
        | {name: numbers.get(name, math.nan) for name in COLUMNS}
        for layer, numbers in enumerate(found)
    ]


STAGES: dict[str, Callable[[Row], list[Row]]] = {"initial": initial, "trained": trained}
"""What a job's stage runs."""

"""L-BFGS for many independent functions at once (Nocedal and Wright, Numerical Optimization, algorithm 7.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

MEMORY = 16
ROUNDING = 1e-14  # of a value: below it a decrease cannot be told from rounding
HALVINGS = 25
LONGEST = 0.5  # step, in units of the square root of the value
PATIENCE = 8  # iterations in which neither the value falls nor the slope halves: the rest is rounding


@dataclass(frozen=True)
class Minimum:
    """Where each function's descent ended. ``slope`` is its gradient in the preconditioner's norm, over sqrt(value)."""

    place: Float[Tensor, "function unknown"]
    slope: Float[Tensor, " function"]
    iterations: Int[Tensor, " function"]


Evaluate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(places (n, m), which functions (n,)) -> values (n,), gradients (n, m)."""


def minimise(
    evaluate: Evaluate, precondition: Callable[..., Tensor], start: Float[Tensor, "function unknown"],
    tolerance: float, iterations: int,
) -> Minimum:  # fmt: skip
    """Minimise positive functions of m unknowns each, from ``start``, until every slope is below ``tolerance``.

    ``precondition(gradients, which)`` is an approximate inverse Hessian, symmetric and positive, applied. A function
    leaves the batch when it is done, or when no step lowers it any more: its slope tells which.
    """
    everyone = torch.arange(len(start), device=start.device)
    place = start.clone()
    value, gradient = evaluate(place, everyone)
    steps, changes = (start.new_zeros(len(start), 0, start.shape[1]) for _ in range(2))
    slope = _slope(gradient, precondition(gradient, everyone), value)
    least, idle, taken = slope.clone(), torch.zeros_like(everyone), torch.zeros_like(everyone)
    active = everyone[slope > tolerance]
    while len(active) and int(taken.max()) < iterations:
        direction = _direction(gradient[active], steps[active], changes[active], partial(precondition, which=active))
        moved, new_place, new_value, new_gradient = _search(
            evaluate, active, place[active], value[active], gradient[active], direction
        )
        steps = _remember(steps, active, new_place - place[active])
        changes = _remember(changes, active, new_gradient - gradient[active])
        new_slope = _slope(new_gradient, precondition(new_gradient, active), new_value)
        progress = (new_value < value[active] * (1 - ROUNDING)) | (new_slope < least[active] / 2)
        idle[active] = torch.where(progress, 0, idle[active] + 1)
        least[active] = torch.minimum(least[active], new_slope)
        place[active], value[active], gradient[active], slope[active] = new_place, new_value, new_gradient, new_slope
        taken[active] += 1
        active = active[moved & (new_slope > tolerance) & (idle[active] < PATIENCE)]
    return Minimum(place, slope, taken)


def _remember(memory: Tensor, active: Int[Tensor, " n"], latest: Tensor) -> Float[Tensor, "function memory unknown"]:
    """The memory without its oldest entry, when full, and with the latest: zero where a function stood still."""
    row = memory.new_zeros(len(memory), 1, memory.shape[2])
    row[active, 0] = latest
    return torch.cat([memory[:, -MEMORY + 1 :], row], 1)


def _slope(gradient: Tensor, preconditioned: Tensor, value: Tensor) -> Float[Tensor, " function"]:
    square = (gradient * preconditioned).sum(-1).clamp_min(0) / value
    return torch.where(value > 0, square, 0).sqrt()


def _direction(
    gradient: Tensor, steps: Tensor, changes: Tensor, precondition: Callable[[Tensor], Tensor]
) -> Float[Tensor, "function unknown"]:
    """The two-loop recursion. A pair without positive curvature counts for nothing, as does one of a rest."""
    curvature = (steps * changes).sum(-1)
    good = curvature > 1e-12 * steps.norm(dim=-1) * changes.norm(dim=-1)
    inverse = torch.where(good, 1 / torch.where(good, curvature, 1), 0)
    q, weights = gradient, []
    for index in reversed(range(steps.shape[1])):
        weight = inverse[:, index] * (steps[:, index] * q).sum(-1)
        q = q - weight[:, None] * changes[:, index]
        weights.append(weight)
    r = precondition(q)
    for index, weight in enumerate(reversed(weights)):
        again = inverse[:, index] * (changes[:, index] * r).sum(-1)
        r = r + (weight - again)[:, None] * steps[:, index]
    return -r


def _search(
    evaluate: Evaluate, which: Int[Tensor, " n"], place: Tensor, value: Tensor, gradient: Tensor, direction: Tensor
) -> tuple[Bool[Tensor, " n"], Tensor, Tensor, Tensor]:
    """Backtracking to Armijo's condition, each function with its own step; which of them moved, and where to."""
    along = (gradient * direction).sum(-1)
    size = torch.where(along < 0, (LONGEST * (value / -along).sqrt()).clamp_max(1), 0)
    found = place.clone(), value.clone(), gradient.clone()
    waiting = torch.arange(len(which), device=which.device)[along < 0]
    moved = torch.zeros(len(which), dtype=torch.bool, device=which.device)
    for _ in range(HALVINGS):
        if not len(waiting):
            break
        trial = place[waiting] + size[waiting, None] * direction[waiting]
        lower, slope = evaluate(trial, which[waiting])
        bound = value[waiting] * (1 + ROUNDING) + 1e-4 * size[waiting] * along[waiting]
        good = (lower <= bound) & slope.isfinite().all(-1)
        for kept, new in zip(found, (trial, lower, slope), strict=True):
            kept[waiting[good]] = new[good]
        moved[waiting[good]] = True
        waiting = waiting[~good]
        size[waiting] = size[waiting] / 2
    return moved, *found

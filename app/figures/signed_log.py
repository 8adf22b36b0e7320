"""Axes and colour bars for numbers of both signs over many decades: linear about 0, logarithmic beyond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

DECADES = 5
"""At most so many between the linear part and the largest size: what is smaller is drawn as nearly 0."""


@dataclass(frozen=True)
class Scale:
    """Where values stand. ``linear`` is the size below which the scale is linear; 0 makes all of it so."""

    linear: float = 0.0

    def places(self, values: np.ndarray) -> np.ndarray:
        """sign(v) log10(1 + |v| / linear), or the values themselves."""
        if not self.linear:
            return np.asarray(values, dtype=np.float64)
        return np.sign(values) * np.log10(1 + np.abs(values) / self.linear)

    def ticks(self, low: float, high: float, most: int = 3) -> dict[str, Any]:
        """Powers of ten between two values, 0 among them, for an axis or colour bar; at most ``most`` a sign."""
        if not self.linear:
            return {"exponentformat": "power"}
        last = int(np.floor(np.log10(max(abs(low), abs(high), self.linear)) + 1e-9))
        first = min(round(float(np.log10(self.linear))) + 1, last)  # the one before stands too near to 0
        step, steps = -(-(last - first + 1) // most), (1, 2, 5) if last == first and most > 2 else (1,)
        sizes = [times * 10.0**power for power in range(last, first - 1, -step)[::-1] for times in steps]
        if len(steps) > 1:  # within one decade: what lies below it has room, too
            sizes = [*(times * 10.0 ** (first - 1) for times in (2, 5)), *sizes]
        kept = [value for value in (*(-size for size in reversed(sizes)), 0.0, *sizes) if low <= value <= high]
        places = self.places(np.array(kept)).tolist()
        return {"tickmode": "array", "tickvals": places, "ticktext": [_power(value) for value in kept]}

    @property
    def words(self) -> str:
        """For a subtitle; empty where it is linear."""
        return f"signed log scale, linear below {_power(self.linear)}" if self.linear else ""


def scale_of(several: list[np.ndarray], log: bool) -> Scale:
    """The scale that shows all these: linear below the power of ten under the 20th percentile of their sizes."""
    sizes = np.concatenate([np.abs(values[np.isfinite(values) & (values != 0)]) for values in several])
    if not log or not sizes.size:
        return Scale()
    least = max(float(np.percentile(sizes, 20)), float(sizes.max()) * 10.0**-DECADES)
    return Scale(10.0 ** int(np.floor(np.log10(least))))


def _power(value: float) -> str:
    """``−0.01``, ``0``, ``10``, and ``10⁴`` beyond a thousand."""
    if value == 0:
        return "0"
    sign, power = "−" if value < 0 else "", int(np.floor(np.log10(abs(value)) + 1e-9))
    if -3 <= power <= 3:
        return f"{sign}{abs(value):g}"
    times = round(abs(value) / 10.0**power)
    return f"{sign}{'' if times == 1 else f'{times}·'}10{str(power).translate(RAISED)}"


RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

"""Does the proxy mean anything on this checkpoint? The answer as plain sentences, from the correlations alone."""

from __future__ import annotations

import numpy as np

from app.curvature import UNIT, Curved
from app.curvature_truth import TRUTHS, rho
from app.figures.curvature import Rho
from fbt_core.measures.correlation import LEVEL, Correlation

STRONG = 0.5
"""Where the whole interval lies beyond this, an order is called close."""

START = "On this checkpoint and this text"

NOISY = 0.3
"""Standard error over the spread of values, above which sampling alone can hide a correlation."""


def verdict(found: Curved) -> tuple[str, str]:
    """One sentence that says whether the proxy means anything, and the numbers behind it: plain text."""
    if why := degenerate(found):
        return why, ""
    signed, size = (rho(found, TRUTHS[name]) for name in ("scalar", "size"))
    if why := signed.pooled.reason:
        return f"{START} the proxy cannot be judged: {why}.", "Write a longer text, or show all heads."
    value, strength = follows(signed, "the scalar curvature"), follows(size, "how strongly the field is curved")
    joint = "and" if (signed.pooled.low > 0) == (size.pooled.low > 0) else "but"
    numbers = (
        f"Spearman's ρ of Ω with S is {_number(signed.pooled)}, and {_number(signed.within)} token against token "
        f"within one layer and head; with the size of S it is {_number(size.pooled)}, and {_number(size.within)} "
        f"within (brackets: {LEVEL} % intervals over {signed.pooled.groups} tokens)."
    )
    return f"{START} the proxy {value}, {joint} {strength}.", f"{numbers} {_sign(found)}"


def degenerate(found: Curved) -> str:
    """Why there is nothing to compare; empty where there is."""
    scalar, omega = found.parts["scalar_curvature"], found.parts["omega"]
    good = scalar[np.isfinite(scalar)]
    if not good.size:
        return "No curvature could be computed here: no point has finite numbers."
    rounding = np.where(found.exact, found.parts["scalar_error"], 0.0)[np.isfinite(scalar)]
    if (np.abs(good) <= rounding).all():
        most = float(omega[np.isfinite(omega)].max(initial=0))
        told = f"while the proxy says up to {most:.3g} nats: here it is no curvature at all" if most else "and so is Ω"
        return f"The metric is the same at every point, so its curvature is exactly zero, {told}."
    return ""


def follows(row: Rho, what: str) -> str:
    """The verb of a sentence about the proxy, from the intervals alone."""
    pooled, within = row.pooled, row.within
    if np.isnan(pooled.low):
        return f"cannot be held against {what}"
    if pooled.low <= 0 <= pooled.high:
        return f"says nothing about {what} that can be told from chance"
    if pooled.high < 0:
        return f"points the wrong way about {what} (larger Ω, less of it)"
    if not within.low > 0:
        return f"follows {what} only in that layers and heads differ, not token by token"
    return f"{'closely' if pooled.low > STRONG else 'loosely'} follows {what}"


def _number(one: Correlation) -> str:
    if np.isnan(one.rho):
        return f"not defined ({one.reason})"
    if np.isnan(one.low):
        return minus(one.rho)
    return f"{minus(one.rho)} ({minus(one.low)} to {minus(one.high)})"


def _sign(found: Curved) -> str:
    """What a proxy that is never negative cannot say; and how much of the truth is sampling."""
    scalar = found.parts["scalar_curvature"]
    error = np.zeros_like(scalar) if found.exact else found.parts["scalar_error"]
    good = np.isfinite(scalar)
    share = float((scalar[good] < 0).mean())
    where = f"is, at {100 * share:.0f} % of" if share else "is at none of"
    told = f"Ω is never negative; the scalar curvature {where} {good.sum():,} points."
    spread = float(scalar[good].std())
    noise = float(np.median(error[good])) / spread if spread > 0 else 0.0
    if noise > NOISY:
        told += (
            f" Its standard error is typically {100 * noise:.0f} % of its spread over points: take more planes before "
            "you conclude anything."
        )
    return told


def sampled(found: Curved, planes: int) -> str:
    """What was sampled, for a subtitle."""
    scalar = "scalar curvature exact" if found.exact else f"scalar curvature from {planes} random planes a point"
    return f"{scalar}; extremes as found from {planes} random planes and those that matter"


def minus(value: float) -> str:
    """Two decimals with a true minus sign."""
    return f"{value:.2f}".replace("-", "−")


def axis(title: str) -> str:
    """``Scalar curvature (1 / squared length)``."""
    return f"{title} ({UNIT})"

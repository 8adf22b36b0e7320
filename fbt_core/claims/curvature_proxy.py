"""C10: whether Omega, which the paper calls curvature, orders tokens as curvature does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fbt_core.claims.chart import Chart, Curve
from fbt_core.claims.evidence import Evidence, Unavailable
from fbt_core.claims.fields import READING_NOTE, fields
from fbt_core.claims.table import FAILS, HOLDS, Claim, Finding
from fbt_core.geometry.survey import survey
from fbt_core.measures.correlation import spearman
from fbt_core.measures.tokens import to_numpy

THRESHOLD = 0.7
TOKENS, PLANES = 24, 16

LEAST = 8
"""Tokens: of three, a random order reaches a rho of 0.7 in size one time in three; of eight, in twenty."""

FLAT = 1e-10
"""A scalar curvature of at most this everywhere is none: far below what any trained metric has."""


@dataclass(frozen=True)
class Compared:
    """One head's tokens: the proxy, its curvatures, and how alike they are ordered."""

    place: int
    head: int
    omega: np.ndarray
    scalar: np.ndarray
    largest: np.ndarray
    rho_scalar: float  # NaN where Omega is the same at every token of a curved field
    rho_largest: float


def ordered(omega: np.ndarray, curvature: np.ndarray) -> float:
    """Spearman's rho; 0 where there is no curvature at all, but an Omega that says there is."""
    flat = np.nanmax(np.abs(curvature), initial=0.0) <= FLAT
    return (0.0 if omega.any() else float("nan")) if flat else spearman(omega, curvature).rho


def compared(evidence: Evidence) -> list[Compared]:
    """Every head that is looked at. tr K stands in for Omega where the model has none: within a head the two are
    proportional, and the order is all that is compared."""
    found = []
    for place, head, g, points, tokens in fields(evidence, TOKENS):
        if len(tokens) < LEAST:
            raise Unavailable(
                f"the order of fewer than {LEAST} tokens is soon met by chance, the text has {len(tokens)}"
            )
        f = evidence.trace.layers[place].given
        if f.q.shape[-1] < 2:
            raise Unavailable("a head of width 1 has no planes, and so no curvature")
        omega = f.omega[head, tokens]
        omega = to_numpy(omega if bool(omega.any()) else f.metric.trace[head, tokens])
        seen = survey(g, points, PLANES, evidence.options.seed)
        scalar, largest = to_numpy(seen.scalar), to_numpy(seen.largest)
        found.append(Compared(place, head, omega, scalar, largest, ordered(omega, scalar), ordered(omega, largest)))
    return found


def correlated(evidence: Evidence) -> Finding:
    """The better of the two medians of rho, without its sign."""
    heads = compared(evidence)
    names = {"scalar curvature": "rho_scalar", "largest sectional curvature": "rho_largest"}
    rho = {title: np.array([getattr(one, name) for one in heads]) for title, name in names.items()}
    if not any(np.isfinite(values).any() for values in rho.values()):
        raise Unavailable("Omega is the same at every token looked at, so it has no order to compare")
    medians = {title: float(np.nanmedian(values)) for title, values in rho.items() if np.isfinite(values).any()}
    best = max(medians, key=lambda title: abs(medians[title]))
    value = abs(medians[best])
    grid = evidence.grid({(one.place, one.head): getattr(one, names[best]) for one in heads})
    told = "; ".join(f"{title} {median:+.2f}" for title, median in medians.items())
    strong = int((np.abs(rho[best]) >= THRESHOLD).sum())
    return Finding(
        HOLDS if value >= THRESHOLD else FAILS,
        value,
        f"The median over {len(heads)} heads of Spearman's ρ between Ω and curvature is {told}; "
        f"{strong} heads reach {THRESHOLD} in size with the {best}.",
        f"A median ρ of at least {THRESHOLD} in size: Ω that orders the tokens of most heads as curvature does.",
        grid=grid,
        grid_title=f"Spearman's ρ of Ω and {best}",
        numbers=tuple(
            (f"{what} ρ with {title}", float(function(values[np.isfinite(values)])), "")
            for title, values in rho.items()
            if np.isfinite(values).any()
            for what, function in (("median", np.median), ("lowest", np.min), ("highest", np.max))
        ),
        charts=(_scatter(heads, names[best]), _spread(rho)),
        notes=(
            f"{len(heads[0].omega)} tokens of each head, evenly spread over the text.",
            READING_NOTE,
            f"The largest sectional curvature is the largest found from {PLANES} random planes on.",
            "A constant U has Ω > 0 and no curvature: Ω tells how strong a metric is, not how it changes.",
        ),
    )  # fmt: skip


def _scatter(heads: list[Compared], name: str) -> Chart:
    """The heads whose order is most and least alike."""
    known = sorted((one for one in heads if np.isfinite(getattr(one, name))), key=lambda one: getattr(one, name))
    shown = dict.fromkeys([(one.place, one.head) for one in (known[-1], known[len(known) // 2], known[0])])
    of = {(one.place, one.head): one for one in known}
    scalar = name == "rho_scalar"
    curves = [
        Curve(f"layer {place}, head {head}: ρ = {getattr(of[place, head], name):+.2f}", of[place, head].omega,
              of[place, head].scalar if scalar else of[place, head].largest, style="points")
        for place, head in shown
    ]  # fmt: skip
    what = "scalar curvature" if scalar else "largest sectional curvature"
    y = f"{'S' if scalar else 'largest K'} (1 / length² under g)"
    return Chart(f"Ω and {what} of single tokens", "Ω (nats)", y, tuple(curves),
                 note="the heads of highest, median and lowest ρ; a point a token")  # fmt: skip


def _spread(rho: dict[str, np.ndarray]) -> Chart:
    curves = []
    for title, values in rho.items():
        inside = np.sort(values[np.isfinite(values)])
        if len(inside):
            curves.append(Curve(title, np.linspace(0, 100, len(inside)), inside))
    return Chart("ρ over all heads, sorted", "heads with at most this ρ (%)", "Spearman's ρ of Ω and curvature",
                 tuple(curves), note=f"holds where a median is beyond ±{THRESHOLD}")  # fmt: skip


CLAIM = Claim(
    id="C10",
    title="Ω is a proxy for curvature",
    statement="The bias that is subtracted from a key's score grows with the curvature of the metric at that token.",
    equation=r"\Omega_t = \operatorname{softplus}(\beta)\, \lVert U_t \rVert_F^2 \ \overset{?}{\sim}\ S(x_t) = "
    r"\sum_{i \ne j} K(e_i, e_j) \quad \text{or} \quad \max_{u, v} K(u, v)",
    source="the paper's curvature bias; docs/mathematics.md, item 6 and Geometry of the field",
    statistic="Median over heads of Spearman's ρ over tokens between Ω and the true scalar curvature, and the same "
    "with the largest sectional curvature; of the two the larger in size. A head without any curvature counts as 0, "
    "one whose Ω is the same everywhere is left out. Holds where it is at least 0.7.",
    threshold=THRESHOLD,
    unit="",
    reason="At ρ = 0.7 half of the variance of ranks is shared; a proxy below it orders tokens mostly by something "
    "else. Either curvature and either sign would do.",
    says_paper="Names Ω a curvature term.",
    function=correlated,
)

"""The ellipsoid field as data: what the component and its Plotly twin draw, and the same as a table."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fbt_core.geometry.ellipsoid import EllipsoidField

LABELLED = 40
"""Up to so many tokens, their labels stand in the picture."""

IN_VIEW = "Leading eigenvector in view (share)"
"""How much of the leading eigenvector's length the drawn directions hold, squared."""


@dataclass(frozen=True)
class Curve:
    """A line through the scene; those of one name share one entry of the legend, and an empty name has none.

    Raises ``ValueError`` for a point that is not finite.
    """

    name: str
    points: np.ndarray  # (n, 3), in the coordinates of the axes
    category: int = 0  # of the colours of ``theme``
    dash: str = "solid"  # one of theme.DASHES
    width: float = 2.5  # pixels
    arrow: bool = False  # a head at the last point

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or self.points.shape[1] != 3 or not np.isfinite(self.points).all():
            raise ValueError(f"got points {self.points.shape} of a curve, expected finite ones of shape (n, 3)")


@dataclass(frozen=True)
class EllipsoidView:
    """All that is drawn of one field. ``values`` colours the glyphs over ``value_range``; ``extras`` are told on hover.

    ``tokens`` are raw and untrusted.
    """

    field: EllipsoidField
    tokens: tuple[str, ...]
    values: np.ndarray  # (token,)
    value_title: str  # with its unit
    value_range: tuple[float, float]
    title: str
    extras: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)  # title with unit -> (token,)
    note: str | None = None  # such as a what-if: set apart by its colour
    remark: str | None = None  # how layers and heads of two sides were matched
    selected: int = -1
    labels: bool = True
    name: str = "ellipsoids"  # of exported files
    facts: dict[str, object] = dataclasses.field(default_factory=dict)  # constant columns of the exported table
    curves: tuple[Curve, ...] = ()
    marked: tuple[int, ...] = ()  # tokens with a ring

    @property
    def description(self) -> str:
        """What is drawn, in words: printed on the figure."""
        return f"{self.field.description} {self.remark}." if self.remark else self.field.description

    @property
    def box(self) -> np.ndarray:
        """(2, 3): the least and largest coordinates of everything that is drawn but the witness."""
        stage = self.field.stage
        box = np.array(stage.bounds) + stage.scale * stage.longest * np.array([[-1.0], [1.0]])
        points = np.concatenate([box, *(curve.points for curve in self.curves)])
        return np.array([points.min(0), points.max(0)])

    @property
    def witness(self) -> np.ndarray:
        """Centre of the unit sphere: on top of a corner of the box."""
        low, high = self.box
        radius = self.field.witness_radius
        return np.array([low[0] + radius, high[1] - radius, high[2] + radius])

    @property
    def not_a_number(self) -> int:
        """How many colour values are not finite: those glyphs are grey."""
        return int((~np.isfinite(self.values)).sum())

    @property
    def axis_titles(self) -> list[str]:
        """``PC 1 (41 %)``: the name and the share of the position variance."""
        shares = zip(self.field.axis_names, self.field.share, strict=True)
        return [f"{name} ({100 * share:.0f} %)" for name, share in shares]

    @property
    def eigenvalue_title(self) -> str:
        """Whose eigenvalues are told."""
        return "λ of g, largest three" if self.field.shape == "metric frame" else f"λ of the {self.field.shape}"


def table(view: EllipsoidView) -> pd.DataFrame:
    """One row a token: centre, semi-axis vectors as drawn divided by the scale, eigenvalues, measures and facts."""
    shown = view.field
    columns: dict[str, object] = {"token": np.arange(len(view.tokens)), "text": list(view.tokens)}
    columns |= {f"centre_{axis}": shown.centres[:, k] for k, axis in enumerate("xyz")}
    columns |= {f"axis{m + 1}_{axis}": shown.axes[:, k, m] for m in range(3) for k, axis in enumerate("xyz")}
    columns |= {f"eigenvalue{m + 1}": shown.eigenvalues[:, m] for m in range(3)}
    columns |= {view.value_title: view.values, IN_VIEW: shown.in_view, **view.extras}
    words = {"shape": shown.shape, "glyph": "dual glyph" if shown.dual else "unit ball", "base": shown.base,
             "glyph_scale": shown.stage.scale}  # fmt: skip
    return pd.DataFrame({**columns, **(view.facts or {"where": shown.where}), **words})

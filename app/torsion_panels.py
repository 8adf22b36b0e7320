"""The rotations of the torsion page: planes on the values, angles, and the share of the output that they turn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from app import ellipsoids, widgets
from app.choices import pick
from app.components.ellipsoid_field import ellipsoid_field
from app.figures import theme
from app.figures.ellipsoids import figure
from app.figures.torsion import ByToken, by_token, head_maps, table_of_curves
from app.side import Side
from app.torsion import DRAWN, turned, value_views
from app.torsion_numbers import Turns
from app.view import View

NONE = "this model has no TorsionNet, so $T = 0$ and its values are turned by nothing"

ANGLE = r"$C(T)$ turns plane $m$ of $T = L R^\top - R L^\top$ by $\theta_m = 2 \arctan(\sigma_m / 2)$"


def with_torsion(view: View) -> View | None:
    """The sides whose layer has torsion, the others told of; None where there is none."""
    sides = []
    for side in view.sides:
        if turned(side) is None:
            st.info(f"{widgets.plain(side.title)}: {NONE}. What its metric turns is below.")
        elif ellipsoids.unavailable(side, "values"):
            st.info(f"{widgets.plain(side.title)}: {widgets.plain(ellipsoids.unavailable(side, 'values'))}.")
        else:
            sides.append(side)
    return replace(view, sides=tuple(sides)) if sides else None


def rotations(view: View) -> None:
    """The planes on the values, the angles by layer, head and token, and what share of the output is turned."""
    st.subheader("Torsion: how FiberTransport turns the values", anchor=False)
    having = with_torsion(view)
    if having is None:
        return
    how = planes_toolbar()
    shown, counts = value_views(having, how, 1.0, max(len(side.tokens) for side in having.sides) <= 40)
    for column, side, picture, (some, count) in zip(st.columns(len(shown)), having.sides, shown, counts, strict=True):
        with column:
            key = f"planes-{side.name}"
            picked = ellipsoid_field(picture, key=key, height=540)
            widgets.below(
                key, lambda picture=picture: figure(picture, widgets.is_dark()),
                lambda picture=picture: table_of_curves(picture.curves), planes_caption(how, some, count),
                picture.name, seen=False,
            )  # fmt: skip
            if picked is not None:
                widgets.select_token(picked)
    angles(having)


def planes_toolbar() -> str:
    """How planes are drawn."""
    return pick("Planes drawn", "planes_drawn", DRAWN, "turned", 220, DRAWN.__getitem__)


def planes_caption(how: str, some: int, count: int) -> str:
    """What the circles and arrows are."""
    drawn_as = (
        "as the pair of orthonormal directions nearest to its projection, so that the angle can be read"
        if how == "turned"
        else "as it projects, so a plane that lies across the picture is a thin ellipse"
    )
    few = "" if some == count else f" Drawn for {some} of {count} tokens, those of the largest angles."
    return (
        f"The head's values and the planes in which FiberTransport turns them: {ANGLE} and leaves the rest alone. A "
        "plane has no sign and no first direction: its circle has no arrow. The arrow runs from where the token's own "
        f"value points in the plane to where it is turned. Each plane is drawn {drawn_as}.{few}"
    )


def angles(view: View) -> None:
    """Heatmaps layer x head, and the chosen head token by token."""
    found = [turned(side) for side in view.sides]
    most = max(float(np.nanmax(np.degrees(one.angles[..., 0].mean(-1)), initial=0)) for one in found if one)
    share = max(float(np.nanmax(one.share.mean(-1), initial=0)) for one in found if one)
    for column, side, one in zip(st.columns(len(found)), view.sides, found, strict=True):
        assert one is not None
        with column:
            panels = {
                "rotation angle, mean over tokens": (np.degrees(one.angles[..., 0].mean(-1)), "degrees", most),
                "share of the value output turned": (one.share.mean(-1), "0 to 1, mean over tokens", share),
            }
            made = head_maps(panels, f"{side.title} · FiberTransport ({one.transport})", (side.layer, side.head))
            theme.note(made, side.what_if_forward)
            widgets.show(
                made, lambda side=side, one=one: turns_table(side, one), f"angles-{side.name}",
                rf"{ANGLE}, in $[0^\circ, 180^\circ)$; of several planes the largest. Share: "
                r"$\lVert y - y' \rVert / (\lVert y \rVert + \lVert y' \rVert)$ in $[0, 1]$, with $y$ the head's value "
                r"output and $y'$ the one that nothing turned. Square: the chosen layer and head.",
                f"torsion-angles-{side.name}",
            )  # fmt: skip
    tokens(view, found)


def tokens(view: View, found: list[Turns | None]) -> None:
    """Two lines a side: angle and share by token."""
    places = [(side, one) for side, one in zip(view.sides, found, strict=True) if one is not None]
    where = view.mapping or f"layer {view.a.layer}, head {view.a.head}"
    drawings = {
        "angle": (
            "Rotation angle by token",
            "rotation angle (degrees)",
            lambda one, at: np.degrees(one.angles[at][:, 0]),
        ),
        "share": ("Share of the value output turned, by token", "share turned (0 to 1)", lambda one, at: one.share[at]),
    }
    for column, (name, (title, axis, values)) in zip(st.columns(2), drawings.items(), strict=True):
        with column:
            series = [ByToken(side.title, values(one, (side.layer, side.head)), side.tokens) for side, one in places]
            made = by_token(series, f"{title} · {where}", axis)
            theme.note(made, view.what_if_forward)
            widgets.show(
                made, lambda places=places: pd.concat([turns_table(side, one) for side, one in places]),
                f"turn-{name}-by-token", "The chosen layer and head.", f"torsion-{name}-by-token",
            )  # fmt: skip


def turns_table(side: Side, one: Turns) -> pd.DataFrame:
    """One row a layer, head, token and plane."""
    layer, head, token, plane = np.indices(one.angles.shape).reshape(4, -1)
    return pd.DataFrame({
        "checkpoint": side.title, "layer": layer, "head": head, "token": token,
        "text": np.array(side.tokens, dtype=object)[token], "plane": plane,
        "angle_degrees": np.degrees(one.angles.ravel()), "share_turned": one.share[layer, head, token],
        "transport": one.transport, "what_if": side.what_if_forward or "",
    })  # fmt: skip

"""``python -m fbt_core geodesic``: four lengths between two tokens, the true one with its error."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from fbt_core.commands.arguments import (
    Asked,
    CheckpointArgument,
    DeviceOption,
    DtypeOption,
    Opened,
    PartOption,
    RankOption,
    SourceOption,
    StackOption,
    StrengthOption,
    TextOption,
    number,
    one_line_errors,
    open_model,
    what_if_of,
    write,
)
from fbt_core.geometry.boundary import connect
from fbt_core.geometry.curves import coordinates
from fbt_core.geometry.distances import chord, improved
from fbt_core.geometry.graph_paths import graph_lengths, in_slice, segment_lengths
from fbt_core.geometry.model_field import READINGS, field_points, model_field


def geodesic(
    checkpoint: CheckpointArgument,
    text: TextOption,
    layer: Annotated[int, typer.Option(min=0, help="Counts from 0.")] = 0,
    start: Annotated[int, typer.Option("--from", min=0, help="A token, counted from 0.")] = 0,
    end: Annotated[int, typer.Option("--to", min=0, help="Another token.")] = 1,
    reading: Annotated[str, typer.Option(help=" | ".join(READINGS))] = "whole",
    head: Annotated[int, typer.Option(min=0, help="Of the readings of one head. Counts from 0.")] = 0,
    neighbours: Annotated[
        int | None, typer.Option(min=1, help="Of each token in the graph; default: the complete graph.")
    ] = None,
    strength: StrengthOption = 1.0,
    json_to: Annotated[str, typer.Option("--json", help="Write JSON to this file, - for standard output.")] = "",
    source: SourceOption = "",
    rank: RankOption = 4,
    stack: StackOption = "",
    part: PartOption = None,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = "auto",
) -> None:
    """Print the Euclidean, chord, true (geodesic) and graph lengths between two tokens of a layer.

    Exit status 1 where no geodesic was found.
    """
    opened = open_model(checkpoint, text, Asked(device, dtype, strength, part, source, rank, stack))
    with one_line_errors():
        found = measure(opened, layer, head, reading, start, end, neighbours)
    write(json_to or "-", json.dumps(found, allow_nan=False) + "\n" if json_to else _table(found) + "\n")
    if found["why"]:
        raise typer.Exit(1)


def measure(
    opened: Opened, layer: int, head: int, reading: str, start: int, end: int, neighbours: int | None
) -> dict[str, Any]:
    """The lengths and how they were found, as the JSON has them; null for a length that could not be had."""
    trace = opened.trace
    if max(start, end) >= trace.length:
        raise ValueError(f"got tokens {start} and {end}, expected 0 to {trace.length - 1}")
    g = model_field(opened.model, trace, layer, head, reading, start)
    points = field_points(trace, layer)
    x, y = points[start], points[end]
    graph = graph_lengths(g, in_slice(g, points, x), neighbours)
    true = improved(g, points, graph, start, end, connect(g, x, y))
    way, delta = y - x, coordinates(g, y - x)
    rest = float((way - g.embed(delta)).norm() / way.norm()) if bool((way != 0).any()) else 0.0
    return {
        "layer": layer, "head": head, "reading": reading, "from": start, "to": end,
        "tokens": [opened.tokens[start], opened.tokens[end]], "dimension": g.dim, "outside_slice": rest,
        "euclid": float(delta.norm()), "chord": number(chord(g, x, y)),
        "true": number(true.length) if true.converged else None, "error": number(true.error),
        "graph": number(graph.lengths[start, end]), "graph_path": graph.path(start, end),
        "graph_error": number(graph.path_error(start, end)), "neighbours": neighbours,
        "straight": number(float(segment_lengths(g, x[None], y[None])[0])),
        "steps": true.steps, "degree": true.degree, "speed_drift": number(true.speed_drift),
        "miss": number(true.miss), "why": true.why, "what_if": what_if_of(trace),
    }  # fmt: skip


def _table(found: dict[str, Any]) -> str:
    path = " -> ".join(map(str, found["graph_path"])) or "no way"
    near = f"{found['neighbours']} nearest" if found["neighbours"] else "all others"
    remarks = {
        "euclid": "of the difference, in the slice's coordinates",
        "chord": "what attention uses: the mean of the two metrics, no length of a curve",
        "true": f"geodesic; error {_short(found['error'])}, {found['steps']} steps, degree {found['degree']}",
        "graph": f"an upper bound, by the tokens {path}, each joined to {near}; error {_short(found['graph_error'])}",
        "straight": "the straight segment under the field, an upper bound",
    }
    tokens = " -> ".join(map(repr, found["tokens"]))
    of_head = "" if found["reading"] == "whole" else f" of head {found['head']}"
    lines = [
        f"layer {found['layer']}, token {found['from']} -> {found['to']} ({tokens}), reading {found['reading']}"
        f"{of_head}, {found['dimension']} dimensions",
        f"share of the way outside the slice: {found['outside_slice']:.3g}" if found["outside_slice"] > 1e-9 else "",
        *(f"{name:>9} {_long(found[name]):>14}   {remark}" for name, remark in remarks.items()),
        f"speed drift {_short(found['speed_drift'])}; shot from the start, the integrator misses the end by "
        f"{_short(found['miss'])} of the way",
        f"no geodesic was found: {found['why']}" if found["why"] else "",
        found["what_if"],
    ]
    return "\n".join(filter(None, lines))


def _long(value: float | None) -> str:
    return "-" if value is None else f"{value:.9f}"


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"

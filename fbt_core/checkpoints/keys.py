"""Names of tensors without what training wrappers put in front of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fbt_core.checkpoints.faults import CheckpointError

WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""Segments of torch.compile, FSDP and activation checkpointing, anywhere in a name: no module is called so."""

FRONTS = ("module", "model")
"""Segments of data parallel and of trainers, dropped in front only and only where every weight has one."""

COUNTERS = ("n_averaged",)
"""What torch's weight averaging keeps beside the weights."""


@dataclass(frozen=True)
class Renaming:
    """``names``: from each name in the file to the one without prefixes. ``prefixes``: what was dropped, with dots."""

    names: dict[str, str]
    prefixes: tuple[str, ...]


def stripped(names: Iterable[str]) -> Renaming:
    """The renaming of a state dict's names. A second one changes nothing.

    Raises ``CheckpointError`` when two tensors would get one name.
    """
    names = [name for name in names if name not in COUNTERS]
    found: dict[str, None] = {}
    parts = {name: _unwrapped(name.split("."), found) for name in names}
    while front := _shared_front(parts.values()):
        found[front] = None
        parts = {name: segments[1:] for name, segments in parts.items()}
    renamed = {name: ".".join(segments) for name, segments in parts.items()}
    if len({*renamed.values()}) < len(renamed):
        raise _collision(renamed, tuple(found))
    return Renaming(renamed, tuple(f"{segment}." for segment in found))


def _unwrapped(segments: list[str], found: dict[str, None]) -> list[str]:
    """Without the wrappers' segments; one that is nothing else keeps its last."""
    *front, last = segments
    found.update({segment: None for segment in front if segment in WRAPPERS})
    return [segment for segment in front if segment not in WRAPPERS] + [last]


def _shared_front(names: Iterable[list[str]]) -> str:
    """The front that every name has, with something behind it; "" if there is none."""
    firsts = {segments[0] if len(segments) > 1 else "" for segments in names}
    front = firsts.pop() if len(firsts) == 1 else ""
    return front if front in FRONTS else ""


def _collision(renamed: dict[str, str], prefixes: tuple[str, ...]) -> CheckpointError:
    owners: dict[str, list[str]] = {}
    for name, short in renamed.items():
        owners.setdefault(short, []).append(name)
    first, second, *_ = next(names for names in owners.values() if len(names) > 1)
    return CheckpointError(
        f"tensors {first[:80]!r} and {second[:80]!r}, which are one without the prefixes {', '.join(prefixes)}",
        "a name for each tensor",
        "Save the state dict of the model itself, without its wrapper.",
    )

"""Dong's four ablations (arXiv 2103.03404) of any model: which of skips and feed-forward run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fbt_core.trace import Trace


@dataclass(frozen=True)
class Variant:
    """What of a model runs."""

    name: str
    title: str
    skip: bool  # whether a contribution is added to the stream, or takes its place
    feed_forward: bool


VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("full", "Full model", skip=True, feed_forward=True),
        Variant("san+skip", "Attention and skips", skip=True, feed_forward=False),
        Variant("san+mlp", "Attention and feed-forward, no skips", skip=False, feed_forward=True),
        Variant("san", "Attention alone", skip=False, feed_forward=False),
    )
}
"""Dong's four. Norms and the embedding stay in all of them."""


def ablations(model: Any, *args: Any, stack: str = "", **more: Any) -> dict[str, Trace]:
    """The trace of every variant of ``VARIANTS``, by name; arguments as for ``model.traces``.

    ``stack`` is the one to read where there are several (default the first). Raises ``ValueError`` with the reason
    where parts of the model cannot be left out.
    """
    found = {name: model.traces(*args, variant=name, **more) for name in VARIANTS}
    return {name: traces[stack] if stack in traces else next(iter(traces.values())) for name, traces in found.items()}

"""The options that measures take: one row an option, with its default, what it accepts and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fbt_core.attention.scores import SCORES
from fbt_core.geometry.model_field import READINGS
from fbt_core.measures.table import Measure

OWN = "own"
"""The score that the model itself used, layer by layer."""


@dataclass(frozen=True)
class Option:
    """A keyword of some measures. Either ``choices`` or ``kind`` and ``interval`` say what it accepts."""

    name: str
    default: Any
    meaning: str
    choices: tuple[Any, ...] = ()
    kind: type = float  # int or float, when there are no choices; None always stands for the default
    interval: tuple[float, float] = (float("-inf"), float("inf"))  # closed

    @property
    def expected(self) -> str:
        """What is accepted, in words."""
        if self.choices:
            return ", ".join(str(choice) for choice in self.choices)
        low, high = self.interval
        ends = f"from {low:g} to {high:g}" if high < float("inf") else f"of at least {low:g}"
        also = ", or None" if self.default is None else ""
        return f"{'a whole number' if self.kind is int else 'a number'} {ends}{also}"

    def accepts(self, value: Any) -> bool:
        """Whether ``value`` may be given."""
        if self.choices:
            return any(value == choice and type(value) is type(choice) for choice in self.choices)
        if value is None:
            return self.default is None
        allowed = int if self.kind is int else (int, float)
        number = isinstance(value, allowed) and not isinstance(value, bool)
        return number and self.interval[0] <= value <= self.interval[1]


_SCORES = (OWN, *SCORES)

OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("stage", "out", "residual stream before the block (in), after its attention (mid), after its "
               "feed-forward (out)", ("in", "mid", "out")),
        Option("tokens", "raw", "rows as they are, minus their mean, or each divided by its norm",
               ("raw", "centred", "unit")),
        Option("sinks", "kept", "whether tokens whose norm exceeds 5 times the layer's median norm are left out",
               ("kept", "left out")),
        Option("final", False, "append a last entry: the residual after the final norm", (False, True)),
        Option("eps", None, "singular values above eps times the largest count; None is max(L, D) times the machine "
               "epsilon of the model's dtype", interval=(0.0, 1.0)),
        Option("layer", None, "this layer only, None for all", kind=int, interval=(0.0, float("inf"))),
        Option("head", None, "this head only, None for all", kind=int, interval=(0.0, float("inf"))),
        Option("score", OWN, "score whose attention is measured; own is the model's", _SCORES),
        Option("score_a", "euclidean", "first of the two scores", _SCORES),
        Option("score_b", "riemannian", "second of the two scores", _SCORES),
        Option("alpha", None, "weight of the Riemannian score in blended, None as trained", interval=(0.0, 1.0)),
        Option("of", "riemannian", "what is split: the Riemannian score, or its difference from the Euclidean one",
               ("riemannian", "difference")),
        Option("reading", "block", "how a head's metric is one on the residual stream: on block h of it, along the "
               "head's keys, or all heads at once on the whole stream", tuple(READINGS)),
        Option("planes", 64, "random planes a token for sampled curvatures", kind=int, interval=(2.0, 65_536.0)),
        Option("seed", 0, "of the random planes", kind=int, interval=(0.0, 1e9)),
    )
}  # fmt: skip
"""Every option of every measure."""


def resolve(measure: Measure, given: dict[str, Any]) -> dict[str, Any]:
    """All options of a measure, defaults filled in. Raises ``ValueError`` for an unknown name or value."""
    if unknown := sorted(set(given) - set(measure.options)):
        allowed = ", ".join(measure.options) or "none"
        raise ValueError(f"got option {', '.join(unknown)} for {measure.name}, expected some of: {allowed}")
    for name, value in given.items():
        if not OPTIONS[name].accepts(value):
            raise ValueError(f"got {name} = {value!r} for {measure.name}, expected {OPTIONS[name].expected}")
    return {name: given.get(name, OPTIONS[name].default) for name in measure.options}

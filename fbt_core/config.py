"""One flat, frozen, validated description of a Fiber Bundle Transformer or of one of its baselines."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

CHOICES: dict[str, tuple[str, ...]] = {
    "score": ("riemannian", "euclidean", "l2"),
    "metric_family": ("full", "dictionary"),
    "transport": ("none", "key", "frame"),
    "position": ("none", "learned", "alibi"),
    "residual": ("plain", "rezero"),
    "norm": ("rms", "none"),
}
"""The words that each worded field may take."""

MINIMA: dict[str, float] = {
    "vocab_size": 1, "width": 1, "layers": 1, "heads": 1, "context": 1, "feed_forward": 1, "rank": 1, "atoms": 1,
    "metric_expansion": 1, "torsion_rank": 0, "metric_init": 0.0, "kappa_min": 0.0, "kappa_max": 1e-6,
    "anti_flatness": 0.0, "diversity": 0.0, "smoothness": 0.0,
}  # fmt: skip
"""The least value of each numeric field."""

MAXIMA: dict[str, int] = {
    "layers": 512,
    "heads": 512,
    "rank": 256,
    "atoms": 4096,
    "metric_expansion": 16,
    "torsion_rank": 64,
}
"""The most of each field that a loop or an exponent depends on; ``MAXIMUM_SIZE`` for all other integers."""

LARGEST_NUMBER = 1e9
"""In magnitude, of a field that is no size: far beyond any sense, and far within float32."""

MAXIMUM_SIZE = 1 << 24
"""A config comes from a file, and sizes allocate memory."""


@dataclass(frozen=True)
class FiberBundleConfig:
    """Every choice that makes a model. Items are those of the equation list in ``docs/mathematics.md``.

    Raises ``ValueError`` (got, expected) when a field is out of its range.
    """

    vocab_size: int
    width: int = 64  # D, of the residual stream
    layers: int = 6
    heads: int = 4  # H; head width d = D / H
    feed_forward: int = 256  # hidden width of the feed-forward, 4 D as is usual
    context: int = 1024  # longest sequence with a position of its own
    score: str = "riemannian"  # euclidean | l2 are the baselines in the same code
    alpha: float = 1.0  # item 9: s = (1 - alpha) q.k / sqrt(d) + alpha s_Riem; fixed at training
    causal: bool = True
    metric_family: str = "full"  # item 2: full (the paper's) | dictionary (shared rank-one atoms)
    rank: int = 4  # r of the full family; the paper uses 4 or 8
    atoms: int = 8  # m of the dictionary family; m <= d allows the compact features
    metric_expansion: int = 1  # e of MetricNet, 1 in the paper
    metric_init: float = 0.5  # E ||U||_F^2 at initialisation; 0 is a stationary point of the full family
    kappa_min: float = 0.05  # item 10: the least trace of K that anti-flatness does not punish
    kappa_max: float = 8.0  # hard ceiling on ||U||_F^2, and where anti-flatness starts to punish
    gate: bool = True  # item 3: q = q0 + gamma U (U^T q0)
    gate_init: float = -3.0  # gamma = sigmoid(-3) = 0.0474, the paper's
    curvature_bias: bool = True  # item 6: Omega_j subtracted from column j
    curvature_init: float = -3.0  # beta of softplus(beta) ||U||^2
    transport: str = "none"  # item 7: FiberTransport of the values: none | key | frame
    torsion_rank: int = 0  # r' of TorsionNet, 0 for no torsion; the paper's form has 1
    metric_compatible: bool = False  # transport by g_i^{-1/2} C_i^T C_j g_j^{1/2}, an isometry; needs frame
    precondition: bool = True  # item 8: x <- x + g^{-1} FFN(RMSNorm(x))
    qk_norm: bool = False  # ||q||^2 = ||k||^2 = d / 2: makes a metric's strength comparable between models
    position: str = "learned"
    residual: str = "plain"
    pure_stack: bool = False  # item 11: x <- A x W_V W_O only, for rank collapse
    norm: str = "rms"  # of the pure stack only: a full block always normalises
    tied_qk: bool = False
    tied_embedding: bool = True
    anti_flatness: float = 1e-3  # weights of the three regularisers, item 10, uncalibrated as in the paper
    diversity: float = 1e-3
    smoothness: float = 1e-4

    def __post_init__(self) -> None:
        _check_fields(vars(self))
        if self.width % self.heads:
            raise ValueError(f"got width {self.width} and {self.heads} heads, expected heads to divide the width")
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"got alpha {self.alpha}, expected a number from 0 to 1")
        if self.kappa_min > self.kappa_max:
            raise ValueError(f"got kappa_min {self.kappa_min} > kappa_max {self.kappa_max}, expected the reverse")
        if self.transport != "none" and self.torsion_rank < 1:
            raise ValueError(f"got transport {self.transport!r} with torsion_rank 0, expected torsion_rank >= 1")
        if self.metric_compatible and (self.transport != "frame" or not self.has_metric):
            raise ValueError("got metric_compatible without a metric and transport 'frame', expected both")

    @property
    def head_width(self) -> int:
        """d, the width of one head."""
        return self.width // self.heads

    @property
    def has_metric(self) -> bool:
        """Whether tokens carry a metric of their own (the baselines do not)."""
        return self.score == "riemannian"

    @property
    def metric_rank(self) -> int:
        """Columns of U: r for the full family, m for a dictionary, 0 for a baseline."""
        if not self.has_metric:
            return 0
        return self.rank if self.metric_family == "full" else self.atoms

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, one a field."""
        return asdict(self)

    @property
    def own_score(self) -> str:
        """The row of ``SCORES`` that the model itself attends by."""
        if self.score != "riemannian" or self.alpha == 1.0:
            return self.score
        return "blended" if self.alpha > 0.0 else "euclidean"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> FiberBundleConfig:
        """The config of a dict; an unknown or missing field is a ``ValueError`` that names it."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"got unknown config fields {unknown}, expected some of {sorted(known)}")
        if "vocab_size" not in values:
            raise ValueError("got no vocab_size, expected one")
        _check_fields(values)
        return cls(**values)


def _check_fields(values: dict[str, Any]) -> None:
    kinds = {field.name: str(field.type) for field in fields(FiberBundleConfig)}
    for name, value in values.items():
        _check_field(name, value, kinds[name])


def _check_field(name: str, value: object, kind: str) -> None:
    """Type first (a bool is not an int here), then range, then the list of words."""
    allowed = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}[kind]
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind != "bool"):
        raise ValueError(f"got {name} = {value!r}, expected {kind}")
    if name in CHOICES and value not in CHOICES[name]:
        raise ValueError(f"got {name} = {value!r}, expected one of {', '.join(CHOICES[name])}")
    if kind == "float" and isinstance(value, (int, float)) and not abs(value) <= LARGEST_NUMBER:
        raise ValueError(f"got {name} = {value!r:.40}, expected a finite number of at most {LARGEST_NUMBER:g}")
    if name in MINIMA and isinstance(value, (int, float)) and value < MINIMA[name]:
        raise ValueError(f"got {name} = {value}, expected at least {MINIMA[name]}")
    if kind == "int" and isinstance(value, int) and value > (most := MAXIMA.get(name, MAXIMUM_SIZE)):
        raise ValueError(f"got {name} = {value}, expected at most {most}")

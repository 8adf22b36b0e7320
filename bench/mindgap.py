"""``python -m bench.mindgap``: how fast softmax attention loses rank at initialisation, beside random matrix theory.

The setting of "Mind the Gap" (Naderi, Nait Saada and Tanner, arXiv 2410.07799): attention A is the row-wise softmax of
independent logits, normal with mean -ln(2)/2 and variance ln 2, so that their exponentials have mean and variance 1;
tokens X_0 start orthonormal, and a layer is X <- A X W with W normal of variance 1/d. Each layer draws a new A and W.

A has one singular value near 1, whose vectors are the constant ones, and T - 1 of size 1 / sqrt(T): the largest of them
tends to 2 / sqrt(T). That gap makes tokens equal. The remedy of the paper takes the outlier out: A - 11^T / T in its
place, which leaves the small ones alone. What is measured is the stable rank of the kernel X X^T, sum s^4 / s_1^4.

What theory says for T = d, T to infinity. Without the outlier X is a product of 2l independent square random matrices,
whose squared singular values follow the Fuss-Catalan law of order n = 2l: second moment n + 1, right edge
(n + 1)^(n + 1) / n^n (Penson & Zyczkowski, arXiv 1103.3453). So the stable rank is T (n + 1) / edge^2. With it, A 1 = 1
gives A_l ... A_1 = 1 u^T + a product of matrices without outlier: one singular value near 1 over that same law scaled
by T^-l, so the stable rank exceeds 1 by (2l + 1) T / T^(2l).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from fbt_core.measures.rank import spectrum, stable_rank

SPREAD = math.sqrt(math.log(2.0))
"""Of the logits. Their mean is minus half its square."""

PUBLISHED = {"removed": (10.2, 6.0, 4.2), "kept": (1.02,)}
"""The figures to meet, at T = 150, for layers 1, 2 and 3; with the outlier, layer 1."""

AT = 150


@dataclass(frozen=True)
class Setting:
    """What the published description leaves open: the width, the first tokens, whether there are value matrices."""

    title: str
    ratio: float = 1.0  # d / T, at least 1
    isometric: bool = True  # X_0 X_0^T = I, else normal entries of variance 1 / d
    values: bool = True


MAIN = Setting("d = T, orthonormal tokens")
OTHERS = (
    Setting("d = 2 T", ratio=2.0),
    Setting("d = 5 T", ratio=5.0),
    Setting("normal tokens", isometric=False),
    Setting("no W", values=False),
)


@dataclass(frozen=True)
class Run:
    """One draw: stable rank minus 1 of X X^T after each layer, and the two largest singular values of the first A."""

    removed: np.ndarray  # (layer,), with A - 11^T / T
    kept: np.ndarray  # (layer,), with A
    top: float
    second: float


def attention(length: int, rng: np.random.Generator) -> np.ndarray:
    """(T, T) row-stochastic: softmax of independent normal logits."""
    weights = np.exp(rng.normal(-(SPREAD**2) / 2, SPREAD, (length, length)))
    return weights / weights.sum(1, keepdims=True)


def excess(X: np.ndarray) -> float:
    """Stable rank of X X^T minus 1, without the rounding of that difference: sum over i > 1 of (s_i / s_1)^4."""
    squares = spectrum(X) ** 2
    return stable_rank(squares[1:]) * (squares[1] / squares[0]) ** 2


def draw(length: int, layers: int, seed: int, setting: Setting = MAIN) -> Run:
    """One stack with each kind of attention, on the same A, W and first tokens."""
    rng = np.random.default_rng((seed, length))
    width = round(length * setting.ratio)
    tokens = rng.normal(size=(length, width)) / math.sqrt(width)
    if setting.isometric:
        tokens = np.linalg.qr(tokens.T)[0].T
    kept = removed = tokens
    ranks: dict[str, list[float]] = {"removed": [], "kept": []}
    top = second = math.nan
    for layer in range(layers):
        A = attention(length, rng)
        if layer == 0:
            top, second = spectrum(A)[:2]
        W = rng.normal(size=(width, width)) / math.sqrt(width) if setting.values else np.eye(width)
        kept, removed = A @ kept @ W, (A - 1 / length) @ removed @ W
        removed = removed / np.linalg.norm(removed)  # it decays as T^(-l/2), and its rank knows no scale
        ranks["kept"].append(excess(kept))
        ranks["removed"].append(excess(removed))
    return Run(np.array(ranks["removed"]), np.array(ranks["kept"]), float(top), float(second))


def limit(length: int, layer: int, kept: bool) -> float:
    """Stable rank minus 1 of X X^T after ``layer`` (from 1) layers, T = d, to the leading order in T."""
    n = 2 * layer
    if kept:
        return (n + 1) * float(length) ** (1 - n)
    edge = (n + 1) ** (n + 1) / n**n
    return length * (n + 1) / edge**2 - 1


def average(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Mean, and standard deviation over the seeds."""
    found = np.asarray(values, dtype=float)
    return float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else math.nan


def table(runs: list[Run], length: int) -> list[str]:
    """One length: the two singular values, then a line a layer; measured, and what theory gives."""
    top, second = average([run.top for run in runs]), average([run.second * math.sqrt(length) for run in runs])
    lines = [
        f"T = {length}: s_1 = {top[0]:.4f} ± {top[1]:.4f} (theory 1), "
        f"sqrt(T) s_2 = {second[0]:.3f} ± {second[1]:.3f} (theory 2)",
        f"{'layer':>5}  {'outlier removed':>17}{'T to infinity':>15}{'ratio':>7}   {'kept: rank - 1':>21}"
        f"{'theory':>11}{'ratio':>7}",
    ]
    for layer in range(1, len(runs[0].kept) + 1):
        removed, kept = (average([getattr(run, name)[layer - 1] for run in runs]) for name in ("removed", "kept"))
        expected, small = limit(length, layer, kept=False), limit(length, layer, kept=True)
        lines.append(
            f"{layer:>5}  {1 + removed[0]:>8.2f} ± {removed[1]:<6.2f}{1 + expected:>15.2f}"
            f"{(1 + removed[0]) / (1 + expected):>7.2f}   {kept[0]:>10.3g} ± {kept[1]:<8.2g}{small:>11.3g}"
            f"{kept[0] / small:>7.2f}"
        )
    return lines


def beside(runs: list[Run]) -> list[str]:
    """Our figures at T = 150 beside the published ones, and how far apart they are, in spreads of one draw."""
    lines = [f"published, T = {AT} (one figure a layer, no spread given):"]
    for name, figures in PUBLISHED.items():
        for layer, figure in enumerate(figures[: len(runs[0].kept)], 1):
            mean, spread = average([1 + getattr(run, name)[layer - 1] for run in runs])
            away = (figure - mean) / spread
            lines.append(
                f"  outlier {name}, layer {layer}: {figure:g}; ours {mean:.3f} ± {spread:.3f}, {away:+.1f} spreads away"
            )
    return lines


def main(
    lengths: Annotated[str, typer.Option(help="T, by commas.")] = "50,150,500",
    layers: Annotated[int, typer.Option(min=1, max=6)] = 4,
    seeds: Annotated[int, typer.Option(min=2)] = 20,
) -> None:
    """Print stable ranks by layer, mean and standard deviation over seeds, beside theory and the published figures."""
    print(f"A = softmax of N(-ln(2)/2, ln 2) logits, {MAIN.title}, X <- A X W, {seeds} seeds, float64")
    for length in map(int, lengths.split(",")):
        runs = [draw(length, layers, seed) for seed in range(seeds)]
        print("", *table(runs, length), sep="\n", flush=True)
    print("", *beside([draw(AT, layers, seed) for seed in range(seeds)]), sep="\n")
    print(f"\nother settings that the description allows, T = {AT}, outlier removed, layers 1, 2, 3 ...:")
    for setting in (MAIN, *OTHERS):
        found = [1 + draw(AT, layers, seed, setting).removed for seed in range(seeds)]
        cells = [average(values) for values in zip(*found, strict=True)]
        print(f"  {setting.title:26}" + "".join(f"{mean:9.2f} ± {spread:<5.2f}" for mean, spread in cells))
    print("\nAt finite T the ratio to the limit is not 1: the largest singular value is below its edge by a share of")
    print("order T^(-2/3), which the fourth power multiplies, more so the more matrices there are; and logs that are")
    print("normal have long tails, which lift sqrt(T) s_2 above 2.")


if __name__ == "__main__":
    typer.run(main)

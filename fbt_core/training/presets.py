"""Named plans: what ``train --preset NAME`` trains. To add one, add a row to ``PRESETS``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from fbt_core.config import FiberBundleConfig
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.training.plan import TrainingPlan

WIDENED = "euclidean-wide"
"""A Euclidean twin whose feed-forward is widened to the parameter count of ``MATCHED``: same budget, no metric."""

MATCHED = "riemannian"


@dataclass(frozen=True)
class Preset:
    """A plan and the models that it trains: fields of ``FiberBundleConfig`` for all, then those of each by name."""

    title: str
    plan: TrainingPlan
    shared: dict[str, Any]
    models: dict[str, dict[str, Any]]


PRESETS: dict[str, Preset] = {
    "smoke": Preset(
        "one tiny Riemannian model in under a minute: does training work here?",
        TrainingPlan("smoke", steps=200, batch=8, length=64, long_rows=((8, 256),), warm_up=20, checkpoint_every=20,
                     evaluation_rows=64),
        {"width": 32, "layers": 2, "heads": 2, "feed_forward": 64, "context": 256},
        {"riemannian": {"score": "riemannian", "rank": 4}},
    ),
    "twins": Preset(
        "the five demo models: same data, order, schedule and sizes, another score each",
        TrainingPlan("twins", steps=2500, batch=8, length=128, long_rows=((8, 512), (32, 1024))),
        {"width": 64, "layers": 6, "heads": 4, "feed_forward": 256, "context": 1024},
        {
            "euclidean": {"score": "euclidean"},
            "l2": {"score": "l2"},
            "riemannian": {"score": "riemannian", "rank": 4, "torsion_rank": 1, "transport": "frame"},
            "dictionary": {"score": "riemannian", "metric_family": "dictionary", "atoms": 8},
            WIDENED: {"score": "euclidean"},
        },
    ),
}  # fmt: skip


def preset_named(name: str) -> Preset:
    """A row of ``PRESETS``, or a ``ValueError`` that lists them."""
    if name not in PRESETS:
        raise ValueError(f"got preset {name!r}, expected one of {', '.join(PRESETS)}")
    return PRESETS[name]


def model_configs(preset: Preset, vocab_size: int, only: str = "") -> dict[str, FiberBundleConfig]:
    """The configs of a preset's models, or of those that ``only`` names, separated by commas.

    Raises ``ValueError`` for a name that the preset has not.
    """
    configs = {
        name: FiberBundleConfig(vocab_size=vocab_size, **preset.shared, **own) for name, own in preset.models.items()
    }
    if WIDENED in configs:
        configs[WIDENED] = widened(configs[WIDENED], parameter_count(configs[MATCHED]))
    chosen = [name.strip() for name in only.split(",") if name.strip()] or list(configs)
    if unknown := [name for name in chosen if name not in configs]:
        raise ValueError(f"got model {unknown[0]!r}, expected some of {', '.join(configs)}")
    return {name: configs[name] for name in configs if name in chosen}


def parameter_count(config: FiberBundleConfig) -> int:
    """How many numbers a model of this config learns. Allocates none of them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in FiberBundleTransformer(config).parameters())


def widened(config: FiberBundleConfig, parameters: int) -> FiberBundleConfig:
    """The same config with the feed-forward width that comes nearest to ``parameters`` in all; the count is linear."""
    here = parameter_count(config)
    slope = parameter_count(replace(config, feed_forward=config.feed_forward + 1)) - here
    return replace(config, feed_forward=max(1, config.feed_forward + round((parameters - here) / slope)))

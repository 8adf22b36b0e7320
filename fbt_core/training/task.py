"""One model to train, where its files go, and what is recorded of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fbt_core.config import FiberBundleConfig
from fbt_core.training.data import Source
from fbt_core.training.plan import TrainingPlan


@dataclass(frozen=True)
class Task:
    """One model to train: ``name`` is that of its files in ``folder``."""

    name: str
    config: FiberBundleConfig
    plan: TrainingPlan
    source: Source
    folder: Path
    command: str = ""  # reproduces the checkpoint; stored in it

    @property
    def checkpoint(self) -> Path:
        """Where the model goes."""
        return self.folder / f"{self.name}.safetensors"

    @property
    def state(self) -> Path:
        """Where an unfinished training goes on from."""
        return self.folder / f"{self.name}.state"

    def identity(self) -> dict[str, Any]:
        """What must be the same for a half-trained state, or a finished checkpoint, to be this task's."""
        plan = self.plan.to_dict()
        del plan["checkpoint_every"]  # how often one saves changes no number
        return {**plan, "model": self.name, "config": self.config.to_dict(), "data_sha256": self.source.sha256}

    def record(self, model: nn.Module, journal: dict[str, Any]) -> dict[str, Any]:
        """What a checkpoint says of how it was made so far: plain JSON values, no path of this machine."""
        return {
            "name": self.name,
            "preset": self.plan.preset,
            "command": self.command,
            "parameters": sum(p.numel() for p in model.parameters()),
            "seed": self.plan.seed,
            "steps": journal["steps"],
            "tokens": self.plan.tokens(journal["steps"]),
            "seconds": round(journal["seconds"], 1),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "data": {"source": self.source.name, "sha256": self.source.sha256},
            "plan": self.plan.to_dict(),
            "identity": self.identity(),
            "final_loss": journal.get("final_loss"),
            "curve": journal["curve"],
            "checks": journal["checks"],
        }

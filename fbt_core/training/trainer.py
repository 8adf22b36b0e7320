"""Trains one model by a plan. Killed at any moment and started again, it ends with the same numbers on a CPU."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_

from fbt_core.checkpoints import CheckpointError, load, native
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.training.evaluate import HeldOut, evaluate, metric_statistics
from fbt_core.training.progress import Progress
from fbt_core.training.state import REMEDY, read_state, write_state
from fbt_core.training.task import Task

CURVE_POINTS = 200
"""Points of the recorded loss curve at most, each the mean over the steps since the one before."""

CHECKS, STEPS_BETWEEN_CHECKS = 20, 10
"""Light evaluations during a training at most, and the fewest steps between two of them."""

CHECK_ROWS, METRIC_ROWS = 24, 4
"""Held-out rows of a light evaluation, and of the metric's statistics."""

LONG_ROWS = 8
"""Held-out rows of the longest length that the plan trains on."""


class DivergenceError(ArithmeticError):
    """The loss stopped being a finite number."""


def train_model(task: Task, restart: bool = False) -> dict[str, Any]:
    """Train, or go on training, or find it done; returns the training record that the checkpoint holds.

    Raises ``CheckpointError`` when files of another plan are in the way (``restart`` overwrites them) and
    ``DivergenceError`` when the loss is no longer finite.
    """
    task.folder.mkdir(parents=True, exist_ok=True)  # one that cannot be made is found before the training, not after
    if restart:
        task.state.unlink(missing_ok=True)
    elif not task.state.exists() and task.checkpoint.exists():
        return _finished_record(task)
    run = _Run(task)
    if task.state.exists():
        run.journal = read_state(task.state, run.model, run.optimizer, task.identity())
    return run.to_the_end()


def _finished_record(task: Task) -> dict[str, Any]:
    record = dict(load(task.checkpoint).training)
    if not record.get("finished") or record.get("identity") != task.identity():
        what = "another plan's" if record.get("finished") else "an unfinished"
        raise CheckpointError(f"{what} checkpoint {task.checkpoint.name} in the folder", "none, or this plan's", REMEDY)
    return record


class _Run:
    """The moving parts of one training."""

    def __init__(self, task: Task) -> None:
        plan = task.plan
        self.task = task
        self.model = FiberBundleTransformer(task.config, seed=plan.seed)
        self.model.to(device=plan.device, dtype=torch.float64 if plan.dtype == "float64" else torch.float32)
        matrices = [p for p in self.model.parameters() if p.ndim >= 2]
        others = [p for p in self.model.parameters() if p.ndim < 2]
        groups = [{"params": matrices, "weight_decay": plan.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=plan.learning_rate, betas=(plan.beta_1, plan.beta_2), fused=True)
        self.journal: dict[str, Any] = {"steps": 0, "seconds": 0.0, "curve": [], "pending": [], "checks": []}
        self.held = task.source.held_out(plan.evaluation_rows, plan.length)

    def to_the_end(self) -> dict[str, Any]:
        """Every step that is still to do, then the evaluation and the final checkpoint."""
        plan, journal = self.task.plan, self.journal
        began = time.monotonic() - journal["seconds"]
        self.model.train()
        with Progress(self.task.name, plan.steps, journal["steps"]) as progress:
            for step in range(journal["steps"], plan.steps):
                try:
                    loss = self._step(step)
                    self._note(step, loss)
                except torch.linalg.LinAlgError as fault:  # I + K of infinite weights has no Cholesky factor
                    raise DivergenceError(_diverged("weights too large to compute with", step)) from fault
                journal["seconds"] = time.monotonic() - began
                progress.advance(step + 1, math.prod(plan.shape(step)), loss)
                if (step + 1) % plan.checkpoint_every == 0 and step + 1 < plan.steps:
                    self._save()
        evaluation = self._evaluation()
        journal["seconds"] = time.monotonic() - began
        record = self.task.record(self.model, self.journal) | {"finished": True, "evaluation": evaluation}
        self._write_checkpoint(record)
        self.task.state.unlink(missing_ok=True)
        return record

    def _step(self, step: int) -> float:
        """One step of AdamW; returns the cross-entropy in nats a token."""
        plan = self.task.plan
        rows = self.task.source.rows(plan.seed, step, *plan.shape(step))
        ids = torch.from_numpy(rows.astype(np.int64)).to(plan.device)
        for group in self.optimizer.param_groups:
            group["lr"] = plan.rate(step)
        with self._arithmetic():
            loss, penalty = self.model.loss(ids)
        self.optimizer.zero_grad()
        (loss + penalty).backward()
        slope = float(clip_grad_norm_(self.model.parameters(), plan.clip))
        value = float(loss.detach())
        if not math.isfinite(value + slope):  # before the weights take it in, so that no saved state holds it
            raise DivergenceError(_diverged(f"loss {value} and a gradient of norm {slope}", step))
        self.optimizer.step()
        return value

    def _arithmetic(self) -> Any:
        if self.task.plan.dtype != "bfloat16":
            return nullcontext()
        return torch.autocast(torch.device(self.task.plan.device).type, torch.bfloat16)

    def _note(self, step: int, loss: float) -> None:
        """The journal after a step: loss curve, and now and then a light evaluation."""
        journal, done, steps = self.journal, step + 1, self.task.plan.steps
        journal["steps"], journal["final_loss"] = done, loss
        journal["pending"].append(loss)
        if done % math.ceil(steps / CURVE_POINTS) == 0 or done == steps:
            journal["curve"].append([done, sum(journal["pending"]) / len(journal["pending"])])
            journal["pending"] = []
        if done % max(math.ceil(steps / CHECKS), STEPS_BETWEEN_CHECKS) == 0 or done in (1, steps):
            found = self._evaluate(self.held.first(CHECK_ROWS))
            light = {key: found[key] for key in ("loss", "above_floor") if key in found}
            light |= {kind: table["accuracy"] for kind, table in found.items() if "accuracy" in _as_dict(table)}
            journal["checks"].append({"step": done, **light, **self._metric()})

    def _evaluate(self, held: HeldOut) -> dict[str, Any]:
        self.model.eval()
        with self._arithmetic():
            found = evaluate(self.model, held, self.task.plan.device)
        self.model.train()
        return found

    def _metric(self) -> dict[str, Any]:
        return metric_statistics(self.model, self.held.ids[:METRIC_ROWS], self.task.plan.device)

    def _evaluation(self) -> dict[str, Any]:
        """The final one: all held-out rows, long rows by bands of position, and the state of the metric."""
        plan = self.task.plan
        found = self._evaluate(self.held)
        if plan.long_rows:
            longest = max(length for _, length in plan.long_rows)
            long = self._evaluate(self.task.source.held_out(LONG_ROWS, longest))
            found["long"] = {"rows": LONG_ROWS, "length": longest, **long}
        return found | {"metric": self._metric()}

    def _save(self) -> None:
        """The state first: a checkpoint without one could not go on."""
        self.task.folder.mkdir(parents=True, exist_ok=True)
        write_state(self.task.state, self.model, self.optimizer, self.task.identity(), self.journal)
        self._write_checkpoint(self.task.record(self.model, self.journal) | {"finished": False})

    def _write_checkpoint(self, record: dict[str, Any]) -> None:
        task = self.task
        native.save(task.checkpoint, task.config, self.model.state_dict(), task.source.tokenizer, record)


def _diverged(got: str, step: int) -> str:
    return f"got {got} at step {step + 1}, expected finite numbers: use another seed, or a larger --batch"


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

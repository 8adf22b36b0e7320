"""The trained stage: every arm learns the same task from the same start, with the same batches and steps.

The control by sharpness stands here twice. ``free`` is a stack without metric whose temperatures start where its rows
are as wide as the heterogeneous arm's, and are then trained: what sharpness alone can learn. ``matched`` is the trained
heterogeneous arm with its metrics taken away and its rows made as wide again: what the metric does, for those weights.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from fbt_core.experiments.arms import ARMS, REFERENCE, Arm
from fbt_core.experiments.profile import Step, walk
from fbt_core.experiments.stack import PureStack, Shape, Tokens
from fbt_core.experiments.task import TASKS, Ids, Learner, draw_ids, score, train

HELD_OUT = 32
"""Sequences on which loss and accuracy are taken; none is trained on, but by chance."""

PROFILED = 4
"""Of those, the ones whose layers are measured."""


class Training:
    """All arms of one job of the trained stage."""

    def __init__(self, given: dict[str, Any], shape: Shape) -> None:
        self.given, self.shape, self.task = given, shape, TASKS[given["task"]]
        self.ids: Ids = draw_ids(given["seed"], "held out", HELD_OUT, shape.length, given["vocabulary"])
        self.ids = self.ids.to(given["device"])
        self._reference: Learner | None = None

    def profile(self, name: str) -> tuple[list[Step], dict[str, float]]:
        """The layers of a trained arm on the first held-out sequences; and its accuracy, loss (nats) and chance."""
        arm = ARMS[name]
        if arm.temperature == "matched":
            model, wanted = self._disarmed(arm), _narrowness(self.reference, self.ids)
        else:
            model, wanted = self.reference if name == REFERENCE else self._trained(arm), None
        with torch.no_grad():
            answers, steps = [], []
            for some in self.ids.split(PROFILED):
                walked = walk(model.stack, model.tokens(some), wanted)
                steps = steps or walked
                answers.append(model.answer(walked[-1].out))
            loss, accuracy = score(torch.cat(answers), self.task.answers(self.ids))
        return steps, {"loss": float(loss), "accuracy": accuracy, "chance": 1 / self.given["vocabulary"]}

    @property
    def reference(self) -> Learner:
        """The heterogeneous arm, trained once."""
        if self._reference is None:
            self._reference = self._trained(ARMS[REFERENCE])
        return self._reference

    def _new(self, arm: Arm) -> Learner:
        given = self.given
        return Learner(self.shape, arm, given["seed"], given["vocabulary"], self.task).to(given["device"])

    def _trained(self, arm: Arm) -> Learner:
        model, given = self._new(arm), self.given
        if arm.temperature == "trained" and arm.metric == "none":
            wanted = _narrowness(self._new(ARMS[REFERENCE]), self.ids)
            start = walk(self._new(ARMS["matched"]).stack, model.tokens(self.ids[:PROFILED]), wanted)
            set_temperatures(model.stack, [float(step.factors.tau) for step in start])
        train(model, given["seed"], **{name: given[name] for name in ("steps", "batch", "learning_rate")})
        return model

    def _disarmed(self, arm: Arm) -> Learner:
        """The trained heterogeneous arm's weights without its MetricNets."""
        model = self._new(arm)
        kept = model.state_dict().keys()
        model.load_state_dict({name: value for name, value in self.reference.state_dict().items() if name in kept})
        return model


def set_temperatures(stack: PureStack, taus: list[float]) -> None:
    """Give each layer of a stack with trained temperatures its tau."""
    for layer, tau in zip(stack.layers, taus, strict=True):
        layer.log_tau.data.fill_(math.log(tau))


def _narrowness(model: Learner, ids: Ids) -> list[float]:
    """What each layer's rows have on the profiled sequences; the same for a match on any others."""
    with torch.no_grad():
        x: Tokens = model.tokens(ids[:PROFILED])
    return [step.narrowness for step in walk(model.stack, x)]

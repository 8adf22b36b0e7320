"""How far a sweep is, and how long it will take yet: a bar on a terminal, a line now and then anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from tqdm import tqdm

from fbt_core.training.progress import SECONDS_BETWEEN_LINES, clock


class SweepProgress:
    """Counts finished jobs. ``costs`` says how long each may take, in any unit: the time left is estimated by it.

    ``left`` are the numbers of the jobs that this command has to do; the others are done already.
    """

    def __init__(self, name: str, costs: Sequence[float], left: Sequence[int]) -> None:
        self.name, self.costs = name, costs
        self.total, self.done = len(costs), len(costs) - len(left)
        self.open = sum(costs[number] for number in left)
        self.paid = 0.0
        self.began = self.spoke = time.monotonic()
        terminal = sys.stderr.isatty()
        self.bar = tqdm(total=self.total, initial=self.done, desc=name, unit="job") if terminal else None
        if self.bar is not None:
            self.bar.bar_format = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}, {postfix}]"
        elif self.done:
            print(f"{name}: {self.done} of {self.total} jobs were done before", file=sys.stderr, flush=True)

    def finished(self, number: int) -> None:
        """Job ``number`` is done."""
        self.done += 1
        self.paid += self.costs[number]
        now = time.monotonic()
        left = (now - self.began) / self.paid * max(self.open - self.paid, 0.0) if self.paid else 0.0
        if self.bar is not None:
            self.bar.set_postfix_str(f"{clock(left)} left", refresh=False)
            self.bar.update(1)
        elif now - self.spoke >= SECONDS_BETWEEN_LINES or self.done == self.total:
            self.spoke = now
            line = f"{self.name}: job {self.done}/{self.total}, {clock(now - self.began)} gone, {clock(left)} left"
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the terminal's line."""
        if self.bar is not None:
            self.bar.close()

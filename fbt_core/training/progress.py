"""How far a training is: a bar on a terminal, a line now and then anywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Shows the loss, tokens a second and the time left. Use as a context manager; ``start`` steps are done already."""

    def __init__(self, name: str, steps: int, start: int) -> None:
        self.name, self.steps, self.start = name, steps, start
        self.began = self.spoke = time.monotonic()
        self.tokens = 0
        self.bar = tqdm(total=steps, initial=start, desc=name, unit="step") if sys.stderr.isatty() else None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()

    def advance(self, done: int, tokens: int, loss: float) -> None:
        """Step number ``done`` (of ``steps``) has fed ``tokens`` tokens and had this loss in nats a token."""
        self.tokens += tokens
        now = time.monotonic()
        speed = self.tokens / max(now - self.began, 1e-9)
        if self.bar is not None:
            self.bar.set_postfix_str(f"loss {loss:.4f}, {speed:,.0f} tokens/s", refresh=False)
            self.bar.update(1)
        elif now - self.spoke >= SECONDS_BETWEEN_LINES or done == self.steps:
            self.spoke = now
            left = (now - self.began) / (done - self.start) * (self.steps - done)
            line = f"{self.name}: step {done}/{self.steps}, loss {loss:.4f}, {speed:,.0f} tokens/s, {clock(left)} left"
            print(line, file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """``1:02:03``, or ``2:03`` below an hour."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"

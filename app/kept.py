"""Functions whose answers are kept in one budget of bytes: ``FIBERSCOPE_MEMORY``, or half of what was free at start."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from app.budget import Budget
from app.line import Line
from app.turns import Watch, taken
from fbt_core.checkpoints import memory

SHARE = 0.5
"""Of the memory that is free when the server starts, what all that is kept may take."""


def most() -> int:
    """Bytes that all that is kept may take, no more than there are. Of a limit that cannot be read nothing is kept:
    reading a checkpoint then says what is wrong with it."""
    try:
        return int(memory.available_bytes() * (1.0 if memory.limit() else SHARE))
    except ValueError:
        return 0


BUDGET = Budget(most())
memory.RELIEF.append(BUDGET.make_room)  # a model that does not fit beside what is kept

MISSING = object()


class Kept:
    """A function whose answers are kept in the budget. In a ``line`` it waits for its turn, ``words`` on the page."""

    def __init__(self, function: Callable[..., Any], line: Line | None = None, words: str = "") -> None:
        self.function, self.line, self.words = function, line, words
        self.__doc__, self.name = function.__doc__, f"{function.__module__}.{function.__qualname__}"

    def __call__(self, *given: Any) -> Any:
        """The answer, kept or new."""
        return kept(self.line, (self.name, *given), partial(self.function, *given), self.words)

    def clear(self, *given: Any) -> None:
        """Forget the answer to what is given, or all of them."""
        known = (self.name, *given)
        BUDGET.release(lambda key: isinstance(key, tuple) and key[: len(known)] == known)

    def weigh(self, *given: Any) -> None:
        """Count an answer again that has grown."""
        BUDGET.weigh((self.name, *given))


def keep(line: Line | None = None, words: str = "") -> Callable[[Callable[..., Any]], Kept]:
    """Decorate with ``Kept``."""
    return lambda function: Kept(function, line, words)


def kept(
    line: Line | None, key: Hashable, compute: Callable[[], Any], words: str = "", watch: Watch | None = None
) -> Any:
    """What is kept under a key, or else computed, in a line or at once."""

    def made() -> Any:
        if (found := BUDGET.get(key, MISSING)) is MISSING:  # whoever stood before in the line may have made it
            found = compute()
            BUDGET.put(key, found)
        return found

    if (found := BUDGET.get(key, MISSING)) is not MISSING:
        return found
    return made() if line is None else taken(line, key, made, words, watch)

"""Whether a model fits into this machine's memory, asked before any of it is read."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import torch

from fbt_core.checkpoints.faults import CheckpointError

ENVIRONMENT = "FIBERSCOPE_MEMORY"
"""A cap on the bytes that checkpoints, and in the app all that is kept, may take: a number, or one with K, M, G or T
behind it (powers of 1024)."""

RELIEF: list[Callable[[int], object]] = []
"""Asked in turn to free so many bytes, before a model is refused that would need them."""

_COLLECTING = threading.Lock()

_LIMITS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
"""A container's limit and what it uses, in either version of Linux's control groups."""


def available_bytes() -> int:
    """Bytes that a new model may take: the least of the machine's, the container's and ``FIBERSCOPE_MEMORY``."""
    found = [_machine(), *(_number(limit) - _number(used) for limit, used in _LIMITS if _number(limit) > 0)]
    if cap := limit():
        found.append(cap)
    return max(0, min(found))


def limit() -> int:
    """The bytes that ``FIBERSCOPE_MEMORY`` allows; 0 where it is not set. Raises ``ValueError`` as ``parsed`` does."""
    cap = os.environ.get(ENVIRONMENT, "")
    return parsed(cap) if cap else 0


def parsed(text: str) -> int:
    """The bytes of "800M" or "4G" or "1000000". Raises ``ValueError`` (got, expected) for anything else."""
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f"got {ENVIRONMENT}={text[:40]!r}, expected bytes, such as 4G")
    return int(match[1]) << 10 * " KMGT".index(match[2].upper() or " ")


def check_fits(needed: int) -> None:
    """Raises ``CheckpointError``, with the numbers, when ``needed`` bytes are not there."""
    for relieve in RELIEF:
        if (lacking := needed - available_bytes()) > 0:
            relieve(lacking)
            give_back()
    if (there := available_bytes()) < needed:
        raise CheckpointError(
            f"a model that needs {gib(needed)} of memory",
            f"at most the {gib(there)} that are free here",
            "Close other models, use a machine with more memory, or save the weights in bfloat16.",
        )


def give_back() -> None:
    """Return the memory of what was let go of to the machine: a model and its hooks hold each other until collected."""
    with _COLLECTING:
        set_apart = gc.get_freeze_count() > 0  # as a server does with what there is: such a model may be among it
        gc.unfreeze()
        gc.collect()
        if set_apart:
            gc.freeze()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # not glibc
        pass


def gib(count: int) -> str:
    """Bytes for people: "1.95 GiB", "200 MiB"."""
    return f"{count / (1 << 30):.2f} GiB" if count >= 1 << 30 else f"{-(-count // (1 << 20))} MiB"


def _machine() -> int:
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    if match is not None:
        return int(match[1]) << 10
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _number(path: Path) -> int:
    """The number in a file; 0 where there is no file or it says "max"."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0

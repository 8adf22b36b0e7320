"""What every test shares: one torch thread, fixed random examples, and no network but loopback.

Nothing here may import ``fbt_core`` at module level: the import hook that checks shapes is installed after this file.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent

torch.set_num_threads(1)  # on few shared cores more threads are slower, and sums would depend on their number

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("fixed")


def is_loopback(address: object) -> bool:
    """Whether a socket address is a Unix socket's path, or a host of the loopback range."""
    if not isinstance(address, tuple):
        return True
    host = str(address[0])
    return host in ("localhost", "::1", "") or host.startswith("127.")


def _refuse_outside(event: str, arguments: tuple[object, ...]) -> None:
    if event == "socket.connect" and not is_loopback(arguments[1]):
        raise ConnectionRefusedError(f"a test tried to reach {arguments[1]!r}: only loopback may be reached in tests")


sys.addaudithook(_refuse_outside)  # cannot be removed, so it is installed once, for the whole session


def pytest_collection_finish() -> None:
    """Every test module is imported. Streamlit looks for garbage after each run of a script: it need not look there."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seed() -> None:
    """A test that forgets its own seed, or follows one that set the threads, still sees the same numbers each time."""
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def assets(root: Path) -> Path:
    """Where the trained twins lie."""
    return root / "assets"

"""Seeded mutations of good files, opened in a warm process: a line of JSON asks for a batch, another tells of it."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.corpus.mutations import mutant, resized
from tests.corpus.worker import forget_peak, processor_seconds, resident, tokens

PATIENCE = 60.0
"""After so many seconds in one mutant the process prints where it stands, and ends."""

EXTRA_BYTES = 2 << 30


def _load(path: Path) -> bool:
    """Whether all of it can be used: with a tokenizer that is broken, a model is opened by ids."""
    from fbt_core.checkpoints import CheckpointError, load

    try:
        checkpoint = load(path)
    except CheckpointError as fault:
        str(fault).encode()
        return False
    tokens(checkpoint.tokenizer)
    return not any(".json cannot be used" in notice for notice in checkpoint.notices)


def _inspect(path: Path) -> bool:
    from fbt_core.checkpoints import inspect

    found = inspect(path)
    json.dumps(found.to_dict()).encode()
    return found.ok


def _plan(form: str) -> Callable[[Path], bool]:
    """The pickle's own interpreter, in this process: what a child process runs for each file."""

    def run(path: Path) -> bool:
        from fbt_core.checkpoints.pickle_plan import __main__ as pickle_plan

        with contextlib.redirect_stdout(io.StringIO()) as printed:
            pickle_plan.main(str(path), form, "0", str(path.stat().st_size))
        return "fault" not in json.loads(printed.getvalue())

    return run


def _stumble(path: Path) -> bool:
    """The oracle of the tests: a reader with three faults."""
    raw = path.read_bytes()
    if len(raw) % 7 == 0:
        raise KeyError(len(raw))
    if raw.startswith(b"hang"):
        time.sleep(3600)
    return True


ROUTES: dict[str, Callable[[Path], bool]] = {
    "load": _load, "inspect": _inspect, "plan zip": _plan("zip"), "plan legacy": _plan("legacy"), "stumble": _stumble,
}  # fmt: skip


def batch(
    file: str,
    target: str,
    routes: list[str],
    count: int,
    head: int,
    seed: str,
    header: bool,
    patience: float = PATIENCE,
) -> dict[str, Any]:
    """Write ``count`` mutants of ``file`` in its place, and open ``target`` (the file or its folder) by each route.

    First the good file itself, by each route: it must open, and it pays for the imports.
    """
    path, good = Path(file), Path(file).read_bytes()
    faulthandler.dump_traceback_later(patience, exit=True)
    tally: dict[str, Any] = {"good": [ROUTES[route](Path(target)) for route in routes]}
    faulthandler.cancel_dump_traceback_later()
    tally |= {"opened": 0, "refused": 0, "escaped": [], "slowest": 0.0, "of": ""}
    forget_peak()
    before = resident("VmRSS")
    for number in range(count):
        label = f"{seed} {number}"
        path.write_bytes((resized if header else mutant)(good, label, head))
        for route in routes:
            start = processor_seconds()
            faulthandler.dump_traceback_later(patience, exit=True)
            try:
                tally["opened" if ROUTES[route](Path(target)) else "refused"] += 1
            except BaseException as fault:
                tally["escaped"].append(f"{label}, {route}: {type(fault).__name__}: {str(fault)[:200]}")
            faulthandler.cancel_dump_traceback_later()
            if (seconds := processor_seconds() - start) > tally["slowest"]:
                tally |= {"slowest": seconds, "of": f"{label}, {route}"}
    path.write_bytes(good)
    return tally | {"growth": resident("VmHWM") - before, "escaped": tally["escaped"][:20]}


def main() -> None:
    """Serves until standard input ends. Warms up first, so that no batch pays for the imports."""
    import fbt_core.checkpoints  # noqa: F401

    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + EXTRA_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    for line in sys.stdin:
        print(json.dumps(batch(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

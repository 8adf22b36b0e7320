"""Work on a file that nobody vouches for, in a child process with limits: what it does there cannot hurt here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fbt_core.checkpoints.faults import CheckpointError

try:
    import resource
except ImportError:  # Windows: only the timeout and the size of the output bind
    resource = None

KEPT = ("PATH", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH")
QUIET = {
    "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip
MOST_ERRORS = 64 << 10


@dataclass(frozen=True)
class Limits:
    """What a child may use. Beyond one of them it is killed and its file refused.

    ``memory`` is its address space in bytes (torch alone maps some 4 GB), ``seconds`` bounds both the wall clock and
    its CPU time, ``output`` the bytes it prints.
    """

    memory: int = 1 << 30
    seconds: float = 30.0
    output: int = 64 << 20


def run_python(
    arguments: Sequence[str],
    task: str,
    limits: Limits | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> bytes:
    """What ``python ARGUMENTS...`` prints; ``task`` completes "could not ...", for the error.

    The child reads nothing from us, gets an environment of its own plus ``environment``, and starts in ``folder``.
    Memory and CPU are limited where the platform can do so (Linux); elsewhere the clock alone ends it.
    Raises ``CheckpointError`` when it fails, and when it takes more than its ``limits``.
    """
    limits = limits or Limits()
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    with subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**kept, **QUIET, **(environment or {})}, cwd=folder, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            _limit(process.pid, limits)
            printed, errors = _collect(process, limits)
        except subprocess.TimeoutExpired as error:
            raise _too_much(task, f"more than {limits.seconds:g} seconds") from error
        finally:
            _kill(process)
    if len(printed) > limits.output:
        raise _too_much(task, f"more than {limits.output} bytes of output")
    if process.returncode:
        raise _fault(process.returncode, errors, task, limits)
    return printed


def _limit(pid: int, limits: Limits) -> None:
    """Set from outside, since code between fork and exec can deadlock in a process that has threads."""
    if resource is None or not hasattr(resource, "prlimit"):
        return
    seconds = max(1, int(limits.seconds))
    try:
        resource.prlimit(pid, resource.RLIMIT_AS, (limits.memory, limits.memory))
        resource.prlimit(pid, resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError):  # it has ended already, or limits may not be set here: the clock still binds
        pass


def _collect(process: subprocess.Popen[bytes], limits: Limits) -> tuple[bytes, bytes]:
    """Both streams, each in its own thread and no further than its cap; ``TimeoutExpired`` when the time is up."""
    kept: dict[str, bytes] = {}
    threads = [
        threading.Thread(target=_drain, args=(process.stdout, limits.output, kept, "printed", process), daemon=True),
        threading.Thread(target=_drain, args=(process.stderr, MOST_ERRORS, kept, "errors", process), daemon=True),
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limits.seconds
    threads[0].join(limits.seconds)  # until the child closes its output: asking whether it has ended is slower
    process.wait(max(end - time.monotonic(), 0.01))
    threads[1].join(1.0)
    return kept.get("printed", b""), kept.get("errors", b"")


def _drain(stream: IO[bytes], cap: int, kept: dict[str, bytes], name: str, process: subprocess.Popen[bytes]) -> None:
    """Read up to one byte more than ``cap``, so that too much is known from enough; then end the child."""
    kept[name] = stream.read(cap + 1)
    if len(kept[name]) > cap:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The child and all that it started, unless it has ended."""
    if process.poll() is not None:
        return
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def _too_much(task: str, amount: str) -> CheckpointError:
    return CheckpointError(
        f"a file that takes {amount} to {task}", "less", "It may be damaged or made to do harm: get it elsewhere."
    )


def _fault(code: int, errors: bytes, task: str, limits: Limits) -> CheckpointError:
    if code == -getattr(signal, "SIGXCPU", 24):
        return _too_much(task, f"more than {limits.seconds:g} seconds")
    last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if "MemoryError" in last or code == -9:
        return _too_much(task, f"more than {limits.memory} bytes of memory")
    got = f"a file that a child process could not {task} (exit {code}, {last[-200:]!r})"
    return CheckpointError(got, "a sound file", "It may be damaged: copy, download or save it again.")

"""The C++ kernel, compiled for this machine at its first use, into a folder that only this user can write to."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path

COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-shared", "-pthread")
SOURCES = (
    "lanes.h", "problem.h", "forward.h", "backward.h",
    "half.h", "half_features.h", "half_forward.h", "half_keys.h", "half_backward.h", "kernel.cpp",
)  # fmt: skip
SECONDS = 90
"""A compiler that takes longer than this has hung: it takes a few seconds, or some more on a busy machine."""

ONE = threading.Lock()
"""Threads that ask at once wait for one answer, and do not try one after another a compiler that hangs."""

LOG = logging.getLogger(__name__)


def kernel() -> ctypes.CDLL | None:
    """The compiled kernel, or ``None`` where there is none, which is said once.

    None without a compiler, when the compiler fails, when no private folder can be had, and with FIBERSCOPE_KERNEL=off.
    """
    with ONE:
        return _kernel()


@cache
def _kernel() -> ctypes.CDLL | None:
    if os.environ.get("FIBERSCOPE_KERNEL", "").lower() == "off":
        LOG.info("The compiled attention kernel is switched off (FIBERSCOPE_KERNEL): attention runs on torch alone.")
        return None
    try:
        return _loaded(_built())
    except (OSError, subprocess.SubprocessError) as fault:
        LOG.warning("No compiled attention kernel, attention runs on torch alone, slower: %s", fault)
        return None


def _loaded(library: Path) -> ctypes.CDLL:
    """A file that is none, as a full or failing disk leaves behind, is made anew, once."""
    try:
        return ctypes.CDLL(str(library))
    except OSError:
        library.unlink(missing_ok=True)
        return ctypes.CDLL(str(_built()))


def _built() -> Path:
    """The library's path. Two processes that want it at once compile it once."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None or os.name != "posix":
        raise OSError(f"got no compiler, expected one of {', '.join(COMPILERS)} on the path of a POSIX system")
    import fcntl  # there is none elsewhere

    folder = _private(_folder())
    target = folder / f"attention-{_identity(compiler)}.so"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _compile(compiler, target)
    return target


def _compile(compiler: str, target: Path) -> None:
    LOG.info("Compiling the attention kernel once for this machine, a few seconds: %s", target)
    with tempfile.TemporaryDirectory(dir=target.parent) as room:
        made = Path(room) / target.name
        command = [compiler, *FLAGS, str(Path(__file__).with_name(SOURCES[-1])), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
        if done.returncode:
            raise OSError(f"{compiler} failed: {done.stderr.decode(errors='replace').strip()[-500:]}")
        with made.open("rb") as file:
            os.fsync(file)  # a library that is cut short, by a power cut after the renaming, would end the process
        made.rename(target)


def _identity(compiler: str) -> str:
    """Of the sources, the compiler, its flags and the processor: whatever the machine code depends on."""
    parts = [Path(__file__).with_name(name).read_bytes() for name in SOURCES]
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=SECONDS, check=True).stdout
    parts += [compiler.encode(), version, " ".join(FLAGS).encode(), _processor()]
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:24]


def _processor() -> bytes:
    """The model and the features of the first processor, where Linux tells them."""
    info = Path("/proc/cpuinfo")
    lines = info.read_bytes().partition(b"\n\n")[0].splitlines() if info.exists() else []
    kept = (b"vendor_id", b"model", b"flags", b"Features", b"CPU ")
    return b"\n".join(line for line in lines if line.startswith(kept)) or os.uname().machine.encode()


def _folder() -> Path:
    """Where the user's caches are, or a folder of the user's own beside other temporary files."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    wanted = Path(home) / "fiberscope"
    if not wanted.is_absolute():  # no cache by its own standard; or a user without a home
        return _temporary()
    try:
        wanted.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = wanted.stat()
    except OSError:
        return _temporary()
    others = found.st_uid != os.getuid() or found.st_mode & 0o022  # they could put another folder in the place of ours
    return _temporary() if others or not os.access(wanted, os.W_OK) else wanted / "kernels"


def _temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"fiberscope-kernels-{os.getuid()}"


def _private(folder: Path) -> Path:
    """The folder, made if it is not there. Raises ``OSError`` when anyone else could put a library into it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OSError(f"got the folder {folder}, expected one that only this user can read and write: remove it")
    return folder

"""The app as a user starts it: a Streamlit server in a process of its own, on a free loopback port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DEADLINE = 60.0 * float(os.environ.get("FIBERSCOPE_PATIENCE", "1"))
"""Seconds until a server that does not answer counts as failed."""


@dataclass(frozen=True)
class Server:
    """A running app."""

    address: str  # such as http://127.0.0.1:40001
    log: Path
    started: float  # time.monotonic() just before the process was started
    pid: int

    def said(self) -> str:
        """Everything that the server printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")


@contextmanager
def running(root: Path, scratch: Path, **settings: str) -> Iterator[Server]:
    """Start the app, wait until it is healthy, and end it. What it stores goes below ``scratch``; ``settings`` are
    variables of its environment."""
    port = _free_port()
    log = scratch / "server.log"
    command = [
        sys.executable, "-m", "streamlit", "run", "streamlit_app.py", f"--server.port={port}",
        "--server.address=127.0.0.1", "--server.headless=true", "--browser.gatherUsageStats=false",
    ]  # fmt: skip
    own = {"TMPDIR": str(scratch), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    environment = os.environ | own | settings
    started = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    server = Server(f"http://127.0.0.1:{port}", log, started, process.pid)
    try:
        _wait(process, server)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _wait(process: subprocess.Popen[bytes], server: Server) -> None:
    while time.monotonic() - server.started < DEADLINE:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode}:\n{server.said()}")
        try:
            with urllib.request.urlopen(f"{server.address}/_stcore/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the server was not healthy after {DEADLINE:.0f} s:\n{server.said()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

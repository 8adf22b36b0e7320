"""Where the browser tests get a Chromium: one that the machine has, or one that they fetch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Playwright

VARIABLE = "FIBERSCOPE_CHROMIUM"
"""An environment variable that may name the executable."""

NAMES = (
    "chromium-headless-shell", "chrome-headless-shell", "chromium", "chromium-browser", "google-chrome",
    "google-chrome-stable",
)  # fmt: skip
"""The same engine without windows first: a window for each context is another second of a core."""

REMEDY = (
    "no Chromium for the browser tests: install one (Debian: apt-get install chromium-headless-shell; "
    f"elsewhere: python -m playwright install chromium) or set {VARIABLE} to an executable"
)

ARGUMENTS = [
    "--no-sandbox",  # root, as in a container, cannot have the sandbox; only our own pages are opened
    "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",  # WebGL2 without a graphics card
    "--disable-gpu-rasterization", "--disable-gpu-compositing",  # all else without it: a sixth of the time
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip


def find(playwright: Playwright) -> str | None:
    """The executable of a Chromium on this machine, the most explicit place first, or None."""
    if named := os.environ.get(VARIABLE):
        return named if Path(named).is_file() else None
    for name in NAMES:
        if path := shutil.which(name):
            return path
    own = playwright.chromium.executable_path
    return own if Path(own).is_file() else None


def fetch(log: Path) -> None:
    """Install one: Debian's package as root where there is apt-get, else playwright's own build. Never raises."""
    as_root = getattr(os, "geteuid", lambda: 1)() == 0
    if as_root and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "--no-install-recommends"]
        commands = [["apt-get", "update"], [*install, "chromium-headless-shell"], [*install, "chromium"]]
    else:
        commands = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    with log.open("w", encoding="utf-8") as out:
        for command in commands:
            try:
                ended = subprocess.run(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                    timeout=900, check=False,
                )  # fmt: skip
            except (OSError, subprocess.TimeoutExpired) as fault:
                print(fault, file=out)
            else:
                if "install" in command and ended.returncode == 0:
                    return


def obtain(playwright: Playwright, log: Path) -> str:
    """Find one, else fetch one and find it. Raises ``FileNotFoundError`` with the remedy in one line."""
    if (path := find(playwright)) is None and not os.environ.get(VARIABLE):
        fetch(log)
        path = find(playwright)
    if path is None:
        raise FileNotFoundError(REMEDY)
    return path

"""A worker process that is asked by JSON lines, and started anew when a file has killed it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


class Process:
    """``python -m module arguments`` with its temporary files in ``temporary`` and ``foreign`` on its import path."""

    def __init__(self, module: str, arguments: list[str], temporary: Path, foreign: Path | None = None) -> None:
        self.command = [sys.executable, "-m", module, *arguments]
        paths = [str(ROOT), *([str(foreign)] if foreign else [])]
        self.environment = os.environ | {
            "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(temporary.parent / f"{temporary.name}.inductor"),
        }  # fmt: skip
        self.errors = (temporary.parent / f"{temporary.name}.stderr").open("w+")
        self.child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.errors.close()

    def stop(self) -> None:
        """End the child, if there is one."""
        if self.child is not None:
            self.child.kill()
            self.child.communicate()
            self.child = None

    def ask(self, question: Any, seconds: float = 240) -> dict[str, Any]:
        """The answer, or {"died": why} where the process ended or was silent for so long."""
        if self.child is None:
            self.child = subprocess.Popen(
                self.command, env=self.environment, cwd=ROOT, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            )  # fmt: skip
        child = self.child
        assert child.stdin and child.stdout
        child.stdin.write(json.dumps(question) + "\n")
        child.stdin.flush()
        ready, _, _ = select.select([child.stdout], [], [], seconds)
        line = child.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        status = child.poll() if ready else "silent"
        self.stop()
        self.errors.seek(0)
        return {"died": f"{question!r:.100}: {status}, {self.errors.read()[-3000:]}"}

"""docs/verdict.md says what the kept rows say: its tables are what the command prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COMMAND = "-m fbt_core collapse --report experiments/results.parquet"


def test_the_tables_are_those_of_the_kept_results(root: Path) -> None:
    text = (root / "docs" / "verdict.md").read_text(encoding="utf-8")
    told = text.partition(f"<!-- tables: python {COMMAND} -->")[2].partition("<!-- end of tables -->")[0]
    printed = subprocess.run(
        [sys.executable, *COMMAND.split()], cwd=root, capture_output=True, text=True, check=True, timeout=300
    )
    assert told.strip() == printed.stdout.strip()

"""``python -m tests.corpus FOLDER`` writes the corpus into a new folder."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.corpus import CASES, write_corpus

if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
    sys.exit("usage: python -m tests.corpus FOLDER    (a folder that does not exist yet)")
write_corpus(Path(sys.argv[1]).resolve())
print(f"{len(CASES)} files and folders in {sys.argv[1]}")

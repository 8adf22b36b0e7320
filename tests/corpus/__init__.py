"""The hostile corpus: every kind of file that a loader meets, small, the same at each call, with what must come of it.

``python -m tests.corpus FOLDER`` writes it. ``CASES`` is the one table: name of a file or folder to its ``Case``.
The kinds:

 1 good files              2 PyTorch zip              3 PyTorch without a zip     4 prefixed keys
 5 training checkpoints    6 foreign objects beside   7 whole pickled modules     8 code to run
 9 a huge bytearray       10 a huge tensor call      11 a stride of zero         12 a billion laughs
13 a deflated PyTorch zip 14 two pickles in one      15 records too short        16 cut short
17 Git LFS pointers       18 pages and errors        19 the wrong name           20 headers that lie
21 keys given twice       22 places that do not fit  23 far too many             24 hostile names
25 NaN and zeros          26 dtypes and packing      27 parts that do not fit    28 archives
29 config.json            30 tokenizer.json
"""

from __future__ import annotations

from pathlib import Path

from tests.corpus import (
    archive_files,
    config_files,
    folder_files,
    gguf_files,
    pickle_files,
    safetensors_files,
    tokenizer_files,
)
from tests.corpus.case import CANARY, FOREIGN, Case, foreign_source

__all__ = ["CANARY", "CASES", "FOREIGN", "KINDS", "Case", "write_corpus"]

KINDS = range(1, 31)

CASES: dict[str, Case] = (
    safetensors_files.CASES
    | pickle_files.CASES
    | gguf_files.CASES
    | folder_files.CASES
    | config_files.CASES
    | archive_files.CASES
    | tokenizer_files.CASES
    | {"line\nbreak\x1b[31m\u202e<b>.bin": safetensors_files.CASES["page.bin"]}
)


def write_corpus(folder: Path) -> None:
    """Every file of the table into a new folder, and the module that none of them may import beside them."""
    folder.mkdir(parents=True)
    for name, case in CASES.items():
        case.write(folder / name)


def write_foreign(folder: Path, corpus: Path) -> None:
    """A folder to put on the import path: importing ``FOREIGN`` from it leaves the canary in ``corpus``."""
    folder.mkdir(parents=True)
    (folder / f"{FOREIGN}.py").write_text(foreign_source(corpus) + "\n\nclass Net: ...\n", encoding="utf-8")

"""``python -m fbt_core inspect``: what files truly are and whether they can be opened, from their headers alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fbt_core.checkpoints import Inspection
from fbt_core.checkpoints import inspect as inspect_source
from fbt_core.checkpoints.memory import gib
from fbt_core.commands.arguments import write


def inspect(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders, each a checkpoint.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects instead of lines.")] = False,
) -> None:
    """Say what each path is: one line a path; exit status 2 if any of them cannot be used."""
    found = []
    for path in paths:
        found.append(inspect_source(path))
        if not as_json:
            write("-", one_line(found[-1]) + "\n")
    if as_json:
        write("-", json.dumps([one.to_dict() for one in found], indent=1) + "\n")
    if not all(one.ok for one in found):
        raise typer.Exit(2)


def one_line(found: Inspection) -> str:
    """Path, verdict, format and message, every character of them printable."""
    size = f", {gib(found.needed_bytes)} of memory" if found.needed_bytes and found.ok else ""
    text = f"{found.path}: {'ok' if found.ok else 'NOT USABLE'}: {found.format}: {found.message}{size}"
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)

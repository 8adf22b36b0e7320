"""What the commands share: their common options, a model opened on a text, and one-line errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer

from fbt_core.checkpoints import Checkpoint, CheckpointError, load
from fbt_core.model import DTYPES, build
from fbt_core.trace import Trace

TextOption = Annotated[str, typer.Option(help="The text to read, or @FILE.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, mps ...")]
DtypeOption = Annotated[str, typer.Option(help=" | ".join(DTYPES))]
StrengthOption = Annotated[float, typer.Option(help="Multiplies every U; anything but 1 is a what-if.")]


@dataclass(frozen=True)
class Opened:
    """A checkpoint and its trace of a text."""

    checkpoint: Checkpoint
    trace: Trace

    @property
    def tokens(self) -> tuple[str, ...]:
        """One label a token."""
        return self.trace.tokens


def open_model(path: Path, text: str, device: str, dtype: str, strength: float = 1.0) -> Opened:
    """Load, build, encode, trace; a fault of the user's is one line and exit status 2."""
    with one_line_errors():
        checkpoint = load(path)
        model = build(checkpoint, checked_device(device), dtype)
        encoding = checkpoint.tokenizer.encode(_text(text))
        ids = torch.tensor(encoding.ids, device=device)
        return Opened(checkpoint, model.trace(ids, strength=strength, tokens=encoding.tokens))


@contextmanager
def one_line_errors(*more: type[Exception]) -> Iterator[None]:
    """Errors of the user's side are one line and exit status 2; any other keeps its traceback, for it is ours."""
    try:
        yield
    except (CheckpointError, ValueError, OSError, *more) as fault:
        typer.echo(f"error: {fault}", err=True)
        raise typer.Exit(2) from None


def checked_device(device: str) -> str:
    """The device's name, after one number was put there. Raises ``ValueError`` where torch cannot use it."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as fault:
        raise ValueError(f"got --device {device!r}, expected one that torch can use here, such as cpu") from fault
    return device


def write(target: str, content: str) -> None:
    """``content`` to a file, or to standard output for -."""
    with one_line_errors():
        if target == "-":
            sys.stdout.write(content)
            sys.stdout.flush()  # here, where a full disk is one line, and not when Python ends
        else:
            Path(target).write_text(content, encoding="utf-8")


def _text(text: str) -> str:
    return Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text

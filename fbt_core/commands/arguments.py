"""What the commands share: their common options, a model opened on a text, and one-line errors."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from typer.core import TyperCommand

from fbt_core.checkpoints import Checkpoint, CheckpointError, load
from fbt_core.geometry.sources import SOURCES, apply
from fbt_core.huggingface.placement import one_device
from fbt_core.model import DTYPES, build
from fbt_core.trace import Trace

TextOption = Annotated[str, typer.Option(help="The text to read, or @FILE.")]
DeviceOption = Annotated[
    str, typer.Option(help="cpu, cuda, cuda:1, mps ...; auto: all GPUs together, the CPU without one.")
]
DtypeOption = Annotated[str, typer.Option(help=f"auto | {' | '.join(DTYPES)}")]
CheckpointArgument = Annotated[
    list[Path], typer.Argument(help="A checkpoint: a file, a folder, an archive; or its files, one after another.")
]
PartOption = Annotated[str | None, typer.Option(help="Which of several sets of weights in a training checkpoint.")]
SourceOption = Annotated[
    str, typer.Option(help=f"Put a metric on a model that has none, a what-if: {' | '.join(SOURCES)}.")
]
RankOption = Annotated[int, typer.Option(min=1, max=64, help="Of the metric of --source.")]
StackOption = Annotated[str, typer.Option(help="Of an encoder-decoder: encoder | decoder | cross.")]
StrengthOption = Annotated[float, typer.Option(help="Multiplies every U; anything but 1 is a what-if.")]


@dataclass(frozen=True)
class Opened:
    """A checkpoint, its model and its trace of a text."""

    checkpoint: Checkpoint
    model: Any  # what ``build`` gave
    trace: Trace

    @property
    def tokens(self) -> tuple[str, ...]:
        """One label a token."""
        return self.trace.tokens


@dataclass(frozen=True)
class Asked:
    """How to open a checkpoint on a text: what the options say."""

    device: str = "cpu"
    dtype: str = "auto"
    strength: float = 1.0
    part: str | None = None
    source: str = ""
    rank: int = 4
    stack: str = ""


def open_model(paths: list[Path], text: str, asked: Asked) -> Opened:
    """Load, build, encode, trace; a fault of the user's is one line and exit status 2."""
    with one_line_errors():
        checkpoint = load(paths[0] if len(paths) == 1 else paths, part=asked.part)
        model = build(checkpoint, checked_device(asked.device), asked.dtype)
        if checkpoint.tokenizer is None:
            raise ValueError("got a model that reads no text, expected one that does: open it in the app")
        encoding = checkpoint.tokenizer.encode(_text(text))
        traces = model.traces(torch.tensor(encoding.ids), strength=asked.strength, tokens=encoding.tokens)
        trace = _stack(traces, asked.stack)
        if asked.source:
            trace = apply(model, trace, asked.source, asked.rank, asked.strength)
        return Opened(checkpoint, model, trace)


def _stack(traces: Mapping[str, Trace], stack: str) -> Trace:
    """The trace of a stack; the last of the model's, which is the one that predicts, when none is named."""
    if stack and stack not in traces:
        named = ", ".join(filter(None, traces)) or "none, for this model has but one"
        raise ValueError(f"got --stack {stack!r}, expected one of {named}")
    return traces[stack or ("decoder" if "decoder" in traces else "")]


def what_if_of(trace: Trace) -> str:
    """What of a trace's metric is not the model's own, one line; empty where all is."""
    if trace.source and trace.source != "learned":
        return f"what-if: metric {trace.source}, strength {trace.strength:g}; the model was not trained with it"
    return f"metric strength {trace.strength}, not the trained 1" if trace.strength != 1.0 else ""


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
        torch.zeros(1, device=one_device(device)).item()
    except (RuntimeError, AssertionError, NotImplementedError) as fault:
        raise ValueError(f"got --device {device!r}, expected one that torch can use here, such as cpu") from fault
    return device


class JsonCommand(TyperCommand):
    """A command whose ``--json`` may stand without a file: it then means standard output."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments with - put in after a bare --json."""
        given: list[str] = []
        for place, argument in enumerate(args):
            given.append(argument)
            if argument == "--json" and (place + 1 == len(args) or args[place + 1].startswith("--")):
                given.append("-")
        return super().parse_args(ctx, given)


def number(value: Any) -> float | None:
    """A number as JSON has it: null where it is not finite."""
    return float(value) if math.isfinite(value) else None


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

"""The trace of the first screen, computed beforehand: the default text on the default checkpoint.

``python -m app.stored`` writes it anew, after either of them changed. Where it is not there, cannot be read, or is of
another file than the checkpoint, the model runs as for every other text.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from app import uploads
from app.run import Run
from fbt_core.checkpoints import Checkpoint, load
from fbt_core.trace import Trace
from fbt_core.trace_file import load_trace, read_of, save_trace

if TYPE_CHECKING:
    from app.request import Request


def place() -> Path:
    """Where the trace of the default run lies."""
    return uploads.ASSETS / "traces" / f"{uploads.parsed(Run().a).name}.safetensors"


def stored(request: Request, checkpoint: Checkpoint) -> dict[str, Trace] | None:
    """What ``model.traces`` gives for the default run; None for every other request."""
    default = Run()
    asked = (request.reference, request.text, request.strength, request.device)
    if asked != (default.a, default.text, 1.0, "cpu") or not place().is_file():
        return None
    try:
        return {"": load_trace(place())} if read_of(place()) == _of(default, checkpoint) else None
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as fault:  # cut short, or a pointer of Git LFS
        logging.getLogger(__name__).warning("The first screen's stored trace cannot be read: %s", fault)
        return None


def computed() -> tuple[Trace, Checkpoint]:
    """The trace of the default run, by its model."""
    import torch

    from fbt_core.model import build

    run = Run()
    checkpoint = load(uploads.path_of(run.a))
    encoding = checkpoint.tokenizer.encode(run.text)
    return build(checkpoint).trace(torch.tensor(encoding.ids), tokens=encoding.tokens), checkpoint


def write() -> None:
    """Compute the trace and put it where it is looked for."""
    trace, checkpoint = computed()
    save_trace(place(), trace, _of(Run(), checkpoint))


def _of(run: Run, checkpoint: Checkpoint) -> dict[str, str]:
    """What the trace is one of."""
    return {"text": run.text, "checkpoint": checkpoint.origin.sha256}


if __name__ == "__main__":
    write()

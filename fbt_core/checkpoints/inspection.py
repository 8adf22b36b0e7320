"""What is known of files from their headers alone. Every format's reader fills one in; no tensor is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any

from fbt_core.checkpoints.case import GGUF, Case
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.memory import available_bytes
from fbt_core.checkpoints.quantisation import quantisation
from fbt_core.checkpoints.tensors import bytes_of

MODEL = (
    "Trace a text through every layer.", "Show attention maps, token geometry and depth.", "List its tensors.",
)  # fmt: skip
IMAGES = ("Trace an image, its patches as tokens.", *MODEL[1:])
WEIGHTS = ("List its tensors; show norms and spectra.",)
DELTAS = ("Show the spectra of its deltas.", "Merge it into its base model, when that is given too.")


@dataclass(frozen=True)
class Inspection:
    """One path. ``ok`` says whether ``load`` can be expected to succeed; ``message`` is one line for people."""

    path: str
    ok: bool
    format: str
    message: str
    tensors: int = 0
    parameters: int = 0
    dtypes: Mapping[str, int] = field(default_factory=dict)  # number of tensors by dtype
    bytes: int = 0  # of the files
    needed_bytes: int = 0  # of memory, once opened
    available_bytes: int = 0
    architecture: str = ""
    tied: tuple[str, ...] = ()  # names that share a tensor that is there
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()  # names beyond the model, harmless ones included
    prefixes: tuple[str, ...] = ()
    quantisation: str = ""
    parts: tuple[str, ...] = ()  # state dicts to choose from
    ignored: tuple[str, ...] = ()  # objects of a pickle that are never made
    can: tuple[str, ...] = ()  # what can be done with it, sentences

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, one a field."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def of_weights(path: str, case: Case) -> Inspection:
    """What the headers of the weights say, whatever they are."""
    entries = case.weights.entries
    return Inspection(
        path, True, case.weights.format, "", tensors=len(entries), bytes=case.weights.bytes,
        parameters=sum(prod(entry.shape) for entry in entries.values()),
        dtypes=dict(Counter(entry.dtype for entry in entries.values())),
        needed_bytes=sum(map(bytes_of, entries.values())), available_bytes=available_bytes(),
        quantisation="" if case.weights.format == GGUF else quantisation(entries, case.table),
        parts=case.weights.parts, ignored=case.weights.ignored,
    )  # fmt: skip


def counted(found: Inspection, what: str) -> str:
    """One line: "LlamaForCausalLM, 30 layers: 272 tensors, 134,515,008 parameters (F32), 513 MiB"."""
    kinds = ", ".join(found.dtypes)
    return f"{what}: {found.tensors:,} tensors, {found.parameters:,} parameters ({kinds})"


def line(fault: CheckpointError) -> str:
    """A fault in one line, whatever a file put into it."""
    return " ".join(str(fault).split())

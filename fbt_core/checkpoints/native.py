"""Our own format: one ``.safetensors`` file with the config, the tokenizer and the training record in its metadata."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_safetensors
from torch import Tensor

from fbt_core.checkpoints import health
from fbt_core.checkpoints.case import Case
from fbt_core.checkpoints.checkpoint import Checkpoint
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.header import TensorEntry
from fbt_core.checkpoints.health import few
from fbt_core.checkpoints.inspection import MODEL, Inspection, counted
from fbt_core.checkpoints.memory import check_fits
from fbt_core.checkpoints.tensors import FLOATS, bytes_of
from fbt_core.config import FiberBundleConfig
from fbt_core.model.hollow import hollow
from fbt_core.strict_json import strict_json
from fbt_core.tokenizer import Tokenizer, tokenizer_from_json

FORMAT = "fiberscope"
SCHEMA = "1"
RETRAIN = "Save it again with the version of Fiberscope that made it, or open it with that version."


def save(
    path: Path,
    config: FiberBundleConfig,
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer,
    training: Mapping[str, Any],
) -> None:
    """Write a native checkpoint, whole or not at all: a temporary file in the same folder, synced, then renamed.

    ``training`` is any JSON value table. Raises ``OSError`` when the folder cannot be written.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {
        "format": FORMAT,
        "schema": SCHEMA,
        "config": json.dumps(config.to_dict()),
        "tokenizer": tokenizer.to_json(),
        "training": json.dumps(training, allow_nan=False),
        "data_sha256": data_sha256(plain),
    }
    write_atomically(path, save_safetensors(plain, metadata=metadata))


def write_atomically(path: Path, content: bytes) -> None:
    """All of ``content`` at ``path``, or what was there before: never half a file, even when killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def data_sha256(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, dtypes, shapes and little-endian values, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def is_native(case: Case) -> bool:
    """Whether the weights' metadata is that of a native checkpoint."""
    return case.weights.metadata.get("format") == FORMAT


def read(case: Case) -> Checkpoint:
    """The checked checkpoint of a native file. Every doubt is a ``CheckpointError``; nothing is executed."""
    metadata = case.weights.metadata
    config, tokenizer = check(case)
    check_fits(sum(map(bytes_of, case.weights.entries.values())))
    tensors, digest = case.weights.read()
    if data_sha256(tensors) != metadata.get("data_sha256"):
        raise CheckpointError("tensors whose SHA-256 is not the one in the file", "equal sums", "Copy the file again.")
    record = metadata_table(metadata, "training")
    return Checkpoint(config, tensors, tokenizer, record, case.origin(digest), health.notices(tensors))


def check(case: Case) -> tuple[FiberBundleConfig, Tokenizer]:
    """The config and the tokenizer, after all was checked that the header can tell. Raises ``CheckpointError``."""
    metadata = case.weights.metadata
    if metadata.get("schema") != SCHEMA:
        raise CheckpointError(f"schema {metadata.get('schema', '')[:20]!r}", f"schema {SCHEMA!r}", RETRAIN)
    config = _config(metadata)
    _check_entries(case.weights.entries, config)
    tokenizer = tokenizer_from_json(metadata.get("tokenizer", ""))
    if tokenizer.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"a tokenizer of {tokenizer.vocab_size} tokens on an embedding of {config.vocab_size} rows",
            "a row for each token", RETRAIN,
        )  # fmt: skip
    return config, tokenizer


def expected_shapes(config: FiberBundleConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors of a config's model, without allocating any of them."""
    model = hollow(config)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def _config(metadata: Mapping[str, str]) -> FiberBundleConfig:
    try:
        return FiberBundleConfig.from_dict(metadata_table(metadata, "config"))
    except ValueError as error:
        raise CheckpointError(f"a config with an error ({error})"[:300], "a valid config", RETRAIN) from error


def metadata_table(metadata: Mapping[str, str], key: str, remedy: str = RETRAIN) -> dict[str, Any]:
    """The JSON object that a file of ours keeps in its metadata. Raises ``CheckpointError`` where there is none."""
    try:
        value = strict_json(metadata.get(key, ""))
    except ValueError as error:
        got = f"metadata {key!r} that is not JSON ({str(error)[:80]!r})"
        raise CheckpointError(got, "a JSON object", remedy) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"metadata {key!r} that is a {type(value).__name__}", "a JSON object", remedy)
    return value


def _check_entries(entries: Mapping[str, TensorEntry], config: FiberBundleConfig) -> None:
    """Names, shapes and dtypes against the config, before a tensor is loaded or a layer counted twice."""
    if config.layers > len(entries):
        raise CheckpointError(f"{len(entries)} tensors", f"those of {config.layers} layers", RETRAIN)
    expected = expected_shapes(config)
    if missing := sorted(set(expected) - set(entries)):
        raise CheckpointError(f"a file without {few(missing)}", f"all {len(expected)} tensors of its config", RETRAIN)
    if extra := sorted(set(entries) - set(expected)):
        raise CheckpointError(f"unexpected tensors {few(extra)}", f"the {len(expected)} of its config", RETRAIN)
    for name, shape in expected.items():
        entry = entries[name]
        if entry.shape != shape:
            raise CheckpointError(f"{name!r} of shape {entry.shape}", f"{shape} by its config", RETRAIN)
        if entry.dtype not in FLOATS:
            raise CheckpointError(f"{name!r} of dtype {entry.dtype}", f"one of {', '.join(FLOATS)}", RETRAIN)


def look(found: Inspection, case: Case) -> Inspection:
    """What can be told without reading a tensor. Raises ``CheckpointError`` as ``read`` would."""
    config, _ = check(case)
    what = f"Fiberscope checkpoint, {config.layers} layers, {config.score} score"
    return replace(
        found, message=counted(found, what), architecture=f"FiberBundleTransformer ({config.score})", can=MODEL
    )

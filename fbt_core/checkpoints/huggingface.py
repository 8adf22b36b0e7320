"""A ``config.json`` and the tensors beside it, as a model of the library in which every value is the file's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fbt_core.checkpoints import health
from fbt_core.checkpoints.case import Case
from fbt_core.checkpoints.checkpoint import Checkpoint
from fbt_core.checkpoints.config_json import TRAIN_AGAIN, clean, is_known, layers_of
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.files import Files
from fbt_core.checkpoints.header import TensorEntry
from fbt_core.checkpoints.health import few
from fbt_core.checkpoints.inspection import IMAGES, MODEL, Inspection, counted, line
from fbt_core.checkpoints.keys import Renaming, stripped
from fbt_core.checkpoints.memory import check_fits
from fbt_core.checkpoints.quantisation import refuse_packed
from fbt_core.checkpoints.tensors import DTYPES
from fbt_core.checkpoints.vocabulary import tokenizer_of
from fbt_core.checkpoints.weights_only import prefix_notices
from fbt_core.huggingface.classes import base_prefix, candidates, known, settings
from fbt_core.huggingface.config import HuggingFaceConfig
from fbt_core.huggingface.fitting import Fit, common_dtype, fit


@dataclass(frozen=True)
class Match:
    """A config, the class of it that fits best, how the tensors fit, and how their names were changed first."""

    config: HuggingFaceConfig
    fit: Fit
    renaming: Renaming
    notices: tuple[str, ...]


def match(table: Mapping[str, Any], entries: Mapping[str, TensorEntry], files: Files) -> Match:
    """The config and class that the tensors of these headers fit best. Nothing is allocated.

    A fit that is not whole is for ``refuse``. Raises ``CheckpointError`` for a config that no model can be built of,
    for packed weights, and for names that collide without their prefixes.
    """
    refuse_packed(entries, table)
    renaming = stripped(entries)
    hollow_tensors = {renaming.names[name]: _meta(name, entries[name]) for name in renaming.names}
    try:
        full = _completed(clean(table))
        if (layers := layers_of(full)) > len(entries):
            raise CheckpointError(f"{len(entries)} tensors", f"those of {layers} layers", TRAIN_AGAIN)
        config, best, notices = _best(full, hollow_tensors, files)
    except ValueError as fault:
        raise CheckpointError(str(fault).removeprefix("got "), "a config.json of the library", TRAIN_AGAIN) from fault
    own = f"{base_prefix(config)}."  # the library puts it back
    renaming = Renaming(renaming.names, tuple(prefix for prefix in renaming.prefixes if prefix != own))
    notices = (*prefix_notices(renaming), *_said(table, config.architecture), *notices)
    if best.unused:
        notices += (f"Not part of what is traced, and left out: {few(best.unused)}.",)
    return Match(config, best, renaming, notices)


def tensors_of(found: Match, tensors: dict[str, Tensor]) -> Mapping[str, Tensor]:
    """The real tensors of a match, under the names of the model. Leaves ``tensors`` empty.

    Those of several dtypes become the widest one by one, so that at no time there are two copies of the model.
    """
    renamed = {}
    dtype = common_dtype(tensors[name] for name in found.renaming.names)
    for name in [*tensors]:
        tensor = tensors.pop(name)
        if name in found.renaming.names:
            renamed[found.renaming.names[name]] = tensor.to(dtype) if tensor.is_floating_point() else tensor
        del tensor
    return fit(found.config, renamed).tensors


def needed_bytes(found: Match) -> int:
    """Memory that the model takes: its tensors, and what the library computes beside them."""
    return sum(tensor.nbytes for tensor in found.fit.tensors.values()) + found.fit.computed_bytes


def refuse(fitted: Fit, config: HuggingFaceConfig) -> None:
    """Raises ``CheckpointError`` for a fit that is not whole."""
    if fitted.missing:
        raise CheckpointError(
            f"a file without {few(fitted.missing, 5)}",
            f"all tensors of {config.architecture} with {config.layers} layers, as its config.json says", TRAIN_AGAIN,
        )  # fmt: skip
    if fitted.mismatched:
        name, got, wanted = fitted.mismatched[0]
        more = f" and {len(fitted.mismatched) - 1} more" if len(fitted.mismatched) > 1 else ""
        raise CheckpointError(f"{name[:80]!r} of shape {got}{more}", f"{wanted} by its config.json", TRAIN_AGAIN)
    if fitted.extra:
        raise CheckpointError(
            f"tensors that {config.architecture} has no place for: {few(fitted.extra, 5)}",
            f"those of {config.layers} layers, as its config.json says", TRAIN_AGAIN,
        )  # fmt: skip


def _untied(fitted: Fit, tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """What the config ties and the file has twice, with other numbers: the library leaves it apart, as is done here."""
    apart = [group for group in fitted.doubled if any(not torch.equal(tensors[group[0]], tensors[n]) for n in group)]
    return tuple(f"Tied by the config.json, but different in the file and left so: {few(group)}." for group in apart)


def _said(table: Mapping[str, Any], architecture: str) -> tuple[str, ...]:
    """Where a ``config.json`` names another class, or a quantisation that the weights do not have."""
    declared = table.get("architectures")
    names = [name for name in declared if isinstance(name, str)] if isinstance(declared, list) else []
    notices: tuple[str, ...] = ()
    if names and names[0] != architecture:
        notices += (f"Opened as {architecture}; the config.json names {names[0][:60]!r}.",)
    if table.get("quantization_config"):
        notices += (f"The config.json speaks of a quantisation, but {architecture} finds ordinary numbers.",)
    return notices


def _completed(table: dict[str, Any]) -> dict[str, Any]:
    """The table with the library's defaults, and again without what it adds of the forbidden."""
    made = settings(table)
    return {**clean({key: value for key, value in made.to_dict().items()}), "model_type": table["model_type"]}


def _best(
    table: dict[str, Any], tensors: Mapping[str, Tensor], files: Files
) -> tuple[HuggingFaceConfig, Fit, tuple[str, ...]]:
    """The first class that the tensors make whole; else the one that lacks the least."""
    names = known(table["model_type"])
    seen = "image" if "image" in names and "causal" not in names and "masked" not in names else "text"
    processor = files.text("preprocessor_config.json") if seen == "image" else ""
    worst: list[tuple[HuggingFaceConfig, Fit]] = []
    for architecture in candidates(table):
        config = HuggingFaceConfig.from_table(table, architecture, seen, processor)
        fitted, notices = fit(config, tensors), ()
        if (rows := _padded_rows(config, fitted)) > config.vocab_size:
            notices = (_padding(config.vocab_size, rows),)
            config = HuggingFaceConfig.from_table(_with_rows(table, rows), architecture, seen, processor)
            fitted = fit(config, tensors)
        if fitted.is_whole:
            return config, fitted, notices
        worst.append((config, fitted))
    if not worst:
        raise ValueError(f"got the model type {table['model_type']!r:.60} without a class that can be traced")
    return *min(worst, key=lambda pair: len(pair[1].missing) + len(pair[1].mismatched) + len(pair[1].extra)), ()


def _padded_rows(config: HuggingFaceConfig, fitted: Fit) -> int:
    """Rows of the file's embedding where they alone differ from the config's vocabulary; 0 otherwise."""
    wrong = {name: (got, wanted) for name, got, wanted in fitted.mismatched}
    rows = {got[0] for got, wanted in wrong.values() if wanted[:1] == (config.vocab_size,) and got[1:] == wanted[1:]}
    is_all = all(wanted[:1] == (config.vocab_size,) and got[1:] == wanted[1:] for got, wanted in wrong.values())
    return rows.pop() if len(rows) == 1 and is_all else 0


def _padding(vocabulary: int, rows: int) -> str:
    return (
        f"The embedding has {rows} rows for {vocabulary} tokens of its config.json: ids {vocabulary} to {rows - 1} are "
        "padding."
    )


def _with_rows(table: dict[str, Any], rows: int) -> dict[str, Any]:
    inner = table.get("text_config")
    return {**table, "text_config": {**inner, "vocab_size": rows}} if isinstance(inner, dict) else {
        **table, "vocab_size": rows,
    }  # fmt: skip


def _meta(name: str, entry: TensorEntry) -> Tensor:
    return torch.empty(entry.shape, dtype=DTYPES[entry.dtype], device="meta")


def accepts(case: Case) -> bool:
    """Whether there is a config.json of a model type that the library can build."""
    return bool(case.table) and is_known(case.table)


def read(case: Case) -> Checkpoint:
    """The model of a config.json and the tensors beside it, every tensor of it from the files.

    Raises ``CheckpointError``, before any tensor is read, for what is missing, does not fit, or is too large.
    """
    found = match(case.table, case.weights.entries, case.files)
    refuse(found.fit, found.config)
    check_fits(needed_bytes(found))
    tensors, digest = case.weights.read()
    placed = tensors_of(found, tensors)
    tokenizer, said = None, ()
    if found.config.input == "text":
        tokenizer, said = tokenizer_of(case.files, found.config.vocab_size)
    notices = (*case.weights.notices, *found.notices, *_untied(found.fit, placed), *said, *health.notices(placed))
    return Checkpoint(found.config, placed, tokenizer, case.weights.training, case.origin(digest), notices)


def look(found: Inspection, case: Case) -> Inspection:
    """What can be told without reading a tensor; a model that is not whole is not ``ok``."""
    matched = match(case.table, case.weights.entries, case.files)
    fitted, config = matched.fit, matched.config
    found = replace(
        found, architecture=config.architecture, needed_bytes=needed_bytes(matched), tied=fitted.tied,
        missing=fitted.missing, unexpected=(*fitted.extra, *fitted.unused), prefixes=matched.renaming.prefixes,
        message=counted(found, f"{config.architecture}, {config.layers} layers"),
        can=IMAGES if config.input == "image" else MODEL,
    )  # fmt: skip
    try:
        refuse(fitted, config)
    except CheckpointError as fault:
        return replace(found, ok=False, message=line(fault), can=())
    return found

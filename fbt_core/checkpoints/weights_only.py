"""Weights without a config that a model could be built of: tensors to look at, by name."""

from __future__ import annotations

from dataclasses import replace

from fbt_core.checkpoints import health
from fbt_core.checkpoints.case import Case
from fbt_core.checkpoints.checkpoint import Checkpoint
from fbt_core.checkpoints.inspection import WEIGHTS, Inspection, counted
from fbt_core.checkpoints.keys import Renaming, stripped
from fbt_core.checkpoints.memory import check_fits
from fbt_core.checkpoints.quantisation import refuse_packed
from fbt_core.checkpoints.tensors import bytes_of


def accepts(case: Case) -> bool:
    """Any weights at all."""
    return True


def read(case: Case) -> Checkpoint:
    """Every tensor of the file, without a model. Raises ``CheckpointError``: packed weights are named."""
    renaming = check(case)
    check_fits(sum(map(bytes_of, case.weights.entries.values())))
    tensors, digest = case.weights.read()
    renamed = {renaming.names[name]: tensor for name, tensor in tensors.items() if name in renaming.names}
    notices = (*case.weights.notices, *why(case), *prefix_notices(renaming), *health.notices(renamed))
    return Checkpoint(None, renamed, None, case.weights.training, case.origin(digest), notices)


def check(case: Case) -> Renaming:
    """How the tensors are called without prefixes, after all was checked that the headers can tell."""
    refuse_packed(case.weights.entries, case.table)
    return stripped(case.weights.entries)


def why(case: Case) -> tuple[str, ...]:
    """Why there is no model, as a sentence."""
    if case.weights.metadata.get("format") == "fiberscope-adapter":
        return ("A metric adapter: it is used as a source of metrics on the model that it was trained on.",)
    if not case.table:
        return ("There is no config.json: the weights can be looked at, but make no model.",)
    model_type = repr(str(case.table.get("model_type", "")))[:60]
    return (f"The config.json is of the type {model_type}, which cannot be traced: the weights can be looked at.",)


def prefix_notices(renaming: Renaming) -> tuple[str, ...]:
    """The prefixes that names lost, as a sentence."""
    if not renaming.prefixes:
        return ()
    return (f"Prefixes left out of the tensors' names: {', '.join(map(repr, renaming.prefixes))}.",)


def look(found: Inspection, case: Case) -> Inspection:
    """What can be told without reading a tensor. Raises ``CheckpointError`` as ``read`` would."""
    renaming = check(case)
    message = f"{counted(found, 'weights alone')}. {why(case)[0]}"
    return replace(found, message=message, prefixes=renaming.prefixes, can=WEIGHTS)

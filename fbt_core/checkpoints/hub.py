"""A checkpoint from the Hugging Face hub, by its id: the only place that asks the network, and only when called.

Nothing else in this house calls it by itself: an id is an input of its own, never guessed from a path.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fbt_core.checkpoints.archives import NAMED
from fbt_core.checkpoints.checkpoint import Checkpoint
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.memory import check_fits

ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
SAFE = re.compile(r"[\w.-]+\.safetensors(\.index\.json)?")
PICKLED = re.compile(r"(pytorch_model|adapter_model)[\w.-]*\.bin(\.index\.json)?")


def load_from_hub(
    model_id: str, revision: str = "main", base: Checkpoint | None = None, endpoint: str | None = None
) -> Checkpoint:
    """The checkpoint of a hub id such as "HuggingFaceTB/SmolLM2-135M", downloaded into a folder that is then deleted.

    Only config, tokenizer and weights are asked for, pickled weights only where there are no safetensors, and never
    code. ``endpoint`` is another server of the same kind. Raises ``CheckpointError``.
    """
    from fbt_core.checkpoints import load

    folder = Path(tempfile.mkdtemp(prefix="fiberscope-hub-"))
    try:
        commit = download(model_id, folder, revision, endpoint)
        found = load(folder, name=f"{model_id}@{commit[:8]}", base=base)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return replace(found, notices=(f"From the hub: {model_id}, revision {commit}.", *found.notices))


def download(model_id: str, folder: Path, revision: str = "main", endpoint: str | None = None) -> str:
    """Put the checkpoint's files into a folder; the commit that they are of. Raises ``CheckpointError``."""
    if not ID.fullmatch(model_id) or ".." in model_id or not re.fullmatch(r"[\w.-]{1,100}", revision):
        raise CheckpointError(f"the hub id {model_id[:80]!r}", "owner/name", "Copy the id from the model's page.")
    import huggingface_hub

    try:
        found = huggingface_hub.HfApi(endpoint).model_info(model_id, revision=revision, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in found.siblings or ()}
        names = wanted(list(sizes))
        _check(model_id, names, sum(sizes[name] for name in names), folder)
        commit = str(found.sha)
        huggingface_hub.snapshot_download(
            model_id, revision=commit, local_dir=folder, allow_patterns=names, endpoint=endpoint
        )
    except CheckpointError:
        raise
    except Exception as fault:  # the library has some twenty kinds, and its network library as many
        raise CheckpointError(
            f"no answer from the hub about {model_id!r} ({type(fault).__name__}: {str(fault)[:160]!r})",
            "a network, and a model that you may read",
            "Check the id and the connection, log in for a gated model, or download it and open its folder.",
        ) from fault
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    return commit


def wanted(names: Sequence[str]) -> list[str]:
    """Which files of a repository to ask for: of its outermost folder, no code, and pickles only without better."""
    safe = [name for name in names if SAFE.fullmatch(name)]
    weights = safe or [name for name in names if PICKLED.fullmatch(name)]
    if "model.safetensors" in weights:  # anything else is a second copy
        weights = ["model.safetensors"]
    return sorted({*weights, *(name for name in names if name in NAMED)})


def _check(model_id: str, names: Sequence[str], size: int, folder: Path) -> None:
    if not any(name.endswith((".safetensors", ".bin")) for name in names):
        raise CheckpointError(
            f"the hub's {model_id!r} without safetensors or pytorch_model.bin", "weights in one of these forms",
            "Download the files that you need, and open them.",
        )  # fmt: skip
    check_fits(size)
    if (free := shutil.disk_usage(folder).free) < size + (1 << 28):
        raise CheckpointError(f"a model of {size:,} bytes", f"at most the {free:,} of free disk", "Free some disk.")

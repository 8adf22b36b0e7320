"""What a checkpoint is, as rows of words: for the table of what is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fbt_core.attention.scores import SCORES
from fbt_core.checkpoints import Checkpoint
from fbt_core.config import FiberBundleConfig
from fbt_core.huggingface.config import HuggingFaceConfig


def headline(checkpoint: Checkpoint) -> str:
    """``Riemannian (full, rank 4), 6 layers x 4 heads, D = 64``. Plain text: an architecture's name is the file's."""
    config = checkpoint.config
    if config is None:
        return f"weights only, {len(checkpoint.tensors):,} tensors, no configuration"
    size = f"{config.layers} layers × {config.heads} heads, D = {config.width}"
    if isinstance(config, HuggingFaceConfig):
        return f"{config.architecture}, {size}"
    metric = f" ({config.metric_family} metric, rank {config.metric_rank})" if config.has_metric else ""
    return f"{SCORES[config.own_score].title}{metric}, {size}"


def describe(checkpoint: Checkpoint, check: Any = None) -> dict[str, str]:
    """Property to value, in reading order: the model, its training, its file. What is not known is left out.

    ``check`` is a ``SelfCheck`` of the built model, where there is one.
    """
    return {**_model(checkpoint), **_checked(check), **_training(checkpoint.training), **_file(checkpoint)}


def notices(checkpoint: Checkpoint) -> list[str]:
    """What whoever reads the figures must know of the file: sentences, to be shown as plain text."""
    return list(checkpoint.notices)


def figures(checkpoint: Checkpoint) -> dict[str, tuple[str, str]]:
    """The few numbers to show large, each with a line that says what to hold it against."""
    shown = {"Parameters": (f"{checkpoint.parameters:,}", f"{checkpoint.origin.bytes / 1e6:,.2f} MB on disk")}
    config = checkpoint.config
    if isinstance(config, HuggingFaceConfig):
        shown["Layers × heads"] = (f"{config.layers} × {config.heads}", f"width {config.width:,}")
        if config.input != "image":
            shown["Context"] = (f"{config.context:,}" if config.context else "open", "tokens")
    found = _table(checkpoint.training, "evaluation")
    if (loss := _number(found, "loss")) is not None:
        floor = _number(found, "floor")
        shown["Held-out loss"] = (f"{loss:.3f} nats", f"entropy floor {floor:.3f}" if floor is not None else "a token")
    if (above := _number(found, "above_floor")) is not None:
        error = _number(found, "above_floor_standard_error")
        shown["Above the floor"] = (f"{above:.4f} nats", f"± {error:.4f} standard error" if error else "a token")
    agreement = _table(found, "agreement")
    if (accuracy := _number(agreement, "accuracy")) is not None:
        shown["Agreement"] = (f"{accuracy:.1%}", _baselines(agreement))
    return shown


def _model(checkpoint: Checkpoint) -> dict[str, str]:
    config = checkpoint.config
    dtypes = Counter(str(tensor.dtype).removeprefix("torch.") for tensor in checkpoint.tensors.values())
    rows = {
        "parameters": f"{checkpoint.parameters:,}", "tensors": f"{len(checkpoint.tensors):,}",
        "dtype": ", ".join(name if len(dtypes) == 1 else f"{name} × {count:,}" for name, count in dtypes.most_common()),
    }  # fmt: skip
    if checkpoint.tokenizer is None:
        rows["tokenizer"] = "none: tokens are ids"
    if config is None:
        return {"configuration": "none: weights only"} | rows
    return (_foreign(config) if isinstance(config, HuggingFaceConfig) else _own(config)) | rows


def _own(config: FiberBundleConfig) -> dict[str, str]:
    blend = "" if config.alpha == 1 or not config.has_metric else f", alpha {config.alpha:g}"
    return {
        "score": SCORES[config.own_score].title + blend,
        "layers × heads": f"{config.layers} × {config.heads}",
        "width D, head width d": f"{config.width}, {config.head_width}",
        "feed-forward width": str(config.feed_forward),
        "metric": f"{config.metric_family}, rank {config.metric_rank}" if config.has_metric else "none",
        "attention mask": "causal" if config.causal else "none (bidirectional)",
        "position": config.position,
        "context": f"{config.context:,} tokens",
        "transport": config.transport,
        "vocabulary": f"{config.vocab_size:,} tokens",
    }


def _foreign(config: HuggingFaceConfig) -> dict[str, str]:
    """A model of the transformers library; a size that its config leaves open is left out."""
    rows = {
        "architecture": f"{config.architecture} ({config.model_type})",
        "layers × heads": f"{config.layers} × {config.heads}" if config.layers and config.heads else "",
        "width D, head width d": f"{config.width}, {config.head_width}" if config.width else "",
        "feed-forward width": str(config.feed_forward or ""),
        "metric": "none of its own: choose a source in the sidebar",
        "attention mask": "causal" if config.causal else "bidirectional, or its own",
        "stacks": ", ".join(config.stacks) if len(config.stacks) > 1 else "",
        "input": config.input if config.input != "text" else "",
        "context": f"{config.context:,} tokens" if config.context else "",
        "vocabulary": f"{config.vocab_size:,} tokens" if config.vocab_size else "",
    }
    return {title: value for title, value in rows.items() if value}


def _checked(check: Any) -> dict[str, str]:
    if check is None:
        return {}
    said = f"max |difference| {check.difference:.2g} in its {check.of}, {check.tokens:,} tokens"
    return {"our trace against the library's forward": said}


def _training(record: Mapping[str, Any]) -> dict[str, str]:
    rows = {}
    for key, title in (("preset", "training preset"), ("seed", "seed"), ("command", "made by")):
        if isinstance(record.get(key), str | int):
            rows[title] = str(record[key])
    for key, title in (("steps", "training steps"), ("tokens", "training tokens"), ("seconds", "training seconds")):
        if (value := _number(record, key)) is not None:
            rows[title] = f"{value:,.0f}"
    found = _table(record, "evaluation")
    for key, title in (("loss", "held-out loss"), ("floor", "entropy floor"), ("above_floor", "above the floor")):
        if (value := _number(found, key)) is not None:
            rows[title] = f"{value:.4f} nats a token"
    for kind in (key for key, value in found.items() if isinstance(value, Mapping) and "accuracy" in value):
        table = _table(found, kind)
        if (accuracy := _number(table, "accuracy")) is not None:
            rows[f"{kind} accuracy"] = f"{accuracy:.1%} ({_baselines(table)})"
    return rows


def _file(checkpoint: Checkpoint) -> dict[str, str]:
    origin = checkpoint.origin
    return {"file": origin.name, "format": origin.format, "bytes": f"{origin.bytes:,}", "SHA-256": origin.sha256}


def _baselines(table: Mapping[str, Any]) -> str:
    named = (("majority", "majority"), ("nearest_noun", "nearest noun"), ("chance", "chance"))
    known = [f"{title} {value:.1%}" for key, title in named if (value := _number(table, key)) is not None]
    return ", ".join(known[:2]) or "no baseline stored"


def _number(table: Mapping[str, Any], key: str) -> float | None:
    """A number of a record that a file's author wrote: anything may be there."""
    value = table.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _table(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = table.get(key)
    return value if isinstance(value, Mapping) else {}

"""What a checkpoint is, as rows of words: for the table of what is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fbt_core.attention.scores import SCORES
from fbt_core.checkpoints import Checkpoint


def headline(checkpoint: Checkpoint) -> str:
    """``Riemannian (full, rank 4), 6 layers x 4 heads, width 64``."""
    config = checkpoint.config
    metric = f" ({config.metric_family} metric, rank {config.metric_rank})" if config.has_metric else ""
    return (
        f"{SCORES[config.own_score].title}{metric}, {config.layers} layers × {config.heads} heads, D = {config.width}"
    )


def describe(checkpoint: Checkpoint) -> dict[str, str]:
    """Property to value, in reading order: the model, its training, its file. What is not known is left out."""
    return {**_model(checkpoint), **_training(checkpoint.training), **_file(checkpoint)}


def figures(checkpoint: Checkpoint) -> dict[str, tuple[str, str]]:
    """The four numbers to show large, each with a line that says what to hold it against."""
    shown = {"Parameters": (f"{checkpoint.parameters:,}", f"{checkpoint.origin.bytes / 1e6:.2f} MB on disk")}
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
    dtypes = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in checkpoint.tensors.values()})
    rows = {
        "score": SCORES[config.own_score].title
        + ("" if config.alpha == 1 or not config.has_metric else f", alpha {config.alpha:g}"),
        "layers × heads": f"{config.layers} × {config.heads}",
        "width D, head width d": f"{config.width}, {config.head_width}",
        "feed-forward width": str(config.feed_forward),
        "metric": f"{config.metric_family}, rank {config.metric_rank}" if config.has_metric else "none",
        "attention mask": "causal" if config.causal else "none (bidirectional)",
        "position": config.position,
        "context": f"{config.context:,} tokens",
        "transport": config.transport,
        "vocabulary": f"{config.vocab_size:,} tokens",
        "parameters": f"{checkpoint.parameters:,}",
        "dtype": ", ".join(dtypes),
    }
    return rows


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

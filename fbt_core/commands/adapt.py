"""``python -m fbt_core adapt``: train a metric adapter on a frozen base model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from fbt_core.checkpoints import load
from fbt_core.commands.arguments import DeviceOption, checked_device, one_line_errors
from fbt_core.huggingface.placement import one_device
from fbt_core.model import build
from fbt_core.training.adapter import adapter_plan, open_text, train_adapter
from fbt_core.training.trainer import DivergenceError


def adapt(
    base: Annotated[Path, typer.Argument(help="A causal language model: a file or a folder. It is not changed.")],
    text: Annotated[Path, typer.Option(help="The text file to train on; its last tenth is held out.")],
    out: Annotated[Path, typer.Option(help="Where the adapter goes.")] = Path("adapter.safetensors"),
    rank: Annotated[int, typer.Option(min=1, help="Columns of U.")] = 4,
    hidden: Annotated[int, typer.Option(min=1, help="Width between MetricNet's two maps.")] = 64,
    alpha: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the Riemannian score; the rest is the base's own.")
    ] = 0.5,
    metric_init: Annotated[float, typer.Option(help="E ||U||_F^2 at the start.")] = 0.5,
    steps: Annotated[int | None, typer.Option(min=1)] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Rows a step.")] = None,
    length: Annotated[int | None, typer.Option(min=2, help="Tokens a row.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="The peak, after the warm-up.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the initial weights and of the order of the data.")] = 0,
    device: DeviceOption = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
) -> None:
    """Train MetricNets on a frozen base by next-token loss, with its attention blended; write them as a small file.

    The file names its base by SHA-256. An interruption leaves what was there before.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    with one_line_errors(DivergenceError):
        plan = adapter_plan(
            steps=steps, batch=batch, length=length, learning_rate=learning_rate, seed=seed, source=text.name,
            device=one_device(checked_device(device)),
        )  # fmt: skip
        checkpoint = load(base)
        words = open_text(text, checkpoint.tokenizer, plan.length)
        shape = {"rank": rank, "hidden": hidden, "alpha": alpha, "metric_init": metric_init}
        model = build(checkpoint, plan.device, "float32")
        record = train_adapter(checkpoint, model, words, plan, shape, out)
    losses = record["held_out_loss"]
    print(
        f"{out.name}: {record['parameters']:,} parameters; held-out loss {losses['end']:.4f} nats a token with the "
        f"adapter, {losses['start']:.4f} before its training, {losses['base']:.4f} for the base alone"
    )

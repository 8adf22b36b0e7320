"""The command line of training: ``python -m fbt_core train``."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from fbt_core.commands.arguments import DeviceOption, checked_device, one_line_errors
from fbt_core.huggingface.placement import one_device
from fbt_core.training.data import GrammarSource, Source, open_text
from fbt_core.training.plan import TrainingPlan
from fbt_core.training.presets import PRESETS, model_configs, preset_named
from fbt_core.training.task import Task
from fbt_core.training.trainer import DivergenceError, train_model

PRESET_HELP = " | ".join(f"{name}: {preset.title}" for name, preset in PRESETS.items())


def train(
    preset: Annotated[str, typer.Option(help=PRESET_HELP)] = "smoke",
    out: Annotated[Path, typer.Option(help="Folder of the checkpoints and of the states of unfinished runs.")] = Path(
        "runs"
    ),
    only: Annotated[str, typer.Option(help="Some of the preset's models, such as riemannian,euclidean.")] = "",
    steps: Annotated[int | None, typer.Option(min=1, help="Instead of the preset's.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Rows a step, instead of the preset's.")] = None,
    length: Annotated[int | None, typer.Option(min=2, help="Tokens a row, instead of the preset's.")] = None,
    text: Annotated[Path | None, typer.Option(help="Train on this text file instead of the grammar.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer.json for --text; without it, bytes.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the initial weights and of the order of the data.")] = 0,
    device: DeviceOption = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, float64, or bfloat16 (autocast).")] = "float32",
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; results may differ in the last digits.")
    ] = None,
    checkpoint_every: Annotated[int | None, typer.Option(min=1, help="Steps between two saved states.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--restart", help="Go on where a killed run was, or begin anew.")
    ] = True,
) -> None:
    """Train a preset's models, one checkpoint each. After an interruption the same command goes on where it was."""
    if threads is not None:
        torch.set_num_threads(threads)
    asked = {"steps": steps, "batch": batch, "length": length, "checkpoint_every": checkpoint_every}
    with one_line_errors():
        tasks = _tasks(preset, out, only, asked, text, tokenizer, seed, device, dtype)
    records = []
    for task in tasks:
        with one_line_errors(DivergenceError):
            records.append(train_model(task, restart=not resume))
        print(final_line(records[-1]), flush=True)
    if len(records) > 1:
        print(comparison(records))


def _tasks(
    preset: str, out: Path, only: str, asked: dict[str, int | None], text: Path | None, tokenizer: Path | None,
    seed: int, device: str, dtype: str,
) -> list[Task]:  # fmt: skip
    """What to train, or an error in the words of the command line."""
    chosen = preset_named(preset)
    plan = replace(
        chosen.plan,
        seed=seed,
        device=one_device(checked_device(device)),
        dtype=dtype,
        source=text.name if text else "grammar",
    )
    plan = _with_numbers(plan, asked, chosen.shared["context"])
    source: Source = _source(text, tokenizer, plan)
    configs = model_configs(chosen, source.tokenizer.vocab_size, only)
    return [
        Task(name, config, plan, source, out, _command(name, plan, asked, text, tokenizer))
        for name, config in configs.items()
    ]


def _with_numbers(plan: TrainingPlan, asked: dict[str, int | None], context: int) -> TrainingPlan:
    """The plan with the numbers that were asked for; long rows that are no longer longer are dropped."""
    numbers: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    length = numbers.get("length", plan.length)
    if length > context:
        raise ValueError(f"got --length {length}, expected at most the context of the preset's models, {context}")
    return replace(plan, **numbers, long_rows=tuple(pair for pair in plan.long_rows if pair[1] > length))


def _source(text: Path | None, tokenizer: Path | None, plan: TrainingPlan) -> Source:
    if text is not None:
        return open_text(text, tokenizer, max((plan.length, *(length for _, length in plan.long_rows))))
    if tokenizer is not None:
        raise ValueError("got --tokenizer without --text, expected both: the grammar has its own words")
    return GrammarSource()


def _command(
    name: str, plan: TrainingPlan, asked: dict[str, int | None], text: Path | None, tokenizer: Path | None
) -> str:
    """What to type for the same checkpoint: only what differs from the preset, and no folder of this machine."""
    words = ["python", "-m", "fbt_core", "train", "--preset", plan.preset, "--only", name, "--seed", str(plan.seed)]
    for option in ("steps", "batch", "length"):
        if asked[option] is not None:
            words += [f"--{option}", str(asked[option])]
    for option, path in (("text", text), ("tokenizer", tokenizer)):
        if path is not None:
            words += [f"--{option}", path.name]
    for option, default in (("device", "cpu"), ("dtype", "float32")):
        if getattr(plan, option) != default:
            words += [f"--{option}", getattr(plan, option)]
    return shlex.join(words)


def final_line(record: dict[str, Any]) -> str:
    """The losses with all their digits (17 name a float exactly), so that two runs can be compared to the last one."""
    held_out = record["evaluation"]["loss"]
    return f"{record['name']}: final loss {record['final_loss']:.17g}, held-out loss {held_out:.17g} nats a token"


def comparison(records: list[dict[str, Any]]) -> str:
    """A table of trained models, one a line."""
    heads = ("model", "parameters", "held-out loss", "above floor", "agreement", "recall", "pronoun", "mean tr K")
    lines = [heads, *(_cells(record) for record in records)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join(rows)


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    found = record["evaluation"]

    def with_error(value: str, error: str) -> str:
        if found.get(value) is None:
            return "-"
        return f"{found[value]:.4f}" + (f" ± {found[error]:.4f}" if found.get(error) is not None else "")

    def accuracy(kind: str, baseline: str) -> str:
        table = found.get(kind)
        return f"{table['accuracy']:.1%} ({baseline} {table[baseline]:.1%})" if table else "-"

    strength = found["metric"].get("trace_k")
    return (
        record["name"],
        f"{record['parameters']:,}",
        with_error("loss", "standard_error"),
        with_error("above_floor", "above_floor_standard_error"),
        accuracy("agreement", "majority"),
        accuracy("recall", "chance"),
        accuracy("pronoun", "majority"),
        f"{sum(strength) / len(strength):.3f}" if strength else "-",
    )

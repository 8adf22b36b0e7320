"""Training: killed and resumed exactly, twins on the same data, evaluation against models whose answers are known."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import typer
from torch import Tensor
from typer.testing import CliRunner

from fbt_core.checkpoints import CheckpointError, load
from fbt_core.commands.train import final_line, train
from fbt_core.config import FiberBundleConfig
from fbt_core.model import build
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.training.data import GrammarSource, TextSource, open_text
from fbt_core.training.evaluate import HeldOut, Question, evaluate, metric_statistics
from fbt_core.training.plan import TrainingPlan
from fbt_core.training.presets import PRESETS, WIDENED, model_configs, parameter_count
from fbt_core.training.state import read_state, write_state
from fbt_core.training.task import Task
from fbt_core.training.trainer import DivergenceError, train_model

APP = typer.Typer()
APP.command()(train)

TINY = {"width": 8, "layers": 2, "heads": 2, "feed_forward": 8, "context": 64, "rank": 2}
PLAN = TrainingPlan("smoke", steps=40, batch=2, length=16, long_rows=((4, 32),), warm_up=4, evaluation_rows=4,
                    checkpoint_every=3)  # fmt: skip


@pytest.fixture(scope="module")
def grammar() -> GrammarSource:
    return GrammarSource()


def tiny_task(folder: Path, source: GrammarSource | TextSource, plan: TrainingPlan = PLAN, **changes: object) -> Task:
    config = FiberBundleConfig(vocab_size=source.tokenizer.vocab_size, **(TINY | changes))  # type: ignore[arg-type]
    return Task("tiny", config, plan, source, folder, "python -m fbt_core train")


def command(*arguments: str | Path) -> str:
    """Runs the command in this process; returns its standard output, after checking that it succeeded."""
    ran = CliRunner().invoke(APP, [str(word) for word in arguments])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


# Resuming


def test_killed_and_resumed_ends_bit_for_bit_the_same(tmp_path: Path, root: Path) -> None:
    asked = ("--preset", "smoke", "--steps", "14", "--batch", "1", "--length", "32", "--checkpoint-every", "3")
    asked = (*asked, "--threads", "1")
    whole = command(*asked, "--out", tmp_path / "whole")
    state = tmp_path / "killed" / "riemannian.state"
    program = "import typer; from fbt_core.commands.train import train; typer.run(train)"
    child = subprocess.Popen(
        [sys.executable, "-c", program, *asked, "--out", str(state.parent)],
        cwd=root, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    while not state.exists() and child.poll() is None:
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL, (output, errors)
    assert not output, "it finished before it could be killed: the test would prove nothing"
    resumed = command(*asked, "--out", state.parent)
    assert resumed == whole
    assert not state.exists()
    one, two = (load(tmp_path / folder / "riemannian.safetensors") for folder in ("whole", "killed"))
    assert one.tensors.keys() == two.tensors.keys()
    assert all(torch.equal(one.tensors[name], two.tensors[name]) for name in one.tensors)
    for key in set(one.training) - {"seconds"}:
        assert one.training[key] == two.training[key], key


def test_every_step_can_be_the_last_before_a_kill(tmp_path: Path, grammar: GrammarSource) -> None:
    """Stopped by an exception at each of several steps: whatever was saved leads to the same end."""

    class Killed(Exception):
        pass

    class Dying(GrammarSource):
        last = 0

        def rows(self, seed: int, step: int, count: int, length: int) -> np.ndarray:
            if step == self.last:
                raise Killed
            return super().rows(seed, step, count, length)

    plan = replace(PLAN, steps=5)
    expected = train_model(tiny_task(tmp_path / "whole", grammar, plan))
    dying = Dying()
    for dying.last in (2, 3, 4):
        with pytest.raises(Killed):
            train_model(tiny_task(tmp_path / "killed", dying, plan))
    found = train_model(tiny_task(tmp_path / "killed", grammar, plan))
    del expected["seconds"], found["seconds"]
    assert found == expected


def test_state_round_trips_with_its_moments(tmp_path: Path) -> None:
    model = FiberBundleTransformer(FiberBundleConfig(vocab_size=7, **TINY))  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model.loss(torch.arange(6)[None])[0].backward()
    optimizer.step()
    write_state(tmp_path / "s", model, optimizer, {"steps": 3}, {"pending": [0.1]})
    other = FiberBundleTransformer(model.config, seed=1)
    again = torch.optim.AdamW(other.parameters(), fused=True)
    assert read_state(tmp_path / "s", other, again, {"steps": 3}) == {"pending": [0.1]}
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two), name
        assert optimizer.state[one].keys() == again.state[two].keys()
        assert all(torch.equal(value, again.state[two][key]) for key, value in optimizer.state[one].items())
    assert len(list(tmp_path.iterdir())) == 1, "a temporary file was left"


@pytest.mark.parametrize("content", [b"", b"not a state", b"\x80\x04cos\nsystem\n"], ids=["empty", "text", "pickle"])
def test_a_damaged_state_is_named(tmp_path: Path, grammar: GrammarSource, content: bytes) -> None:
    task = tiny_task(tmp_path, grammar)
    task.state.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"damaged file tiny\.state.*--restart"):
        train_model(task)


def test_a_state_of_another_plan_is_refused_by_name(tmp_path: Path, grammar: GrammarSource) -> None:
    task = tiny_task(tmp_path, grammar)
    model = FiberBundleTransformer(task.config)
    optimizer = torch.optim.AdamW(model.parameters())
    write_state(task.state, model, optimizer, replace(task, plan=replace(PLAN, seed=1, batch=3)).identity(), {})
    with pytest.raises(CheckpointError, match=r"differs in batch, seed;"):
        train_model(task)


def test_a_finished_model_is_found_and_another_plans_is_not_overwritten(tmp_path: Path, grammar: GrammarSource) -> None:
    plan = replace(PLAN, steps=2)
    task = tiny_task(tmp_path, grammar, plan)
    first = train_model(task)
    before = task.checkpoint.read_bytes()
    assert train_model(task) == first
    longer = replace(task, plan=replace(plan, steps=3))
    with pytest.raises(CheckpointError, match=r"another plan's checkpoint tiny\.safetensors"):
        train_model(longer)
    assert task.checkpoint.read_bytes() == before
    assert train_model(longer, restart=True)["steps"] == 3


# Data


def test_twins_see_the_same_data_and_start_alike(tmp_path: Path, grammar: GrammarSource) -> None:
    seen: dict[str, list[np.ndarray]] = {}

    class Watched(GrammarSource):
        def rows(self, seed: int, step: int, count: int, length: int) -> np.ndarray:
            seen.setdefault(self.watched, []).append(super().rows(seed, step, count, length))
            return seen[self.watched][-1]

    source = Watched()
    for source.watched in ("euclidean", "riemannian"):
        train_model(tiny_task(tmp_path / source.watched, source, replace(PLAN, steps=4), score=source.watched))
    assert len(seen["euclidean"]) == 4
    for one, two in zip(*seen.values(), strict=True):
        assert np.array_equal(one, two)
    assert not np.array_equal(seen["euclidean"][0], seen["euclidean"][1])
    configs = model_configs(PRESETS["twins"], grammar.tokenizer.vocab_size)
    baseline = dict(FiberBundleTransformer(configs["euclidean"]).named_parameters())
    for name in ("l2", "riemannian", "dictionary"):
        own = dict(FiberBundleTransformer(configs[name]).named_parameters())
        assert baseline.keys() <= own.keys()
        assert all(torch.equal(value, own[key]) for key, value in baseline.items())


def test_equal_parameter_twin_is_as_near_as_whole_widths_allow(grammar: GrammarSource) -> None:
    configs = model_configs(PRESETS["twins"], grammar.tokenizer.vocab_size)
    counts = {name: sum(p.numel() for p in FiberBundleTransformer(c).parameters()) for name, c in configs.items()}
    assert counts == {name: parameter_count(config) for name, config in configs.items()}
    one_unit = configs[WIDENED].layers * (2 * configs[WIDENED].width + 1)
    assert abs(counts[WIDENED] - counts["riemannian"]) <= one_unit / 2
    for name, config in configs.items():
        plain = {"score": "euclidean", "metric_family": "full", "torsion_rank": 0, "transport": "none"}
        same = replace(config, feed_forward=256, **plain)
        assert same == configs["euclidean"], f"{name} differs from its twins in more than its score"
        assert config.layers >= 6 and config.heads == 4
        assert 4 * counts[name] < 4e6, "more than 4 MB of float32"


def test_rows_depend_on_seed_and_step_alone_and_differ_from_held_out(grammar: GrammarSource, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("".join(chr(97 + i * i % 23) for i in range(3000)))
    for source in (grammar, open_text(tmp_path / "t.txt", None, 64)):
        rows = source.rows(3, 5, 4, 40)
        assert rows.shape == (4, 40)
        assert (rows[:, 0] == source.tokenizer.bos).all()
        assert np.array_equal(rows, source.rows(3, 5, 4, 40))
        assert not np.array_equal(rows, source.rows(4, 5, 4, 40))
        assert not np.array_equal(rows, source.rows(3, 6, 4, 40))
        assert not np.array_equal(rows, source.held_out(4, 40).ids)


def test_text_is_split_and_read_as_the_tokenizer_reads_it(tmp_path: Path) -> None:
    content = "naïve text 層, line\n" * 40
    (tmp_path / "t.txt").write_text(content)
    source = open_text(tmp_path / "t.txt", None, 16)
    whole = np.concatenate([source.train, source.kept_back])
    assert whole.tolist() == source.tokenizer.encode(content).ids[1:]
    assert len(source.kept_back) == len(whole) // 10


def test_grammar_questions_point_at_the_words_they_ask_for(grammar: GrammarSource) -> None:
    held = grammar.held_out(6, 200)
    assert held.floor is not None and held.floor.shape == held.ids.shape
    assert (held.floor >= 0).all() and (held.floor[:, 0] == 0).all()
    assert {question.kind for question in held.questions} == {"agreement", "recall", "pronoun"}
    for question in held.questions:
        assert held.ids[question.row, question.position] == question.right
        assert question.right not in question.wrong and question.wrong


# The plan


def test_schedule_rises_falls_and_keeps_the_tokens_a_step() -> None:
    plan = TrainingPlan("x", steps=100, batch=16, length=128, long_rows=((8, 512), (32, 1024)), warm_up=10)
    rates = [plan.rate(step) for step in range(100)]
    assert rates[9] == max(rates) == plan.learning_rate
    assert all(a < b for a, b in itertools.pairwise(rates[:10]))
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))
    assert rates[-1] == pytest.approx(plan.floor * plan.learning_rate, rel=0.02)
    assert [plan.shape(step) for step in (0, 7, 31)] == [(16, 128), (4, 512), (2, 1024)]
    assert plan.tokens(100) == 100 * 16 * 128


@pytest.mark.parametrize(
    "change",
    [{"steps": 0}, {"batch": 0}, {"length": 1}, {"seed": -1}, {"dtype": "float8"}, {"long_rows": ((8, 16),)}],
    ids=str,
)
def test_a_plan_out_of_range_says_what_it_got(change: dict) -> None:
    with pytest.raises(ValueError, match=r"got .*expected"):
        replace(PLAN, **change)


# Evaluation, by models whose answers are known


def oracle(held: HeldOut, of: Callable[[int, int], dict[int, float]]) -> Callable[[Tensor], Tensor]:
    """A model that puts the given probabilities on the token at (row, position), and the rest evenly elsewhere."""
    rows = {tuple(ids): row for row, ids in enumerate(held.ids.tolist())}
    vocabulary = int(held.ids.max()) + 1

    def predict(ids: Tensor) -> Tensor:
        logits = torch.zeros(*ids.shape, vocabulary)
        for i, sequence in enumerate(ids.tolist()):
            for t in range(len(sequence) - 1):
                given = of(rows[tuple(sequence)], t + 1)
                rest = (1 - sum(given.values())) / (vocabulary - len(given))
                logits[i, t] = math.log(rest)
                for token, share in given.items():
                    logits[i, t, token] = math.log(share)
        return logits

    return predict


def test_a_perfect_model_answers_all_and_a_uniform_one_none(grammar: GrammarSource) -> None:
    held = grammar.held_out(8, 60)
    perfect = evaluate(oracle(held, lambda row, t: {int(held.ids[row, t]): 0.9}), held)
    assert perfect["loss"] == pytest.approx(-math.log(0.9), abs=1e-6)
    for kind in ("agreement", "recall", "pronoun"):
        assert perfect[kind]["accuracy"] == 1.0
        assert sum(group["items"] for group in perfect[kind]["by_depth"].values()) == perfect[kind]["items"]
    uniform = evaluate(lambda ids: torch.zeros(*ids.shape, grammar.tokenizer.vocab_size), held)
    assert uniform["loss"] == pytest.approx(math.log(grammar.tokenizer.vocab_size), abs=1e-6)
    assert uniform["agreement"]["accuracy"] == 0.0, "a tie is no answer"


def test_a_model_at_the_floor_has_distance_zero(grammar: GrammarSource) -> None:
    held = grammar.held_out(5, 60)
    floor = held.floor
    assert floor is not None
    # A certain word has probability 1, whose rest is 0: give it almost 1.
    share = np.minimum(np.exp(-floor), 1 - 1e-12)
    found = evaluate(oracle(held, lambda row, t: {int(held.ids[row, t]): float(share[row, t])}), held)
    assert found["floor"] == pytest.approx(floor[:, 1:].mean(), rel=1e-12)
    assert found["above_floor"] == pytest.approx(0, abs=1e-6)
    assert found["above_floor_standard_error"] < 1e-6 < found["standard_error"]


def test_a_majority_model_scores_the_majority_baseline() -> None:
    ids = np.array([[0, 5, 1], [0, 6, 1], [0, 7, 1], [0, 8, 2]])
    questions = tuple(
        Question(row, 2, "agreement", right, (3 - right,), row % 2, 0, "plural" if right == 1 else "singular", row < 2)
        for row, right in enumerate((1, 1, 1, 2))
    )
    held = HeldOut(ids, None, questions)
    found = evaluate(oracle(held, lambda row, t: {1: 0.5}), held)["agreement"]
    assert found["accuracy"] == found["majority"] == 0.75
    assert found["nearest_noun"] == 0.5 and found["chance"] == 0.5
    assert found["by_attractors"]["0"]["accuracy"] == 1.0 and found["by_attractors"]["1"]["accuracy"] == 0.5
    assert found["standard_error"] == pytest.approx(math.sqrt(0.75 * 0.25 / 4))


def test_loss_by_position_is_that_of_torch(grammar: GrammarSource) -> None:
    model = FiberBundleTransformer(
        FiberBundleConfig(vocab_size=grammar.tokenizer.vocab_size, **(TINY | {"context": 200}))
    )
    held = grammar.held_out(3, 150)
    found = evaluate(model, held)
    ids = torch.from_numpy(held.ids)
    with torch.no_grad():
        each = F.cross_entropy(model(ids)[:, :-1].mT.double(), ids[:, 1:], reduction="none")
    assert found["loss"] == pytest.approx(float(each.mean()), abs=1e-6)
    assert [(band["from"], band["below"]) for band in found["by_position"]] == [(1, 64), (64, 128), (128, 150)]
    assert found["by_position"][1]["loss"] == pytest.approx(float(each[:, 63:127].mean()), abs=1e-6)
    assert found["standard_error"] == pytest.approx(float(each.mean(1).std() / 3**0.5), abs=1e-6)


def test_metric_statistics_agree_with_dense_eigenvalues() -> None:
    config = FiberBundleConfig(vocab_size=9, **TINY)  # type: ignore[arg-type]
    model = FiberBundleTransformer(config).requires_grad_(False)
    ids = np.arange(9)[None]
    found = metric_statistics(model, ids, "cpu")
    for index, layer in enumerate(model.trace(torch.arange(9)).layers):
        values = np.linalg.eigvalsh(layer.metric.dense().double().numpy())  # head token dim
        d = values.shape[-1]
        apart = np.linalg.norm(values - values.mean(-1, keepdims=True), axis=-1) / np.linalg.norm(values, axis=-1)
        assert found["anisotropy"][index] == pytest.approx((math.sqrt(d / (d - 1)) * apart).mean(), rel=1e-5)
        strength = (values - 1).sum(-1)
        assert found["trace_k"][index] == pytest.approx(strength.mean(), rel=1e-5)
        assert found["trace_k_spread"][index] == pytest.approx(strength.std(1).mean(), rel=1e-4)
    assert metric_statistics(FiberBundleTransformer(replace(config, score="l2")), ids, "cpu") == {}


# The record and the command


def test_the_record_is_json_and_travels_in_the_checkpoint(tmp_path: Path, grammar: GrammarSource) -> None:
    task = tiny_task(tmp_path, grammar, replace(PLAN, steps=6))
    record = train_model(task)
    checkpoint = load(task.checkpoint)
    assert dict(checkpoint.training) == record == json.loads(json.dumps(record, allow_nan=False))
    assert record["finished"] and record["tokens"] == 6 * 2 * 16
    assert record["parameters"] == checkpoint.parameters
    assert record["data"] == {"source": "grammar", "sha256": grammar.sha256}
    assert len(record["curve"]) == 6 and len(record["checks"][0]["trace_k"]) == TINY["layers"]
    again = evaluate(build(checkpoint), grammar.held_out(PLAN.evaluation_rows, PLAN.length))
    assert again["loss"] == record["evaluation"]["loss"], "the figures are those of the model in the file"
    assert repr(record["final_loss"]) and float(final_line(record).split()[3].rstrip(",")) == record["final_loss"]


def test_learning_lowers_the_loss(tmp_path: Path, grammar: GrammarSource) -> None:
    record = train_model(tiny_task(tmp_path, grammar, replace(PLAN, steps=24, learning_rate=0.02), layers=1))
    assert [check["step"] for check in record["checks"]] == [1, 10, 20, 24]
    assert record["checks"][-1]["loss"] < record["checks"][0]["loss"] - 0.3


@pytest.mark.parametrize("score", ["euclidean", "riemannian"])
def test_a_loss_that_is_not_finite_stops_the_training(tmp_path: Path, grammar: GrammarSource, score: str) -> None:
    with pytest.raises(DivergenceError, match=r"got .* at step \d, expected finite numbers: "):
        train_model(tiny_task(tmp_path, grammar, replace(PLAN, learning_rate=1e30), score=score))


def test_text_with_twins_prints_one_table(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("to be or not to be, that is the question. " * 300)
    asked = (
        "--preset",
        "twins",
        "--only",
        "l2,euclidean",
        "--text",
        tmp_path / "t.txt",
        "--steps",
        "1",
        "--batch",
        "1",
    )
    printed = command(*asked, "--length", "24", "--out", tmp_path / "o").splitlines()
    assert [line.split(":")[0] for line in printed[:2]] == ["euclidean", "l2"]
    assert printed[2].split()[:2] == ["model", "parameters"] and printed[4].split()[0] == "l2"
    record = load(tmp_path / "o" / "l2.safetensors").training
    assert "--text t.txt" in record["command"] and str(tmp_path) not in json.dumps(record)


def test_a_given_tokenizer_is_used(tmp_path: Path) -> None:
    words = {word: index for index, word in enumerate("to be or not".split())}
    table = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
             "model": {"type": "WordLevel", "vocab": words, "unk_token": "to"}}  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(table))
    (tmp_path / "t.txt").write_text("to be or not to be " * 60)
    source = open_text(tmp_path / "t.txt", tmp_path / "tokenizer.json", 16)
    assert source.tokenizer.vocab_size == 5 and source.tokenizer.bos == 4
    assert source.train[:6].tolist() == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "grand"], "got preset 'grand', expected one of smoke, twins"),
        (["--preset", "twins", "--only", "hyperbolic"], "got model 'hyperbolic', expected some of euclidean, l2"),
        (["--text", "missing.txt"], "got --text 'missing.txt', expected a file"),
        (["--text", "empty.txt"], "got an empty file empty.txt"),
        (["--text", "short.txt"], "got 100 tokens of text in short.txt, expected at least 2561"),
        (["--text", "short.txt", "--tokenizer", "short.txt"], "not JSON"),
        (["--tokenizer", "short.txt"], "got --tokenizer without --text"),
        (["--length", "300"], "got --length 300, expected at most"),
        (["--device", "abacus"], "got --device 'abacus'"),
        (["--dtype", "int8"], "got dtype 'int8', expected one of float32"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_arguments_get_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").touch()
    Path("short.txt").write_text("x" * 100)
    ran = CliRunner().invoke(APP, arguments)
    assert ran.exit_code == 2
    assert ran.stderr.startswith("error: ") and message in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1 and "Traceback" not in ran.output


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_dtypes_train(tmp_path: Path, grammar: GrammarSource, dtype: str) -> None:
    record = train_model(tiny_task(tmp_path, grammar, replace(PLAN, steps=2, dtype=dtype)))
    assert math.isfinite(record["final_loss"])
    weights = load(tmp_path / "tiny.safetensors").tensors["embedding.weight"]
    assert weights.dtype == (torch.float64 if dtype == "float64" else torch.float32)

"""The command line, as a subprocess of the user's would see it: output, exit status, and no traceback."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fbt_core.__main__ import app
from fbt_core.checkpoints import native
from fbt_core.config import FiberBundleConfig
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.tokenizer import WordByteTokenizer
from fbt_core.training.grammar import WORDS
from tests import oracles

TEXT = "the old sailor near the ships sings"
MODELS = {
    "full": {"torsion_rank": 1, "transport": "frame"},
    "dictionary": {"metric_family": "dictionary"},
    "euclidean": {"score": "euclidean"},
    "blended": {"alpha": 0.3},
    "alibi": {"position": "alibi", "causal": False},
}


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    tokenizer = WordByteTokenizer(WORDS)
    config = FiberBundleConfig(
        vocab_size=tokenizer.vocab_size, width=16, layers=3, heads=2, feed_forward=16, **request.param
    )
    native.save(tmp_path / "m.safetensors", config, FiberBundleTransformer(config).state_dict(), tokenizer, {})
    return tmp_path / "m.safetensors"


def run(*words: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == status, (result.output, result.exception)
    return result.stdout if status == 0 else result.stderr


def test_trace_prints_every_layer_and_head(path: Path) -> None:
    table = json.loads(run("trace", path, "--text", TEXT, "--json", "-"))
    assert table["tokens"] == ["<s>", *TEXT.split()] and [row["layer"] for row in table["layers"]] == [0, 1, 2]
    fields = {
        "layer",
        "effective_rank",
        "dong_residual",
        "trace_k",
        "logdet_g",
        "anisotropy",
        "omega",
        "torsion_norm",
        "heads",
    }
    for row in table["layers"]:
        assert set(row) == fields
        assert [set(head) for head in row["heads"]] == 2 * [
            {"head", "tv_euclidean_riemannian", "entropy_euclidean", "entropy_riemannian"}
        ]
    assert "effective_rank" in run("trace", path, "--text", TEXT)


def test_per_token_values_are_those_behind_the_means(path: Path) -> None:
    rows = json.loads(run("trace", path, "--text", TEXT, "--json", "-", "--per-token"))["layers"]
    for row in rows:
        assert np.shape(row["per_token"]["trace_k"]) == (2, 8)
        assert np.mean(row["per_token"]["omega"]) == pytest.approx(row["omega"], rel=1e-12)
        means = np.mean(row["per_token"]["entropy_riemannian"], axis=1)
        assert means == pytest.approx([head["entropy_riemannian"] for head in row["heads"]], rel=1e-12)


@pytest.mark.parametrize("score", ["riemannian", "euclidean", "l2", "homogeneous", "blended"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
def test_the_factors_give_the_printed_map(path: Path, tmp_path: Path, score: str, dtype: str, tolerance: float) -> None:
    more = ("--alpha", 0.5) if score == "blended" else ()
    words = ("maps", path, "--text", TEXT, "--layer", 2, "--head", 1, "--score", score, *more, "--dtype", dtype)
    printed = np.loadtxt(run(*words, "--csv", "-", "--factors", tmp_path / "f.npz").splitlines(), delimiter=",")
    assert printed.sum(1) == pytest.approx(1, abs=1e-6)
    with np.load(tmp_path / "f.npz", allow_pickle=False) as file:
        f = dict(file)
    q, k, U, omega = (f[name].astype(np.float64) for name in ("q", "k", "U", "omega"))
    S = oracles.score_by_loop(score, q, k, U, float(f["tau"]), omega, float(f["alpha"]))
    slope = float(f["slope"]) if "slope" in f else 0.0
    assert printed == pytest.approx(oracles.softmax_by_loop(S, bool(f["causal"]), slope), abs=tolerance)


def test_strength_is_named_a_what_if(path: Path) -> None:
    table = json.loads(run("trace", path, "--text", TEXT, "--json", "-", "--strength", 0))
    assert "0.0" in table["what_if"] and all(row["trace_k"] == 0 for row in table["layers"])


def test_errors_are_one_line(path: Path, tmp_path: Path) -> None:
    cases = [
        (("trace", tmp_path / "none", "--text", "a"), "no file at"),
        (("maps", path, "--text", "a", "--layer", 9), "expected 0 to 2"),
        (("maps", path, "--text", "a", "--head", 9), "expected 0 to 1"),
        (("maps", path, "--text", "a", "--score", "cosine"), "expected one of"),
        (("maps", path, "--text", "a", "--score", "l2", "--alpha", 0.5), "with blended only"),
        (("trace", path, "--text", "a", "--dtype", "int4"), "expected auto or one of"),
        (("trace", path, "--text", "a", "--device", "warp"), "--device 'warp'"),
        (("trace", path, "--text", "@nowhere.txt"), "nowhere.txt"),
    ]
    for words, message in cases:
        error = run(*words, status=2)
        assert message in error and error.count("\n") == 1


def test_a_text_can_come_from_a_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(TEXT)
    assert run("maps", path, "--text", f"@{tmp_path / 't.txt'}") == run("maps", path, "--text", TEXT)

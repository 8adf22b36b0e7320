"""Rank by depth of many checkpoints: which are meant, what is measured, and what becomes of one that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from fbt_core.__main__ import app
from fbt_core.checkpoints import load, native
from fbt_core.config import FiberBundleConfig
from fbt_core.experiments import ranks, results
from fbt_core.experiments.rank_file import BOUNDS, read_rank_file
from fbt_core.experiments.series import members, step_of
from fbt_core.measures import MEASURES, read
from fbt_core.model import build
from fbt_core.model.ablation import VARIANTS
from fbt_core.model.fiber_bundle import FiberBundleTransformer
from fbt_core.sample import sample_text
from fbt_core.tokenizer import WordByteTokenizer

TOKENIZER = WordByteTokenizer("the old sailor near ships sings".split())
TEXT = "the old sailor near the ships sings near the old ships"


def save(path: Path, seed: int = 0, sink: float = 1.0, **changes: object) -> Path:
    """A small untrained checkpoint; ``sink`` scales the embedding of ``<s>``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = {"width": 16, "layers": 3, "heads": 2, "feed_forward": 16, "position": "none"} | changes
    config = FiberBundleConfig(vocab_size=TOKENIZER.vocab_size, **shape)
    model = FiberBundleTransformer(config, seed)
    with torch.no_grad():
        model.embedding.weight[0] *= sink
    native.save(path, config, model.state_dict(), TOKENIZER, {})
    return path


def job(path: Path, **changes: object) -> dict:
    usual = {"model": "m", "checkpoint": "c", "step": None, "variants": [*VARIANTS], "text": TEXT, "length": 9}
    return usual | {"path": str(path), "device": "cpu", "dtype": "float64"} | changes


def command(*words: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["ranks", *map(str, words), "--workers", "1"])
    assert result.exit_code == status, (result.output, result.exception)
    return result.stdout if status == 0 else result.stderr


def test_every_row_is_what_the_measures_read(tmp_path: Path) -> None:
    """Of every variant, layer, and way to take the tokens; the first token is a sink, so leaving it out matters."""
    path = save(tmp_path / "m.safetensors", sink=100.0)
    frame = pd.DataFrame(ranks.run(job(path)))
    checkpoint = load(path)
    ids = torch.tensor(checkpoint.tokenizer.encode(TEXT).ids[:9])
    for variant in VARIANTS:
        trace = build(checkpoint, "cpu", "float64").traces(ids, variant=variant)[""]
        for tokens in ranks.TOKENS:
            for sinks in ranks.SINKS:
                part = frame[(frame.variant == variant) & (frame.tokens == tokens) & (frame.sinks == sinks)]
                assert [*part["layer"]] == [0, 1, 2, 3, 3] and [*part["where"]][:2] == ["embedding", "block"]
                for name in ranks.NAMES:
                    options = {"tokens": tokens, "sinks": sinks}
                    out = read(trace, name, stage="out", final=True, **options).values
                    expected = np.append(read(trace, name, stage="in", **options).values[:1], out)
                    np.testing.assert_allclose(part[name], expected, rtol=1e-12, err_msg=f"{variant} {name} {options}")
    first = frame[(frame["where"] == "embedding") & (frame.tokens == "raw") & (frame.variant == "full")]
    assert [*first["count"]] == [9, 8] and [*first["left_out"]] == [0, 1]
    assert first["dong_residual"].iloc[0] != first["dong_residual"].iloc[1]


def test_the_measures_are_all_those_of_the_residual_stream() -> None:
    assert {*ranks.NAMES} == {name for name, row in MEASURES.items() if row.axes == ("layer",)}


def test_what_cannot_be_used_is_a_row_and_says_why(tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"nothing of the kind")
    (row,) = ranks.run(job(bad, step=7))
    assert "no known format" in row["error"] and row["step"] == 7 and np.isnan(row["effective_rank"])
    pure = pd.DataFrame(ranks.run(job(save(tmp_path / "pure.safetensors", pure_stack=True))))
    faults = pure[pure["error"] != ""]
    assert {*faults["variant"]} == {*VARIANTS} - {"full"} and (pure["error"] == "").sum() == 5 * 6
    assert {*row} == {*pure.columns}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-500", 500), ("global_step1000", 1000), ("iter_0002000.pt", 2000), ("m-step3.safetensors", 3),
        ("run2-step-40", 40), ("1000.safetensors", 1000), ("llama-7b", None), ("epoch", None),
        ("model-00001-of-00002.safetensors", None), ("step" + "9" * 400, None),
    ],
)  # fmt: skip
def test_a_name_tells_its_step(tmp_path: Path, name: str, step: int | None) -> None:
    path = tmp_path / name[:200]
    path.touch()
    assert step_of(path) == step


def test_the_steps_of_a_folder_are_in_their_order_and_each_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for step in (100, 9, 10):
        save(run / f"checkpoint-{step}" / "model.safetensors")
    save(run / "final" / "model.safetensors")
    (run / "final" / "trainer_state.json").write_text(json.dumps({"global_step": 120}))
    (run / "latest").symlink_to("checkpoint-100")
    (run / "logs").mkdir()
    found = members([run])
    assert [one.step for one in found] == [9, 10, 100, 120]
    assert {one.model for one in found[:3]} == {"run"} and found[3].model == "run/final"
    assert [one.name for one in found[:2]] == ["run/checkpoint-9", "run/checkpoint-10"]
    (run / "config.json").write_text("{}")
    save(run / "model.safetensors")
    assert [one.path for one in members([run])][-1] == run and len(members([run])) == 5


def test_names_are_told_apart_and_steps_of_one_model_belong_together(tmp_path: Path) -> None:
    paths = [save(tmp_path / folder / f"twin-step{step}.safetensors") for folder in "ab" for step in (2, 11)]
    found = members(paths)
    assert len({one.name for one in found}) == 4
    assert [len({one.model for one in found if one.path.parent.name == folder}) for folder in "ab"] == [1, 1]
    assert len({one.model for one in found}) == 2
    (inside, *others) = members([tmp_path / "a"])
    assert (inside.step, inside.model) == (2, "a/twin") and [one.step for one in others] == [11]


def test_a_path_without_a_checkpoint_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert command(tmp_path / "nothing", status=2).startswith("error: got ")
    assert "without weights" in command(tmp_path / "empty", status=2)


def test_the_command_prints_one_table_and_goes_on_after_a_bad_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "m-step1.safetensors").write_bytes(b"junk")
    for step in (2, 30):
        save(tmp_path / "run" / f"m-step{step}.safetensors", seed=step)
    (tmp_path / "text.txt").write_text(TEXT)
    asked = (tmp_path / "run", "--text", tmp_path / "text.txt", "--tokens", 9, "--out", tmp_path / "rows.parquet")
    printed = command(*asked)
    lines = printed.splitlines()
    assert [line.split()[1] for line in lines[1:4]] == ["1", "2", "30"] and "no known format" in lines[1]
    assert "2 of 3 could be used" in printed
    frame = results.read(tmp_path / "rows.parquet")[0]
    last = frame[(frame.layer == 3) & (frame["where"] == "block") & (frame.tokens == "raw") & (frame.sinks == "kept")]
    assert [line.split()[7] for line in lines[2:4]] == [f"{value:.4g}" for value in last["effective_rank"]]
    assert command(*asked) == printed  # what is done is not done again
    save(tmp_path / "run" / "m-step2.safetensors", seed=5, layers=2)
    assert "--restart" in command(*asked, status=2)  # another checkpoint under the same name is another plan
    assert command(*asked, "--restart") != printed


def test_a_results_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    frame = pd.DataFrame([*ranks.run(job(save(tmp_path / "m.safetensors"), step=4)), *ranks.run(job(tmp_path / "no"))])
    results.write(tmp_path / "rows.parquet", frame, {})
    found = read_rank_file(tmp_path / "rows.parquet")
    for name in BOUNDS.columns:
        if name in BOUNDS.texts:
            assert [*found[name]] == [*frame[name]]
        else:
            np.testing.assert_array_equal(found[name], frame[name].astype(float))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    path = save(tmp_path_factory.mktemp("sound") / "m.safetensors")
    return pd.DataFrame(ranks.run(job(path, variants=["full"])))


HOSTILE = {
    "no rows": lambda frame: frame.iloc[:0],
    "without the columns": lambda frame: frame.drop(columns="mu"),
    "the wrong kind": lambda frame: frame.assign(mu="1"),
    "of type": lambda frame: frame.assign(mu=[[1.0]] * len(frame)),
    "in the column variant": lambda frame: frame.assign(variant="<script>"),
    "a layer": lambda frame: frame.assign(layer=frame["layer"] + 0.5),
    "from 0 to 2000": lambda frame: frame.assign(layer=frame["layer"] * 1e300),
    "two rows": lambda frame: pd.concat([frame, frame]),
    "letters": lambda frame: frame.assign(checkpoint="x" * 2000),
    "different texts": lambda frame: frame.iloc[[0] * 5000].assign(checkpoint=[*map(str, range(5000))]),
}


@pytest.mark.parametrize("says", HOSTILE)
def test_a_file_that_lies_is_refused_with_the_reason(tmp_path: Path, sound: pd.DataFrame, says: str) -> None:
    results.write(tmp_path / "rows.parquet", HOSTILE[says](sound), {})
    wanted = "without rows" if says == "no rows" else says
    with pytest.raises(ValueError, match=wanted):
        read_rank_file(tmp_path / "rows.parquet")


def test_what_is_no_parquet_or_grows_beyond_bounds_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1" + b"\xff" * 400 + b"PAR1")
    with pytest.raises(ValueError, match="expected a results file"):
        read_rank_file(path)
    pq.write_table(pa.table({"mu": np.zeros(3_000_000)}), path, compression="zstd")  # a few kilobytes
    assert path.stat().st_size < 1 << 16
    with pytest.raises(ValueError, match="3000000 rows, expected at most"):
        read_rank_file(path)


def test_the_bundled_text_is_long_and_the_twins_know_its_first_page(assets: Path) -> None:
    text = sample_text()
    assert 2800 <= len(text.split()) <= 3600
    for heading in ("THE ROPE", "ON BEING LATE", "TWO PEOPLE ON THE STAIRS", "HOW A PENDULUM", "A LETTER"):
        assert text.count(f"\n\n{heading}") == 1
    for fact in ("four minutes", "a hundred and sixty-four", "brass buttons", "Marta Venn", "Tomas", "*Heron*"):
        assert all(fact in part for part in (text[:6000], text[-5000:])), fact  # told early, and again at the end
    tokenizer = load(assets / "riemannian.safetensors").tokenizer
    encoding = tokenizer.encode(text)
    assert not any(encoding.unknown[:320]) and any(encoding.unknown)
    assert tokenizer.decode(encoding.ids) == text

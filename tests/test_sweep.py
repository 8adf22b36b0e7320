"""Sweeps: killed and resumed, torn, refused, failed, and the same rows on every backend. Plans and their faults."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from fbt_core.__main__ import app
from fbt_core.experiments import backends, collapse, results
from fbt_core.experiments.backends import BACKENDS, Cluster, Task
from fbt_core.experiments.plan import cost, read_plan
from fbt_core.experiments.progress import SweepProgress
from fbt_core.experiments.sweep import SweepError, sweep
from tests.sweep_jobs import failing, jobs, slow, trivial

NAME = {"plan": "test"}


def journal_of(out: Path) -> Path:
    return out.with_name(out.name + ".journal")


def begun(out: Path, count: int) -> list[str]:
    """A journal of the first ``count`` of four jobs, as a killed sweep leaves it; its lines."""
    with pytest.raises(KeyboardInterrupt):
        sweep(jobs(4), Interrupted(count), out, identity=NAME, workers=1)
    return journal_of(out).read_text().splitlines()


class Interrupted:
    """``trivial``, until a number of jobs are done."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self, parameters: dict[str, object]) -> list[dict[str, object]]:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        return trivial(parameters)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The rows of four jobs, run without anything happening."""
    return sweep(jobs(4), trivial, tmp_path_factory.mktemp("whole") / "a.parquet", identity=NAME, workers=1)


def test_rows_are_those_of_the_jobs_in_their_order(whole: pd.DataFrame) -> None:
    expected = pd.DataFrame([row for job in jobs(4) for row in trivial(job)])
    pd.testing.assert_frame_equal(whole, expected, check_exact=True)
    assert whole["loss"].isna().all()


def test_killed_and_resumed_gives_the_same_rows(tmp_path: Path, root: Path) -> None:
    out, log = tmp_path / "rows.parquet", tmp_path / "log"
    command = [sys.executable, "-m", "tests.sweep_jobs", str(out), str(log), "40"]
    process = subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while not (journal_of(out).exists() and journal_of(out).read_bytes().count(b"\n") > 3):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = journal_of(out).read_bytes().count(b"\n") - 1
    assert 3 <= done < 40 and not out.exists()
    resumed = sweep(jobs(40, log=str(log)), slow, out, identity={"plan": "kill"}, workers=1)
    straight = sweep(jobs(40, log=str(log)), trivial, tmp_path / "b.parquet", identity={"plan": "kill"}, workers=1)
    pd.testing.assert_frame_equal(resumed, straight, check_exact=True)
    assert not journal_of(out).exists()
    run = [int(line) for line in log.read_text().split()]
    assert sorted(set(run)) == list(range(40))
    assert len(run) <= 41, "a job whose line was on the disk ran again"


@pytest.mark.parametrize("cut", [1, 40])
def test_a_torn_last_line_is_done_again(tmp_path: Path, whole: pd.DataFrame, cut: int) -> None:
    out = tmp_path / "rows.parquet"
    begun(out, 3)
    content = journal_of(out).read_bytes()
    journal_of(out).write_bytes(content[:-cut])
    again = Counted(trivial)
    pd.testing.assert_frame_equal(sweep(jobs(4), again, out, identity=NAME, workers=1), whole, check_exact=True)
    assert again.seeds == [2, 3]


def test_zeros_in_place_of_the_last_line_are_done_again(tmp_path: Path, whole: pd.DataFrame) -> None:
    out = tmp_path / "rows.parquet"
    lines = begun(out, 2)
    journal_of(out).write_text("\n".join([*lines[:-1], "\0" * 30]) + "\n")
    again = Counted(trivial)
    pd.testing.assert_frame_equal(sweep(jobs(4), again, out, identity=NAME, workers=1), whole, check_exact=True)
    assert again.seeds == [1, 2, 3]


def test_a_journal_damaged_in_its_middle_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    lines = begun(out, 3)
    journal_of(out).write_text("\n".join([lines[0], lines[1][:9], *lines[2:]]) + "\n")
    with pytest.raises(ValueError, match=r"damaged at line 2: add --restart"):
        sweep(jobs(4), trivial, out, identity=NAME, workers=1)


class Counted:
    """A run that remembers its seeds."""

    def __init__(self, run: backends.Run) -> None:
        self.run, self.seeds = run, []

    def __call__(self, parameters: dict[str, object]) -> list[dict[str, object]]:
        self.seeds.append(parameters["seed"])
        return self.run(parameters)


def test_another_plan_is_refused_until_restarted(tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    begun(out, 2)
    with pytest.raises(ValueError, match=r"differs in jobs_sha256, expected .*: add --restart"):
        sweep(jobs(4, more=1), trivial, out, identity=NAME, workers=1)
    with pytest.raises(ValueError, match=r"differs in plan, expected"):
        sweep(jobs(4), trivial, out, identity={"plan": "other"}, workers=1)
    assert len(sweep(jobs(3), trivial, out, identity=NAME, workers=1, restart=True)) == 6
    with pytest.raises(ValueError, match="results of another plan"):
        sweep(jobs(4), trivial, out, identity=NAME, workers=1)
    assert len(sweep(jobs(4), trivial, out, identity=NAME, workers=1, restart=True)) == 8


def test_a_finished_file_is_read_and_not_run_again(tmp_path: Path, whole: pd.DataFrame) -> None:
    out = tmp_path / "rows.parquet"
    sweep(jobs(4), trivial, out, identity=NAME, workers=1)
    again = Counted(trivial)
    pd.testing.assert_frame_equal(sweep(jobs(4), again, out, identity=NAME, workers=1), whole, check_exact=True)
    assert again.seeds == []


def test_two_commands_on_one_journal(tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"

    def nested(parameters: dict[str, object]) -> list[dict[str, object]]:
        with pytest.raises(ValueError, match="another command writes"):
            sweep(jobs(2), trivial, out, identity=NAME, workers=1)
        return trivial(parameters)

    sweep(jobs(2), nested, out, identity=NAME, workers=1)


def test_a_restart_takes_nothing_from_a_command_that_runs(tmp_path: Path, whole: pd.DataFrame) -> None:
    out = tmp_path / "rows.parquet"

    def nested(parameters: dict[str, object]) -> list[dict[str, object]]:
        with pytest.raises(ValueError, match="another command writes"):
            sweep(jobs(2), trivial, out, identity={"plan": "other"}, workers=1, restart=True)
        assert journal_of(out).exists()
        return trivial(parameters)

    found = sweep(jobs(4), nested, out, identity=NAME, workers=1)
    pd.testing.assert_frame_equal(found, whole, check_exact=True)


def test_a_failed_job_does_not_stop_the_others_and_is_tried_again(tmp_path: Path, whole: pd.DataFrame) -> None:
    out, log = tmp_path / "rows.parquet", tmp_path / "log"
    asked = jobs(4, log=str(log))
    with pytest.raises(SweepError, match=r"(?s)1 of 4 jobs failed.* number 1.*RuntimeError: seed 1 fails"):
        sweep(asked, failing, out, identity=NAME, workers=1)
    log.touch()
    again = Counted(failing)
    found = sweep(asked, again, out, identity=NAME, workers=1)
    assert again.seeds == [1]
    pd.testing.assert_frame_equal(found.drop(columns="log"), whole, check_exact=True)


def test_every_backend_gives_the_same_rows(tmp_path: Path, whole: pd.DataFrame) -> None:
    assert set(whole["threads"]) == {1}
    for name, workers in {"joblib": 2, "dask": 1, "ray": 1}.items():
        found = sweep(jobs(4), trivial, tmp_path / f"{name}.parquet", identity=NAME, backend=name, workers=workers)
        pd.testing.assert_frame_equal(found, whole, check_exact=True)
    assert set(BACKENDS) == {"joblib", "dask", "ray"}


def test_gpus_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match=r"got --gpus 1, expected at most the 0"):
        sweep(jobs(1), trivial, tmp_path / "rows.parquet", identity=NAME, workers=1, gpus=1.0)
    with pytest.raises(ValueError, match=r"got --backend 'slurm', expected one of joblib, ray, dask"):
        sweep(jobs(1), trivial, tmp_path / "rows.parquet", identity=NAME, backend="slurm")


@pytest.mark.parametrize(("backend", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_a_backend_that_is_not_installed_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=f"no package {package}, expected .* requirements-cluster.txt"):
        sweep(jobs(1), trivial, tmp_path / "rows.parquet", identity=NAME, backend=backend, workers=1)


def test_jobs_that_ask_for_a_gpu_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    tasks = [
        Task(number, trivial, {"seed": 0, "device": device}) for number, device in enumerate(["cuda"] * 6 + ["cpu"])
    ]
    found = list(backends.on_joblib(tasks, Cluster(workers=1, gpus=0.5)))
    assert chosen == [0, 1, 2, 3, 0, 1] and [one.fault for one in found] == [""] * 7


def test_single_precision_columns_and_what_the_file_says(tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    found = sweep(jobs(2), trivial, out, identity=NAME, workers=1, single=("value", "loss", "absent"))
    assert found["value"].dtype == found["loss"].dtype == np.float32 and found["seed"].dtype == np.int64
    frame, about = results.read(out)
    pd.testing.assert_frame_equal(frame, found)
    assert about["identity"]["plan"] == "test" and about["identity"]["jobs"] == 2
    assert about["versions"]["torch"] == torch.__version__ and about["job_seconds"] >= 0
    out.write_bytes(out.read_bytes()[:100])
    with pytest.raises(ValueError, match="which no sweep wrote"):
        results.read(out)


def test_the_time_left_follows_the_costs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 20.0, 120.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    shown = SweepProgress("sweep", [1.0, 2.0, 10.0, 9.0], [1, 2, 3])
    shown.finished(1)
    shown.finished(2)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "sweep: 1 of 4 jobs were done before",
        "sweep: job 2/4, 0:20 gone, 3:10 left",  # 19 of cost left at 10 seconds each
        "sweep: job 3/4, 2:00 gone, 1:30 left",
    ]


# ---- plans ----

PLAN = """
name = "tiny"
[[grid]]
arms = ["heterogeneous", "homogeneous", "matched"]
strengths = { "tau/L" = [0, 1], "tau/R^2" = [4] }
sizes = [{ length = 4, width = 2, layers = 2 }, { length = 9, width = 3, layers = 2 }]
tied = [false, true]
seeds = 2
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "plan.toml"
    path.write_text(text)
    return path


def test_a_plan_is_the_product_of_its_lists(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, PLAN))
    strengths, sizes = [("tau/L", 0.0), ("tau/L", 1.0), ("tau/R^2", 4.0)], [(4, 2), (9, 3)]
    found = [
        (job["seed"], (job["unit"], job["strength"]), (job["length"], job["width"]), job["tied"]) for job in plan.jobs
    ]
    assert found == list(product(range(2), strengths, sizes, [False, True]))
    assert all(job == collapse.complete(job) | {"arms": job["arms"]} for job in plan.jobs)
    assert {tuple(job["arms"]) for job in plan.jobs} == {("heterogeneous", "homogeneous", "matched")}
    assert all(cost(job) > 0 for job in plan.jobs)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[grid]]", "[[grid", "not TOML"),
        ("[[grid]]", "[other]", "got other in"),
        (PLAN, "name = 'x'", "got no grid"),
        ('"tiny"', "3", "expected texts"),
        ('name = "tiny"', "exponents = 1.5", "got exponents = 1.5"),
        ("seeds = 2", "seeds = 0", "got seeds = 0"),
        ("seeds = 2", "seeds = [1, 1]", "a seed twice"),
        ("seeds = 2", "seeds = true", "got seeds = True"),
        ("seeds = 2", "seed = 2\nlayers = 'x'", "grid 1 of plan.toml"),
        ("seeds = 2", "colour = 'red'", "parameters colour"),
        ("length = 9", "length = 8", "got length 8 at width 3, expected at least its square, 9"),
        ("length = 9", "long = 9", "expected tables of"),
        ('"tau/L" = [0, 1]', '"tau" = [0, 1]', "got unit = 'tau'"),
        ('"tau/L" = [0, 1]', '"tau/L" = [0, "1"]', "got '1' in strengths"),
        ('"tau/L" = [0, 1]', '"tau/L" = [-1]', "got strength = -1"),
        ('{ "tau/L" = [0, 1], "tau/R^2" = [4] }', "[1, 2]", "expected a table such as"),
        ('"homogeneous", ', '"homogenous", ', "got arms homogenous"),
        ("tied = [false, true]", "tied = ['no']", "got tied = 'no'"),
        ("seeds = 2", "seeds = 200000", "jobs, expected at most 100000"),
        ("seeds = 2", "seeds = 2000000000000", "jobs, expected at most 100000"),
        ("seeds = 2", "seeds = [0]\nseed = [1, 2]", "got seed, expected arms and seeds"),
        ("seeds = 2", "strength = 3", "got strengths and strength too"),
        ("seeds = 2", "omega = []", "got omega = []"),
        ("seeds = 2", "omega = [0.0, 0]", "got the arm heterogeneous twice in plan.toml at seed 0"),
        ('"tau/L" = [0, 1]', '"tau/L" = [1, 1.0]', "got the arm heterogeneous twice in plan.toml at seed 0"),
        ("seeds = 2", "device = 3", "device = 3, expected"),
        ("tied = [false, true]", "tied = [0, 1]", "got tied = 0"),
        ('"tiny"', '"../tiny"', "got name '../tiny'"),
        ('"tiny"', '""', "got name ''"),
    ],
)
def test_a_wrong_plan_is_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in PLAN
    with pytest.raises(ValueError) as told:
        read_plan(written(tmp_path, PLAN.replace(old, new, 1)))
    assert message in str(told.value) and "\n" not in str(told.value).split("(")[0]


@pytest.mark.parametrize("name", ["smoke", "collapse", "collapse-gpu"])
def test_the_plans_in_the_repository_are_plans(root: Path, name: str) -> None:
    plan = read_plan(root / "experiments" / f"{name}.toml")
    assert plan.name == name and plan.says
    assert {job["stage"] for job in plan.jobs} == {"initial", "trained"}
    assert len({json.dumps(job, sort_keys=True) for job in plan.jobs}) == len(plan.jobs), "a job stands there twice"


# ---- the command ----


def test_the_command_runs_resumes_and_reports(tmp_path: Path) -> None:
    runner, out = CliRunner(), tmp_path / "rows.parquet"
    text = PLAN.replace("tied = [false, true]", "tied = false").replace("seeds = 2", "seeds = 1")
    command = ["collapse", "--plan", str(written(tmp_path, text)), "--out", str(out), "--workers", "1"]
    first = runner.invoke(app, command)
    assert first.exit_code == 0, first.output
    assert [line[:2] for line in first.stdout.splitlines() if line[:1] == "T"] == ["T1", "T2", "T3", "T4"]
    frame, about = results.read(out)
    arms, layers, cells = 3, 3, 6
    assert len(frame) == arms * layers * cells and about["identity"]["plan"] == "tiny"
    assert runner.invoke(app, command).stdout == first.stdout
    told = runner.invoke(app, ["collapse", "--report", str(out)])
    assert told.exit_code == 0 and "| g = I, matched |" in told.stdout.replace("  ", " ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected one of them"),
        (["--plan", "absent.toml"], "absent.toml"),
        (["--report", "absent.parquet"], "absent.parquet"),
    ],
)
def test_the_command_refuses_in_one_line(arguments: list[str], message: str) -> None:
    told = CliRunner().invoke(app, ["collapse", *arguments])
    assert told.exit_code == 2 and message in told.stderr and len(told.stderr.strip().splitlines()) == 1

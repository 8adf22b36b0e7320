"""Curvature against geomstats, by its autograd backend, in a process of its own: it fixes its backend at import.

Its PyTorch backend is no oracle: it differentiates the Christoffel symbols without the graph of their own derivative,
and so loses the second derivatives of the metric (number 1928 of its tracker). A test here shows that it still does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fbt_core.geometry.connection import christoffel
from fbt_core.geometry.curvature import ricci, riemann, scalar
from fbt_core.geometry.function import MetricFunction

DIM, RANK, HIDDEN, POINTS = 4, 2, 5, 3


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


W, V = normal(HIDDEN, DIM, seed=0), normal(DIM * RANK, HIDDEN, seed=1)
X, ON_SPHERE = normal(POINTS, DIM, seed=2), normal(3, seed=3)
FIELD = MetricFunction.low_rank(lambda x: (V @ (W @ x).tanh()).reshape(DIM, RANK), DIM)


def asked(root: Path, backend: str) -> dict[str, Any]:
    """What geomstats says of both metrics."""
    given = {"W": W.tolist(), "V": V.tolist(), "points": X.tolist(), "sphere": ON_SPHERE.tolist()}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(root / "tests" / "geomstats_oracle.py")],
        input=json.dumps(given), capture_output=True, text=True, check=False, timeout=300,
        env=os.environ | {"GEOMSTATS_BACKEND": backend, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def autograd(root: Path) -> dict[str, Any]:
    return asked(root, "autograd")


def test_curvature_is_that_of_geomstats(autograd: dict[str, Any]) -> None:
    """Theirs is R_ijkl = <R(e_k, e_l) e_j, e_i>, ours <R(e_i, e_j) e_k, e_l>."""
    for x, theirs in zip(X, autograd["points"], strict=True):
        theirs = {name: torch.tensor(value, dtype=torch.float64) for name, value in theirs.items()}
        assert theirs["scalar"].abs() > 1e-3
        torch.testing.assert_close(riemann(FIELD, x), theirs["riemann"].permute(3, 2, 0, 1), rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(ricci(FIELD, x), theirs["ricci"], rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(scalar(FIELD, x), theirs["scalar"], rtol=1e-9, atol=1e-10)
        for a, row in enumerate(torch.eye(DIM, dtype=torch.float64)):
            for b, column in enumerate(torch.eye(DIM, dtype=torch.float64)):
                ours = christoffel(FIELD, x, row, column)
                torch.testing.assert_close(ours, theirs["christoffels"][:, a, b], rtol=1e-10, atol=1e-11)


def test_the_oracle_is_right_where_the_answer_is_known(autograd: dict[str, Any]) -> None:
    assert autograd["sphere"]["scalar"] == pytest.approx(6.0, rel=1e-10)


def test_the_pytorch_backend_of_geomstats_is_no_oracle(root: Path, autograd: dict[str, Any]) -> None:
    """Its Christoffel symbols are right, and its curvature is not: on a unit sphere as on the low-rank metric."""
    wrong = asked(root, "pytorch")
    for theirs, right in zip(wrong["points"], autograd["points"], strict=True):
        np.testing.assert_allclose(theirs["christoffels"], right["christoffels"], rtol=1e-10, atol=1e-12)
        assert abs(theirs["scalar"] - right["scalar"]) > 0.1 * abs(right["scalar"])
    assert abs(wrong["sphere"]["scalar"] - 6.0) > 0.6

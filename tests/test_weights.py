"""Stored weights: the table, spectra against dense algebra and closed forms, values, layers; and the page's figures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from app import weights, weights_numbers, weights_spectrum
from app.figures import spectra
from fbt_core.checkpoints import Checkpoint, CheckpointError, Origin

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "![x](http" + "://evil.example/x.png)",
    "\u202egpj.exe",
    "a\x00b",
    "</script>",
]


def stored(tensors: Mapping[str, Tensor]) -> Checkpoint:
    """Weights alone."""
    return Checkpoint(None, dict(tensors), None, {}, Origin("mine", "safetensors", "0" * 64, 1))


def rows(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, object]]:
    return {str(row["name"]): row for row in weights_numbers.table(stored(tensors)).to_dict("records")}


def test_a_row_says_what_is_in_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PIECE", 7)  # several pieces, the last one short
    values = torch.randn(5, 6, dtype=torch.bfloat16)
    found = rows({"w": values})["w"]
    exact = values.double().numpy()
    assert (found["shape"], found["dtype"], found["numbers"], found["remarks"]) == ("5 × 6", "bfloat16", 30, "")
    assert found["norm"] == pytest.approx(np.linalg.norm(exact), rel=1e-12)
    assert found["rms"] == pytest.approx(np.sqrt((exact**2).mean()), rel=1e-12)
    assert (found["min"], found["max"]) == (exact.min(), exact.max())


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (torch.tensor([1.0, float("nan"), float("inf"), float("-inf"), 3.0]), "1 NaN, 2 infinite"),
        (torch.full((4,), float("nan")), "4 NaN"), (torch.zeros(3, 3), "all zero"), (torch.full((3,), 2.0), "constant"),
        (torch.zeros(0, 4), "empty"), (torch.tensor(2.5), ""), (torch.arange(6, dtype=torch.int8), "integers"),
        (torch.ones(4).to(torch.float8_e4m3fn), "8-bit floats"),
    ],
)  # fmt: skip
def test_what_is_remarkable_is_remarked(tensor: Tensor, said: str) -> None:
    found = rows({"w": tensor})["w"]
    assert said in str(found["remarks"]) and bool(found["remarks"]) == bool(said)
    finite = tensor.double()[torch.isfinite(tensor.double())]
    assert found["norm"] == pytest.approx(float(finite.norm()))
    if len(finite):
        assert (found["min"], found["max"]) == (float(finite.min()), float(finite.max()))
    else:
        assert np.isnan(found["min"]) and np.isnan(found["max"])


def test_names_are_shown_and_never_lost() -> None:
    shown = list(rows({name: torch.zeros(1) for name in HOSTILE}))
    assert len(set(shown)) == len(HOSTILE)
    assert not any(character in name for name in shown for character in "\x00\u202e")
    assert any("U+202E" in name for name in shown) and "</script>" in shown


@pytest.mark.parametrize("shape", [(7, 7), (12, 5), (5, 12), (1, 9), (4, 3, 2)])
def test_a_spectrum_is_that_of_the_matrix(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.randn(shape)
    exact = np.linalg.svd(matrix.double().reshape(shape[0], -1).numpy(), compute_uv=False)
    found = weights_spectrum.spectrum(stored({"w": matrix}), "w")
    np.testing.assert_allclose(found.values, exact, rtol=1e-9)
    assert not found.note


def test_a_spectrum_that_its_gram_matrix_loses_is_taken_from_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = torch.linalg.qr(torch.randn(6, 6).double()).Q
    exact = torch.tensor([1.0, 0.5, 1e-3, 1e-9, 1e-10, 1e-11]).double()
    matrix = torch.linalg.qr(torch.randn(9, 6).double()).Q @ (exact[:, None] * turn)
    found = weights_spectrum.spectrum(stored({"w": matrix}), "w")
    np.testing.assert_allclose(found.values, exact, rtol=1e-4)
    monkeypatch.setattr(weights_spectrum, "SMALL", 0)  # as if it were too large for that
    by_gram = weights_spectrum.spectrum(stored({"w": matrix}), "w")
    np.testing.assert_allclose(by_gram.values[:3], exact[:3], rtol=1e-4)
    assert by_gram.values[3] == pytest.approx(0, abs=1e-7)
    assert "rounding" in by_gram.note and not found.note


def test_ranks_have_their_closed_forms() -> None:
    identity = weights_spectrum.spectrum(stored({"w": torch.eye(6)}), "w")
    assert identity.stable_rank == pytest.approx(6) and identity.effective_rank == pytest.approx(6)
    outer = weights_spectrum.spectrum(stored({"w": torch.outer(torch.randn(9), torch.randn(4))}), "w")
    assert outer.stable_rank == pytest.approx(1) and outer.effective_rank == pytest.approx(1, abs=1e-5)
    zero = weights_spectrum.spectrum(stored({"w": torch.zeros(3, 4)}), "w")
    assert (zero.stable_rank, zero.effective_rank, zero.beyond) == (0.0, 0.0, 0)
    assert np.isfinite(zero.random()).all()


@pytest.mark.parametrize("shape", [(300, 300), (400, 100), (60, 500)])
def test_a_random_matrix_follows_the_law(shape: tuple[int, int]) -> None:
    """Against a matrix drawn, not against the formula: within what its finite size allows."""
    drawn = 0.3 * torch.randn(shape, generator=torch.Generator().manual_seed(1))
    found = weights_spectrum.spectrum(stored({"w": drawn}), "w")
    spread = found.edges[1]
    assert np.abs(found.values - found.random()).max() < 0.03 * spread
    assert found.values[0] == pytest.approx(found.edges[1], rel=0.03)
    assert found.beyond <= 3
    planted = drawn + torch.outer(torch.ones(shape[0]), torch.ones(shape[1]))
    assert weights_spectrum.spectrum(stored({"w": planted}), "w").beyond == 1


@pytest.mark.parametrize("tensor", [torch.randn(5), torch.zeros(0, 3), torch.tensor([[1.0, float("nan")], [0, 1]])])
def test_what_has_no_spectrum_says_so(tensor: Tensor) -> None:
    with pytest.raises(CheckpointError):
        weights_spectrum.spectrum(stored({"w": tensor}), "w")


def test_the_largest_matrices_are_left_out_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_spectrum, "WIDEST", 4)
    monkeypatch.setattr(weights_spectrum, "widened", lambda _: pytest.fail("the matrix was widened"))
    with pytest.raises(CheckpointError, match="at most 4"):
        weights_spectrum.spectrum(stored({"w": torch.randn(5, 5)}), "w")


def test_a_lora_adapter_shows_its_changes() -> None:
    prefix = "layers.3.q_proj"
    down, up = torch.randn(2, 7), torch.randn(5, 2)
    held = stored({f"{prefix}.lora_A.weight": down, f"{prefix}.lora_B.weight": up, "alone.lora_A.weight": down})
    (delta,) = [name for name in weights.names(held) if name.startswith(weights.DELTA)]
    assert weights.first_choice(held) == delta and weights.shape(held, delta) == (5, 7)
    assert weights.visible_name(delta) == f"Δ {prefix}"
    product = (up.double() @ down.double()).numpy()
    found = weights_spectrum.spectrum(held, delta)
    np.testing.assert_allclose(found.values, np.linalg.svd(product, compute_uv=False)[:2], rtol=1e-10)
    assert found.power == pytest.approx((product**2).mean())
    counts, edges = weights_numbers.histogram(held, delta)
    assert counts.sum() == 35 and edges[0] == pytest.approx(product.min()) and edges[-1] == pytest.approx(product.max())


def test_a_histogram_counts_every_finite_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "PIECE", 11)
    values = torch.randn(200)
    values[::50] = float("nan")
    counts, edges = weights_numbers.histogram(stored({"w": values}), "w")
    finite = values[torch.isfinite(values)].double().numpy()
    np.testing.assert_array_equal(counts, np.histogram(finite, edges)[0])
    assert counts.sum() == 196
    assert weights_numbers.histogram(stored({"w": torch.full((3,), float("nan"))}), "w")[0].size == 0
    counts, edges = weights_numbers.histogram(stored({"w": torch.full((3,), 7.0)}), "w")
    assert counts.sum() == 3 and edges[0] < 7 < edges[-1]


def test_layers_are_told_apart_by_number_alone() -> None:
    names = ["h.0.q.weight", "h.10.q.weight", "h.2.q.weight", "w2v.weight", "h.1.k1.weight"]
    table = weights_numbers.table(stored({name: torch.ones(2, 2) * index for index, name in enumerate(names)}))
    assert list(table["name"]) == ["h.0.q.weight", "h.1.k1.weight", "h.2.q.weight", "h.10.q.weight", "w2v.weight"]
    found = weights_numbers.by_layer(table)
    assert dict(zip(found["layer"], found["pattern"], strict=True)) == {
        0: "h.#.q.weight", 1: "h.#.k1.weight", 2: "h.#.q.weight", 10: "h.#.q.weight",
    }  # fmt: skip


def test_figures_show_a_hostile_name_as_text() -> None:
    held = stored({name: torch.randn(4, 4) for name in HOSTILE})
    for name in HOSTILE:
        label = weights.visible_name(name)
        found = weights_spectrum.spectrum(held, name)
        counts, edges = weights_numbers.histogram(held, name)
        drawn = [
            spectra.spectrum([spectra.Values(label, found.values, found.random(), found.edges)], "Singular values"),
            spectra.histogram([spectra.Counts(label, counts, edges)], "Values"),
            spectra.norms([spectra.Norms(label, np.arange(2), np.ones(2))], "Norms"),
        ]
        for figure in drawn:
            assert "<img" not in str(figure.to_dict()) and "</script" not in str(figure.to_dict())


def test_the_figure_holds_the_numbers() -> None:
    values, random = np.array([3.0, 2.0, 0.0]), np.array([2.5, 2.0, 1.0])
    figure = spectra.spectrum([spectra.Values("w", values, random, (0.5, 2.6))], "Singular values")
    np.testing.assert_array_equal(figure.data[0].y, [3.0, 2.0, np.nan])
    np.testing.assert_array_equal(figure.data[1].y, random)
    assert list(figure.data[2].y) == [2.6, 2.6] and figure.layout.yaxis.type == figure.layout.xaxis.type == "log"
    counts, edges = np.array([1, 0, 3]), np.array([0.0, 1.0, 2.0, 3.0])
    bars = spectra.histogram([spectra.Counts("w", counts, edges)], "Values").data[0]
    np.testing.assert_array_equal(bars.x, [0, 1, 1, 2, 2, 3])
    np.testing.assert_allclose(bars.y, [0.25, 0.25, np.nan, np.nan, 0.75, 0.75])

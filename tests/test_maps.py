"""Maps made small, made one, packed into bytes and drawn: against double loops and a decoder that shares no code."""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.components import attention_maps, head_atlas
from app.figures import theme
from app.figures.atlas import HeadAtlas, atlas_figure, ranked, shares_figure, terms_figure
from app.figures.colour_scales import COLOURS, bent, shade
from app.figures.map_figures import attention_figure, entropy_figure
from app.figures.map_patches import patch_grid, patches_figure
from app.figures.maps import MapPanels, table
from fbt_core.attention import pooling
from fbt_core.attention.decompose import TERMS
from fbt_core.attention.pooling import head_map, max_pool, mean_over_heads, rollout
from fbt_core.attention.scores import SCORES
from fbt_core.attention.views import all_heads, is_causal, matched_variation, one_map, term_maps, unmatched
from fbt_core.trace import Trace
from tests.traces import random_trace


def attention_by_loop(trace: Trace, layer: int, head: int, score: str) -> np.ndarray:
    """One head's attention from scalars: euclidean, l2 or riemannian."""
    f = trace.layers[layer].factors
    q, k, U = (part[head].double().numpy() for part in (f.q, f.k, f.U))
    tau, omega, (length, d) = float(f.tau[head]), f.omega[head].double().numpy(), q.shape
    result = np.zeros((length, length))
    for i in range(length):
        logits = []
        for j in range(i + 1 if f.causal else length):
            e = q[i] - k[j]
            near = sum(x * x for x in e)
            stretch = (sum((U[i].T @ e) ** 2) + sum((U[j].T @ e) ** 2)) / 2
            logits.append({"euclidean": sum(q[i] * k[j]) / math.sqrt(d), "l2": -near / tau,
                           "riemannian": -(near + stretch) / tau - omega[j]}[score])  # fmt: skip
        weights = [math.exp(value - max(logits)) for value in logits]
        result[i, : len(weights)] = [value / sum(weights) for value in weights]
    return result


def pool_by_loop(cells: np.ndarray, edges: list[int], causal: bool, magnitude: bool) -> tuple[np.ndarray, np.ndarray]:
    bins = len(edges) - 1
    values, masked = np.zeros((bins, bins)), np.zeros((bins, bins), bool)
    for a in range(bins):
        for b in range(bins):
            inside = [
                float(cells[i, j])
                for i in range(edges[a], edges[a + 1])
                for j in range(edges[b], edges[b + 1])
                if not causal or j <= i
            ]
            masked[a, b] = not inside
            if any(not math.isfinite(value) for value in inside):
                values[a, b] = math.nan
            elif inside:
                values[a, b] = max(inside, key=abs) if magnitude else max(inside)
    return values, masked


@pytest.mark.parametrize(("length", "bins"), [(1, 4), (7, 3), (12, 5), (13, 13), (20, 64)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("magnitude", [False, True])
def test_max_pool_is_the_double_loop(length: int, bins: int, causal: bool, magnitude: bool) -> None:
    cells = torch.randn(length, length)
    cells[length // 2, 0] = math.nan
    cells[0, -1] = math.inf  # above the diagonal: seen only where nothing is masked
    pool = max_pool(cells, bins, causal, magnitude)
    edges = [int(edge) for edge in pool.edges]
    assert edges[0] == 0 and edges[-1] == length and len(edges) - 1 == min(bins, length)
    assert set(np.diff(edges)) <= {length // min(bins, length), -(-length // min(bins, length))}
    values, masked = pool_by_loop(cells.numpy(), edges, causal, magnitude)
    np.testing.assert_array_equal(pool.values, values.astype(np.float32))
    np.testing.assert_array_equal(pool.masked, masked)
    assert pool.factor == pytest.approx(length / min(bins, length))


def test_max_pool_keeps_a_single_hot_cell() -> None:
    cells = np.zeros((1000, 1000), np.float32)
    cells[777, 333] = 0.9
    assert max_pool(cells, 50).values.max() == np.float32(0.9)
    cells[777, 333] = -0.9
    assert max_pool(cells, 50, magnitude=True).values.min() == np.float32(-0.9)


def test_max_pool_of_a_rectangular_map_pools_each_axis_by_itself() -> None:
    cells = torch.randn(7, 12).numpy()
    pool = max_pool(cells, 5, magnitude=True)
    rows, columns = ([int(edge) for edge in edges] for edges in (pool.edges, pool.column_edges))
    assert (len(rows), len(columns), rows[-1], columns[-1]) == (6, 6, 7, 12)
    for a, b in np.ndindex(5, 5):
        block = cells[rows[a] : rows[a + 1], columns[b] : columns[b + 1]].ravel()
        assert pool.values[a, b] == max(block, key=abs)


@pytest.mark.parametrize("shape", [(2, 3), (0, 0), (4,)])
def test_max_pool_refuses_what_is_empty_flat_or_causal_and_not_square(shape: tuple[int, ...]) -> None:
    with pytest.raises((ValueError, TypeError)):
        max_pool(np.zeros(shape, np.float32), 4, causal=True)
    with pytest.raises(ValueError, match="bins"):
        max_pool(np.zeros((3, 3), np.float32), 0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("score", ["euclidean", "l2", "riemannian"])
def test_one_head_is_the_double_loop(score: str, causal: bool) -> None:
    trace = random_trace(9, causal=causal)
    for layer, head in ((0, 0), (2, 1)):
        cells = head_map(trace.layers[layer], head, score).numpy()
        np.testing.assert_allclose(cells, attention_by_loop(trace, layer, head, score), atol=1e-12)


def test_tiles_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = random_trace(11)
    whole = head_map(trace.layers[0], 1, "riemannian")
    monkeypatch.setattr(pooling, "TILE", 4)
    torch.testing.assert_close(head_map(trace.layers[0], 1, "riemannian"), whole, rtol=0, atol=1e-14)


def test_alpha_replaces_the_models_own() -> None:
    trace = random_trace(6, alpha=1.0)
    layer = trace.layers[0]
    euclidean, own = head_map(layer, 0, "euclidean"), head_map(layer, 0, "blended")
    torch.testing.assert_close(head_map(layer, 0, "blended", alpha=0.0), euclidean)
    assert (own - euclidean).abs().max() > 0.01


@pytest.mark.parametrize("causal", [False, True])
def test_mean_and_rollout_are_the_double_loop(causal: bool) -> None:
    trace = random_trace(6, layers=3, heads=3, causal=causal)
    length, heads = 6, 3
    total = np.eye(length)
    for layer in range(3):
        mean = sum(attention_by_loop(trace, layer, head, "riemannian") for head in range(heads)) / heads
        np.testing.assert_allclose(mean_over_heads(trace.layers[layer], "riemannian").numpy(), mean, atol=1e-12)
        mixed = 0.5 * mean + 0.5 * np.eye(length)
        rows = [sum(mixed[i, j] for j in range(length)) for i in range(length)]
        step = np.array([[mixed[i, j] / rows[i] for j in range(length)] for i in range(length)])
        total = np.array([[sum(step[i, m] * total[m, j] for m in range(length)) for j in range(length)]
                          for i in range(length)])  # fmt: skip
        np.testing.assert_allclose(rollout(trace, "riemannian", layer).numpy(), total, atol=1e-12)
    np.testing.assert_allclose(rollout(trace, "riemannian").numpy(), total, atol=1e-12)
    np.testing.assert_allclose(total.sum(1), 1, atol=1e-12)
    with pytest.raises(ValueError, match="layer 3"):
        rollout(trace, "riemannian", 3)


@pytest.mark.parametrize("view", ["head", "mean", "rollout"])
def test_shown_map_and_its_entropy(view: str) -> None:
    shown = one_map(random_trace(8), score="riemannian", layer=1, head=1, view=view)
    assert shown.cells.dtype == np.float32
    np.testing.assert_allclose(shown.cells.sum(1), 1, atol=1e-6)
    for row, entropy in zip(shown.cells, shown.entropy, strict=True):
        assert entropy == pytest.approx(-sum(p * math.log(p) for p in row.astype(float) if p > 0), abs=1e-6)
    with pytest.raises(ValueError, match="view"):
        one_map(random_trace(3), score="l2", layer=0, view="median")


def test_atlas_pools_every_head_and_its_difference() -> None:
    trace = random_trace(10, layers=2, heads=3)
    edges = [0, 2, 5, 7, 10]
    for layer in range(2):
        cells = all_heads(trace, layer=layer, score="l2", bins=4)
        difference = all_heads(trace, layer=layer, score="l2", other="riemannian", bins=4)
        for head in range(3):
            left, right = (attention_by_loop(trace, layer, head, score) for score in ("l2", "riemannian"))
            np.testing.assert_allclose(cells[head], pool_by_loop(left, edges, True, False)[0], atol=1e-6)
            expected = pool_by_loop(right - left, edges, True, True)[0]
            np.testing.assert_allclose(np.abs(difference[head]), np.abs(expected), atol=1e-6)
            # The second row has two cells, +x and -x: in the first bin the sign is a tie, decided by rounding.
            np.testing.assert_allclose(difference[head, 1:], expected[1:], atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_terms_rebuild_the_attention(causal: bool) -> None:
    trace = random_trace(9, causal=causal)
    maps = term_maps(trace, layer=1, head=0, bins=9)
    assert list(maps) == [name for name in TERMS if name != "query_norm"]
    for cells in maps.values():
        np.testing.assert_allclose(np.nanmean(cells, axis=1), 0, atol=1e-5)
    logits = np.nan_to_num(sum(maps.values()), nan=-np.inf)
    weights = np.exp(logits - logits.max(1, keepdims=True))
    attention = attention_by_loop(trace, 1, 0, "riemannian")
    np.testing.assert_allclose(weights / weights.sum(1, keepdims=True), attention, atol=1e-5)


# --- packed and drawn ------------------------------------------------------------------------------------------------


def panels(length: int = 12, causal: bool = True, **options: object) -> MapPanels:
    trace = random_trace(length, causal=causal, dtype=torch.float32)
    left, right = (one_map(trace, score=score, layer=0, head=1) for score in ("euclidean", "riemannian"))
    return MapPanels(
        left.cells, right.cells, (SCORES["euclidean"].title, SCORES["riemannian"].title), trace.tokens, causal,
        (left.entropy, right.entropy), **options,
    )  # type: ignore[arg-type] # fmt: skip


def opened(message: bytes) -> tuple[dict, bytes]:
    size = struct.unpack("<I", message[:4])[0]
    return json.loads(message[4 : 4 + size]), message[4 + size :]


def decoded(message: bytes) -> tuple[dict, list[np.ndarray]]:
    """What ``decode`` in attention_maps.js makes of a message, cell by cell: NaN not finite, infinity masked."""
    header, rest = opened(message)
    length, causal = len(header["tokens"]), header["causal"]
    codes = zlib.decompress(rest[8 * length if header["exact"] is not None else 0 :])
    count = length * (length + 1) // 2 if causal else length * length
    assert len(codes) == 4 * count, "only cells that may be attended to are sent"
    maps = []
    for side, peak in enumerate(header["peaks"]):
        cells, at = np.full((length, length), np.inf), 2 * count * side
        for i in range(length):
            for j in range(i + 1 if causal else length):
                code = 256 * codes[at] + codes[at + count]
                cells[i, j] = (
                    math.nan if code == 65535 else math.inf if code == 65534 else (code / header["steps"]) ** 2 * peak
                )
                at += 1
        maps.append(cells)
    return header, maps


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 2, 17])
def test_message_holds_the_maps(length: int, causal: bool) -> None:
    shown = panels(length, causal)
    header, maps = decoded(attention_maps.pack(shown))
    for cells, source, peak in zip(maps, (shown.left, shown.right), header["peaks"], strict=True):
        np.testing.assert_array_equal(np.isinf(cells), ~shown.allowed)
        error = np.abs(cells - source)[shown.allowed]
        assert (error <= 1.01 * np.sqrt(source[shown.allowed] * peak) / 65532 + 1e-9).all()
        assert error.max() <= 1.01 * peak / 65532
    assert header["not_finite"] == 0 and header["tokens"] == list(shown.tokens)


def test_the_selected_row_is_exact() -> None:
    shown = panels(selected=5)
    header, rest = opened(attention_maps.pack(shown))
    rows = np.frombuffer(rest[: 8 * 12], "<f4").reshape(2, 12)
    assert header["exact"] == header["selected"] == 5
    np.testing.assert_array_equal(rows, [shown.left[5], shown.right[5]])


def test_not_finite_cells_are_counted_and_kept() -> None:
    shown = panels()
    shown.left[4, 2], shown.right[9, 1], shown.right[1, 9] = math.nan, math.inf, math.nan  # the last one is masked
    header, maps = decoded(attention_maps.pack(shown))
    assert header["not_finite"] == 2 and math.isnan(maps[0][4, 2]) and math.isnan(maps[1][9, 1])
    assert 0 < header["ceiling"] <= 1


def test_a_map_of_zeros_does_not_divide_by_zero() -> None:
    zeros = np.zeros((3, 3), np.float32)
    shown = MapPanels(zeros, zeros, ("a", "b"), ("x", "y", "z"), True, (np.zeros(3), np.full(3, np.nan)))
    header, maps = decoded(attention_maps.pack(shown))
    assert maps[0][2, 1] == 0 and header["ceiling"] == 1 and header["entropy"][1] == [None] * 3


def test_sizes_of_messages() -> None:
    """Uniform noise compresses worst: a bound for every real map."""
    noise = np.random.default_rng(0).random((1024, 1024), np.float32)
    tokens, entropy = tuple("abcd" * 256), np.linspace(0, 7, 1024)
    shown = MapPanels(noise, noise[::-1], ("a", "b"), tokens, True, (entropy, entropy))
    assert len(attention_maps.pack(shown)) < 1.5e6
    assert len(attention_maps.pack(replace(shown, causal=False))) < 3.1e6


@pytest.mark.parametrize("causal", [False, True])
def test_component_and_twin_draw_the_same_numbers(causal: bool) -> None:
    shown = panels(causal=causal, expected=((5, 2),), selected=3)
    _, (left, right) = decoded(attention_maps.pack(shown))
    heat = [trace for trace in attention_figure(shown).data if trace.type == "heatmap"]
    difference = np.where(shown.allowed, right, 0) - np.where(shown.allowed, left, 0)
    for drawn, cells in zip(heat, (left, right, difference), strict=True):
        np.testing.assert_array_equal(np.isnan(drawn.z), ~shown.allowed)
        np.testing.assert_allclose(drawn.z[shown.allowed], cells[shown.allowed], atol=4e-5)
        np.testing.assert_array_equal(drawn.x, np.arange(13) - 0.5)
        assert drawn.z.dtype == np.float32


def test_twin_is_bounded_and_escapes_tokens() -> None:
    length = 600
    cells = np.eye(length, dtype=np.float32)
    tokens = ("<b>bold</b>", "</script>", "&amp;") * 200
    entropy = np.zeros(length)
    shown = MapPanels(
        cells, cells, ("<i>a</i>", "b"), tokens, True, (entropy, entropy), heading="<b>x", note="what-if <u>"
    )
    figure = attention_figure(shown)
    assert figure.data[0].z.shape == (512, 512)
    text = json.dumps([list(figure.layout.xaxis.ticktext), figure.layout.title.text, figure.layout.annotations[0].text])
    assert "<" not in text and "what-if" in text
    values = figure.layout.xaxis.tickvals
    assert len(set(values)) == len(values) == len(figure.layout.xaxis.ticktext)  # repeated tokens do not merge


@pytest.mark.parametrize("colour", list(COLOURS))
def test_bent_scale_is_the_inverse_of_shade(colour: str) -> None:
    for diverging, name in ((False, theme.SEQUENTIAL), (True, theme.DIVERGING)):
        scale = bent(name, colour, diverging)
        places = np.array([place for place, _ in scale])
        assert places[0] == 0 and places[-1] == 1 and (np.diff(places) > 0).all()
        values = 2 * places - 1 if diverging else places
        np.testing.assert_allclose(shade(values, 1.0, colour, diverging), np.linspace(0, 1, len(scale)), atol=1e-9)
    assert shade(np.array([-3.0, 0.0, 3.0]), 1.0, colour, True).tolist() == [0, 0.5, 1]


def test_table_lists_every_allowed_pair() -> None:
    shown = panels(6)
    frame = table(shown)
    assert len(frame) == 21 and (frame["key"] <= frame["query"]).all()
    row = frame[(frame["query"] == 4) & (frame["key"] == 1)].iloc[0]
    assert row["Riemannian"] == shown.right[4, 1] and row["difference"] == shown.right[4, 1] - shown.left[4, 1]
    assert len(table(panels(6, causal=False))) == 36


def test_wrong_panels_are_refused() -> None:
    shown = panels(4)
    with pytest.raises(ValueError, match="shape"):
        replace(shown, tokens=("a",))
    with pytest.raises(ValueError, match="colour"):
        replace(shown, colour="jet")


def test_entropy_figure_draws_its_bound() -> None:
    shown = panels(5)
    lines = entropy_figure(shown).data
    np.testing.assert_allclose(lines[2].y, [math.log(n) for n in range(1, 6)])
    for line, values in zip(lines, shown.entropy, strict=False):
        assert (np.asarray(line.y) <= np.asarray(lines[2].y) + 1e-6).all()
        np.testing.assert_array_equal(line.y, values)


def small_atlas(diverging: bool) -> HeadAtlas:
    trace = random_trace(9, layers=3, heads=2, dtype=torch.float32)
    other = "riemannian" if diverging else None
    cells = np.stack([all_heads(trace, layer=i, score="euclidean", other=other, bins=4) for i in range(3)])
    cells[1, 1, 3, 0] = math.nan
    readings = np.arange(6.0).reshape(3, 2)
    return HeadAtlas(cells, True, readings, "TV", (2, 1), "all <b>heads", "unit", diverging=diverging)


@pytest.mark.parametrize("diverging", [False, True])
def test_atlas_component_and_twin_draw_the_same_numbers(diverging: bool) -> None:
    atlas = small_atlas(diverging)
    header, body = opened(head_atlas.pack(atlas))
    codes = np.frombuffer(zlib.decompress(body), np.uint8).reshape(3, 2, 4, 4)
    z = np.asarray(atlas_figure(atlas).data[0].z)
    assert (header["layers"], header["heads"], header["cells"]) == (["0", "1", "2"], 2, 4)
    assert header["readings"][2] == [4, 5] and header["chosen"] == [2, 1]
    for layer in range(3):
        for head in range(2):
            tile = z[head * 5 : head * 5 + 4, layer * 5 : layer * 5 + 4]
            for row in range(4):
                for column in range(row + 1):
                    code, value = codes[layer, head, row, column], tile[row, column]
                    if (layer, head, row, column) == (1, 1, 3, 0):
                        assert code == 255 and math.isnan(value)
                        continue
                    t = code / 254
                    side = 2 * t - 1 if diverging else t
                    assert math.copysign(side * side, side) * header["ceiling"] == pytest.approx(value, abs=0.01)
                assert np.isnan(tile[row, row + 1 :]).all()


def test_ranking_puts_the_largest_first_and_nan_last() -> None:
    frame = ranked({"tv": np.array([[0.1, 0.4], [math.nan, 0.2]]), "more": np.array([[1, 2], [3, 4]])})
    assert frame[["layer", "head"]].values.tolist() == [[0, 1], [1, 1], [0, 0], [1, 0]]
    assert frame["more"].tolist() == [2, 4, 1, 3]


def test_shares_and_terms_are_drawn_as_they_are() -> None:
    names = tuple(term.title for term in TERMS.values())
    values = np.array([0.0, 0.7, -0.1, 0.3, 0.1, np.nan])
    bars = shares_figure({"A": values, "B": values}, names, "x").data
    np.testing.assert_array_equal(bars[1].x, values)
    assert bars[0].marker.pattern.shape != bars[1].marker.pattern.shape  # told apart without colour
    maps = term_maps(random_trace(5, dtype=torch.float32), layer=0, head=0, bins=5)
    figure = terms_figure(maps, ("a", "b", "a", "<b>", "c"), "x")
    for drawn, cells in zip(figure.data, maps.values(), strict=True):
        np.testing.assert_array_equal(drawn.z, cells)
    assert figure.layout.coloraxis.cmin == -figure.layout.coloraxis.cmax < 0


# --- maps of other models: other tokens as keys, masks, layers and heads that are not there -------------------------


def cross_panels(rows: int = 5, keys: int = 8, **options: object) -> MapPanels:
    rng = np.random.default_rng(3)
    left, right = (rng.dirichlet(np.ones(keys), rows).astype(np.float32) for _ in range(2))
    entropy = tuple(-(cells * np.log(cells)).sum(1) for cells in (left, right))
    tokens, columns = tuple(f"q{i}" for i in range(rows)), tuple(f"k{j}" for j in range(keys))
    return MapPanels(left, right, ("a", "b"), tokens, False, entropy, key_tokens=columns, **options)  # type: ignore[arg-type]


def test_a_rectangular_message_and_twin_hold_every_cell() -> None:
    shown = cross_panels(selected=2)
    header, rest = opened(attention_maps.pack(shown))
    assert (len(header["tokens"]), header["keys"]) == (5, list(shown.key_tokens)) and header["key_numbers"][-1] == 7
    np.testing.assert_array_equal(np.frombuffer(rest[: 8 * 8], "<f4").reshape(2, 8), [shown.left[2], shown.right[2]])
    codes = np.frombuffer(zlib.decompress(rest[8 * 8 :]), np.uint8).reshape(2, 2, 40).astype(int)
    for (high, low), peak, source in zip(codes, header["peaks"], (shown.left, shown.right), strict=True):
        cells = ((256 * high + low).reshape(5, 8) / 65532) ** 2 * peak
        np.testing.assert_allclose(cells, source, atol=2e-5)
    heat = [trace for trace in attention_figure(shown).data if trace.type == "heatmap"]
    for drawn, cells in zip(heat, (shown.left, shown.right, shown.right - shown.left), strict=True):
        np.testing.assert_allclose(drawn.z, cells, atol=1e-7)
        assert len(drawn.x) == 9 and len(drawn.y) == 6
    frame = table(shown)
    row = frame[(frame["query_token"] == "q4") & (frame["key_token"] == "k7")].iloc[0]
    assert len(frame) == 40 and row["a"] == shown.left[4, 7] and (row["query"], row["key"]) == (4, 7)
    with pytest.raises(ValueError, match="square"):
        replace(shown, causal=True)


def test_what_a_mask_hides_is_not_drawn_as_zero() -> None:
    hidden = np.tri(12, k=-3, dtype=bool)  # a window of three
    shown = panels(hidden=hidden)
    _, maps = decoded(attention_maps.pack(shown))
    np.testing.assert_array_equal(np.isinf(maps[0]), hidden | ~np.tri(12, dtype=bool))
    heat = attention_figure(shown).data[0]
    np.testing.assert_array_equal(np.isnan(heat.z), np.isinf(maps[0]))
    assert len(table(shown)) == int((~np.isinf(maps[0])).sum())


def test_one_map_is_drawn_alone() -> None:
    shown = panels(single=True)
    assert [trace.type for trace in attention_figure(shown).data] == ["heatmap"]
    assert len(entropy_figure(shown).data) == 2 and "difference" not in table(shown)
    assert opened(attention_maps.pack(shown))[0]["single"]


def test_a_row_lies_on_the_patches_of_the_picture() -> None:
    tokens = ("[CLS]", *(f"patch {row},{column}" for row in range(2) for column in range(3)))
    cells = np.arange(49, dtype=np.float32).reshape(7, 7) / 49
    shown = MapPanels(cells, cells.T, ("a", "b"), tokens, False, (np.zeros(7), np.zeros(7)))
    drawn = patches_figure(shown, 4).data
    np.testing.assert_array_equal(drawn[0].z, [[cells[4, 1 + 3 * r + c] for c in range(3)] for r in range(2)])
    np.testing.assert_allclose(drawn[2].z, drawn[1].z - drawn[0].z)
    assert patch_grid(("a", "b")) is None and patch_grid(tokens[:-1]) is None
    with pytest.raises(ValueError, match="no patches"):
        patches_figure(panels(3), 0)


def test_an_atlas_of_a_hybrid_keeps_true_layer_numbers_and_empty_places() -> None:
    cells = np.full((2, 3, 2, 4), 0.5, np.float32)
    cells[1, 2] = np.nan
    atlas = HeadAtlas(cells, False, np.zeros((2, 3)), "TV", (5, 1), "title", "unit", layers=(2, 5), heads=(3, 2))
    header, body = opened(head_atlas.pack(atlas))
    assert header["layers"] == ["2", "5"] and header["counts"] == [3, 2] and header["chosen"] == [1, 1]
    assert (header["rows"], header["cells"]) == (2, 4) and len(zlib.decompress(body)) == cells.size
    figure = atlas_figure(atlas)
    z = np.asarray(figure.data[0].z)
    assert z.shape == (3 * 3 - 1, 2 * 5 - 1) and np.isnan(z[6:, 5:]).all() and np.isfinite(z[6:8, :4]).all()
    assert list(figure.layout.xaxis.ticktext) == ["2", "5"]
    assert opened(head_atlas.pack(replace(atlas, chosen=(3, 0))))[0]["chosen"] == [-1, 0]


def test_masks_of_other_models_are_found_causal_or_named_hidden() -> None:
    trace = random_trace(6, rank=0, causal=False)
    i, j = np.indices((6, 6))
    for seen, causal, named in (((j <= i), True, False), ((j <= i) & (j > i - 2), True, True), ((j < 4), False, True)):
        mask = torch.where(torch.tensor(seen), 0.0, -math.inf).double()
        layers = tuple(replace(layer, factors=replace(layer.factors, mask=mask)) for layer in trace.layers)
        masked = replace(trace, layers=layers)
        assert is_causal(masked, 0) == causal
        shown = one_map(masked, score="euclidean", layer=0)
        assert (shown.hidden is not None) == named
        if shown.hidden is not None:
            np.testing.assert_array_equal(shown.hidden | (causal & (j > i)), ~seen)
        assert not shown.cells[~seen].any() and shown.lost.max() < 1e-6


def test_matched_entropies_are_equal_and_their_variation_is_the_loop() -> None:
    trace = random_trace(7, heads=2)
    left = one_map(trace, score="euclidean", layer=1, head=1, match="riemannian")
    right = one_map(trace, score="riemannian", layer=1, head=1)
    assert left.entropy.mean() == pytest.approx(right.entropy.mean(), abs=1e-6)
    c, factors = left.multipliers[0], trace.layers[1].factors
    logits = c * (factors.q[1] @ factors.k[1].T).numpy() / math.sqrt(factors.q.shape[-1])
    logits[np.triu_indices(7, 1)] = -np.inf
    weights = np.exp(logits - logits.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    np.testing.assert_allclose(left.cells, weights, atol=1e-6)
    found = matched_variation(trace, layer=1, score_a="euclidean", score_b="riemannian")
    np.testing.assert_allclose(
        found[1], np.abs(weights - attention_by_loop(trace, 1, 1, "riemannian")).sum(1) / 2, atol=1e-9
    )
    mean = one_map(trace, score="euclidean", layer=1, view="mean", match="riemannian")
    assert mean.multipliers[0] <= c <= mean.multipliers[1]
    assert unmatched(trace.layers[0], "blended") and not unmatched(trace.layers[0], "euclidean")

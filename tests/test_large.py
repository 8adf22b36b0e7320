"""Maps of long texts: rows without the whole, one walk over two maps, parts over the route, and the bytes of it all."""

from __future__ import annotations

import json
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from starlette.applications import Starlette
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest

from app import attention_choice, attention_tiles, tiles, traces
from app.attention_tiles import Half, Pair
from app.components import attention_maps
from app.figures.map_figures import attention_figure
from app.figures.maps import MapPanels, table
from app.request import Request
from fbt_core.attention import tiles as parts
from fbt_core.attention.pooling import head_map, mean_over_heads, rollout
from fbt_core.attention.tiles import crop_pair, multipliers, pool_pair, rows_of
from fbt_core.attention.views import at_entropy, hidden_rows
from fbt_core.trace import Trace
from tests.traces import random_trace, with_factors

REQUEST = Request("demo:riemannian", "the old sailor near the ships sings")
LENGTH = 8
"""Tokens of its text."""


def bins_by_loop(
    cells: np.ndarray, seen: np.ndarray, factor: int, magnitude: bool, top: int = 0, left: int = 0
) -> np.ndarray:
    """The largest seen cell of every bin, by scalars."""
    high, wide = (math.ceil(size / factor) for size in cells.shape)
    result = np.zeros((high, wide), np.float32)
    for i in range(high):
        for j in range(wide):
            inside = [
                float(cells[r, c])
                for r in range(i * factor, min((i + 1) * factor, cells.shape[0]))
                for c in range(j * factor, min((j + 1) * factor, cells.shape[1])) if seen[r, c]
            ]  # fmt: skip
            if any(not math.isfinite(value) for value in inside):
                result[i, j] = math.nan
            elif inside:
                result[i, j] = max(inside, key=abs if magnitude else float)
    return result


@pytest.mark.parametrize("view", ["head", "mean"])
def test_rows_are_those_of_the_whole_map(view: str) -> None:
    trace = random_trace(11, dtype=torch.float32)
    whole = {
        "head": lambda: head_map(trace.layers[1], 1, "riemannian"),
        "mean": lambda: mean_over_heads(trace.layers[1], "riemannian"),
    }[view]().numpy()
    read = rows_of(trace, score="riemannian", layer=1, head=1, view=view)
    for rows in (slice(0, 11), slice(3, 4), slice(7, 11)):
        np.testing.assert_allclose(read(rows), whole[rows], atol=1e-6)
    with pytest.raises(ValueError, match="expected head or mean"):
        rows_of(trace, score="riemannian", layer=1, view="rollout")


def test_matched_rows_are_those_of_the_matched_map() -> None:
    trace = random_trace(11, dtype=torch.float32)
    asked = {"layer": 0, "head": 1, "view": "head", "score": "euclidean"}
    found = multipliers(trace, match="riemannian", **asked)
    moved, expected = at_entropy(trace.layers[0].select(1), "euclidean", "riemannian")
    np.testing.assert_allclose(found, expected.numpy())
    read = rows_of(trace, multiplied=found, **asked)
    np.testing.assert_allclose(read(slice(0, 11)), head_map(moved, 0, "euclidean").numpy(), atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "factor"), [(1, 1), (13, 1), (13, 4), (12, 3), (7, 9)])
def test_two_maps_are_pooled_in_one_walk(
    length: int, factor: int, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "TILE", 5)
    rng = np.random.default_rng(length)
    left, right = rng.dirichlet(np.ones(length), (2, length)).astype(np.float32)
    left, right = (np.tril(cells) if causal else cells for cells in (left, right))
    hidden = rng.random((length, length)) < 0.3
    if length > 4:
        left[4, 1] = math.nan
    asked: list[slice] = []

    def read(rows: slice) -> np.ndarray:
        asked.append(rows)
        return left[rows]

    found = pool_pair(read, right.__getitem__, (length, length), factor, causal, hidden.__getitem__)
    assert all(rows.stop - rows.start <= max(5, factor) for rows in asked), "never the whole map at once"
    seen = ~hidden & (np.tri(length, dtype=bool) if causal else True)
    for cells, source in ((found.left, left), (found.right, right)):
        np.testing.assert_array_equal(cells, bins_by_loop(source, seen, factor, magnitude=False))
    np.testing.assert_array_equal(found.difference, bins_by_loop(right - left, seen, factor, magnitude=True))
    assert found.not_finite == (length > 4 and int(seen[4, 1]))
    exact = right.astype(float)
    expected = -(exact * np.log(np.where(exact > 0, exact, 1))).sum(1)
    np.testing.assert_allclose(found.entropy[1], expected, atol=1e-12)
    np.testing.assert_allclose(found.lost[1], np.maximum(0, 1 - right.astype(float).sum(1)), atol=1e-12)


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_a_part_is_that_of_the_maps(factor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "TILE", 4)
    rng = np.random.default_rng(factor)
    left, right = rng.random((2, 17, 17), np.float32)
    rows, columns = slice(5, 16), slice(2, 9)
    found = crop_pair(left.__getitem__, right.__getitem__, rows, columns, factor, causal=True)
    seen = np.tri(17, dtype=bool)[rows, columns]
    for cells, source, magnitude in zip(found[:3], (left, right, right - left), (False, False, True), strict=True):
        np.testing.assert_array_equal(cells, bins_by_loop(source[rows, columns], seen, factor, magnitude))
    np.testing.assert_array_equal(found[3], bins_by_loop(seen.astype(float), np.ones_like(seen), factor, False) == 0)


def test_hidden_rows_are_those_of_the_mask() -> None:
    plain = random_trace(6, dtype=torch.float32)
    mask = torch.zeros(2, 6, 6).masked_fill(
        torch.ones(6, 6).tril(-3).bool() | torch.ones(6, 6).triu(1).bool(), -math.inf
    )
    found = hidden_rows(with_factors(plain, mask=mask), 0, 1, slice(2, 6))
    np.testing.assert_array_equal(found, mask[1, 2:6].isinf().numpy())
    assert hidden_rows(plain, 0, 1, slice(0, 6)) is None


# --- messages ------------------------------------------------------------------------------------------------------


def noise(size: int, tokens: int, causal: bool = True) -> MapPanels:
    """Uniform noise compresses worst: a bound for every real map."""
    left, right = np.random.default_rng(0).random((2, size, size), np.float32)
    labels, entropy = tuple(f"token{index % 97}" for index in range(tokens)), np.linspace(0, 7, tokens)
    if size == tokens:
        return MapPanels(left, right, ("a", "b"), labels, causal, (entropy, entropy), selected=5)
    pooled = parts.PooledPair(left, right, right - left, -(-tokens // size), (entropy,) * 2, (entropy,) * 2, 0)
    exact = np.zeros((2, tokens), np.float32)
    return MapPanels(left, right, ("a", "b"), labels, causal, (entropy,) * 2, pooled=pooled, exact=exact, selected=5)


def test_messages_are_bounded_whatever_the_maps() -> None:
    assert len(attention_maps.pack(noise(1024, 1024))) < 1.5e6
    assert len(attention_maps.pack(noise(512, 4096))) < 1.2e6
    part = (*np.random.default_rng(1).random((3, 640, 640), np.float32), np.zeros((640, 640), bool))
    assert len(attention_maps.pack_part(part, 1)) < 1.5e6


def opened(message: bytes) -> tuple[dict, bytes]:
    size = struct.unpack("<I", message[:4])[0]
    return json.loads(message[4 : 4 + size]), message[4 + size :]


def decoded(header: dict, body: bytes, count: int) -> list[np.ndarray]:
    """The maps of a message, of ``count`` cells each: by the description in ``attention_maps``, not by its code."""
    codes = np.frombuffer(zlib.decompress(body), np.uint8).reshape(len(header["peaks"]), 2, count).astype(int)
    maps = []
    for side, ((high, low), peak) in enumerate(zip(codes, header["peaks"], strict=True)):
        code, steps = 256 * high + low, header["steps"]
        root = 2 * code / steps - 1 if side == 2 else code / steps
        maps.append(np.where(code == 65534, np.inf, np.where(code == 65535, np.nan, root * np.abs(root) * peak)))
    return maps


def test_a_pooled_message_holds_three_maps_to_its_steps() -> None:
    shown = noise(32, 256)
    header, rest = opened(attention_maps.pack(shown))
    assert (header["factor"], len(header["tokens"]), header["exact"]) == (8, 256, 5)
    places = np.tri(32, dtype=bool)
    maps = decoded(header, rest[8 * 256 :], int(places.sum()))
    for cells, source in zip(maps, (shown.left, shown.right, shown.difference), strict=True):
        np.testing.assert_allclose(cells, source[places], atol=2.1 / header["steps"])


def test_a_pooled_twin_and_table_stand_at_their_tokens() -> None:
    shown = noise(4, 30)  # bins of 7 tokens would be 28: of 8, the last one is short
    heat = attention_figure(shown).data[0]
    np.testing.assert_array_equal(heat.x, [-0.5, 7.5, 15.5, 23.5, 29.5])
    rows = table(shown)
    assert len(rows) == 10
    assert rows.iloc[-1][["query", "last_query", "key", "last_key"]].tolist() == [24, 29, 24, 29]
    assert rows.iloc[-1]["difference"] == shown.difference[3, 3]


# --- the page and the route ----------------------------------------------------------------------------------------


@pytest.fixture
def pair() -> Pair:
    return Pair(*(Half(REQUEST, score, 1, 2, "head") for score in ("euclidean", "riemannian")))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr(tiles, "DESK", tiles.Desk())
    monkeypatch.setattr(tiles, "SERVED", False)
    return TestClient(Starlette(routes=[tiles.route()]))


def test_the_route_gives_exact_parts_and_rows(client: TestClient, pair: Pair) -> None:
    trace = traces.trace(REQUEST)
    maps = [head_map(trace.layers[1], 2, score).numpy() for score in ("euclidean", "riemannian")]
    address = f"/tiles/{tiles.DESK.issue('me', pair)}"
    row = np.frombuffer(client.get(f"{address}?row=5").content, "<f4").reshape(2, LENGTH)
    np.testing.assert_allclose(row, [cells[5] for cells in maps], atol=1e-6)
    header, body = opened(client.get(f"{address}?rows=2:7&columns=1:5&factor=1").content)
    assert (header["rows"], header["columns"]) == (5, 4)
    for cells, source in zip(decoded(header, body, 20), maps, strict=True):
        future = np.triu(np.ones((LENGTH, LENGTH), bool), 1)[2:7, 1:5]
        np.testing.assert_allclose(
            cells.reshape(5, 4), np.where(future, np.inf, source[2:7, 1:5]), atol=2 / header["steps"]
        )


def test_a_rollout_is_computed_once_for_all_its_rows_and_parts(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rollout(traces.trace(REQUEST), "blended", 1, 0.3).numpy()
    asked: list[str] = []

    def counted(trace: Trace, score: str, layer: int, alpha: float | None) -> torch.Tensor:
        asked.append(score)
        return rollout(trace, score, layer, alpha)

    monkeypatch.setattr(attention_tiles, "rollout", counted)
    pair = Pair(*(Half(REQUEST, "blended", 1, 0, "rollout", alpha=0.3),) * 2)
    address = f"/tiles/{tiles.DESK.issue('me', pair)}"
    for index in (5, 6):
        row = np.frombuffer(client.get(f"{address}?row={index}").content, "<f4").reshape(2, LENGTH)
        np.testing.assert_allclose(row, whole[[index, index]], atol=1e-6)
        np.testing.assert_array_equal(attention_tiles.selected_row(pair, index), row)
    assert client.get(f"{address}?rows=2:7&columns=1:5").status_code == 200
    assert asked == ["blended"]


@pytest.mark.parametrize(
    "query", ["", "?rows=0:4", "?rows=3:3&columns=0:2", "?rows=0:9&columns=0:4", "?row=8", "?row=-1", "?row=1e3",
              "?rows=0:4&columns=0:4&factor=0", "?rows=0:4&columns=0:4&factor=x", "?rows=0:2000&columns=0:4"],
)  # fmt: skip
def test_the_route_refuses_what_is_not_there(client: TestClient, pair: Pair, query: str) -> None:
    answer = client.get(f"/tiles/{tiles.DESK.issue('me', pair)}{query}")
    assert answer.status_code == 400 and answer.headers["content-type"].startswith("text/plain")


def test_no_answer_is_taken_for_a_page_and_a_failed_part_is_logged(
    client: TestClient, pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"/tiles/{tiles.DESK.issue('me', pair)}"
    answers = [client.get(place) for place in (f"{address}?row=1", f"{address}?row=x", "/tiles/guess?row=1")]
    assert "a part failed" not in caplog.text
    monkeypatch.setattr(attention_tiles, "row", lambda *_: 1 / 0)
    answers.append(client.get(f"{address}?row=1"))
    assert "a part failed" in caplog.text and "ZeroDivisionError" in caplog.text
    assert [answer.status_code for answer in answers] == [200, 400, 404, 500]
    assert all(answer.headers["x-content-type-options"] == "nosniff" for answer in answers)


def test_tokens_are_secret_bounded_and_leave_with_their_session(
    client: TestClient, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tiles.DESK.issue("me", pair)
    assert token == tiles.DESK.issue("me", pair) != tiles.DESK.issue("you", pair)
    assert client.get("/tiles/guess?row=1").status_code == 404
    tiles.DESK.leave("me")
    assert client.get(f"/tiles/{token}?row=1").status_code == 404
    monkeypatch.setattr(tiles, "HELD", 2)
    pairs = [Pair(*(Half(REQUEST, "l2", layer, 0, "head"),) * 2) for layer in range(3)]
    yours = tiles.DESK.issue("you", pair)
    mine = [tiles.DESK.issue("me", one) for one in pairs[:2]]
    assert tiles.DESK.find(mine[0]) == pairs[0], "used: the other is now the older one"
    mine.append(tiles.DESK.issue("me", pairs[2]))
    assert [tiles.DESK.find(token) for token in (*mine, yours)] == [pairs[0], None, pairs[2], pair]
    assert len(tiles.DESK.tokens) == len(tiles.DESK.issued) == 3


def test_a_long_text_is_pooled_on_the_page(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short one, held for a long one: the first look has bins, exact entropies, and the selected row in float32."""
    monkeypatch.setattr(attention_choice, "WHOLE", 4)
    monkeypatch.setattr(attention_tiles, "BINS", 4)
    page = AppTest.from_file(str(root / "streamlit_app.py"), default_timeout=120)
    page.query_params.update({"layer": "1", "token": "5"})
    page.run()
    page.switch_page("pages/attention.py").run()
    assert not page.exception and not page.error
    message = next(
        element.proto.bytes for element in page.get("bidi_component") if b"entropy_scale" in element.proto.bytes
    )
    header, rest = opened(message)
    assert (header["factor"], len(header["tokens"]), header["selected"]) == (2, LENGTH, 5)
    trace = traces.trace(REQUEST)
    whole = [head_map(trace.layers[1], 0, score).numpy() for score in ("euclidean", "riemannian")]
    exact = np.frombuffer(rest[: 8 * LENGTH], "<f4").reshape(2, LENGTH)
    np.testing.assert_allclose(exact, [cells[5] for cells in whole], atol=1e-6)
    cells = decoded(header, rest[8 * LENGTH :], 10)[1]
    expected = bins_by_loop(whole[1], np.tri(LENGTH, dtype=bool), 2, magnitude=False)[np.tri(4, dtype=bool)]
    np.testing.assert_allclose(cells, expected, atol=2 / header["steps"])

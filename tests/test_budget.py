"""What the server keeps: bytes counted once, the longest unused freed, and what a checkpoint left behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest
import torch

from app import answers, leases, loading, traces
from app.budget import LARGE, SMALL, Budget, _parts, blocks
from app.kept import BUDGET, most
from app.request import Request, references
from fbt_core.checkpoints import memory
from fbt_core.checkpoints.faults import CheckpointError
from fbt_core.checkpoints.memory import available_bytes, check_fits, give_back, limit

REQUEST = Request("demo:riemannian", "the old sailor near the ships sings")


@pytest.fixture
def emptied() -> Iterator[Budget]:
    """The app's budget with nothing in it."""
    BUDGET.clear()
    yield BUDGET
    BUDGET.clear()


def weight(value: object) -> int:
    return sum(blocks(value).values())


# ---- bytes ----


@dataclass
class Pair:
    left: object
    right: object = None

    @cached_property
    def late(self) -> np.ndarray:
        """Made when first asked for."""
        return np.zeros(1000)


def test_every_array_is_found_and_counted_once() -> None:
    tensor, array = torch.zeros(100, 10), np.zeros((50, 4))
    assert weight(tensor) == 4000 and weight(tensor[3:5].T) == 4000  # a view keeps all of it alive
    assert weight(array[::2]) == 1600
    nested = {"a": [Pair(tensor, (array, array[1]))], "b": {"c": tensor.view(-1)}}
    assert weight(nested) == 5600
    assert weight("x" * 10_000) >= 10_000 and weight(b"short") == 0


def test_a_module_weighs_its_parameters_buffers_and_gradients() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.BatchNorm1d(20))
    numbers = sum(tensor.numel() * tensor.element_size() for tensor in module.state_dict().values())
    assert weight(module) == numbers
    module[0].weight.grad = torch.zeros(20, 10)
    assert weight(module) == numbers + 800


def test_what_another_thread_adds_to_meanwhile_is_counted_as_it_was() -> None:
    """A page asks a trace for what it keeps of itself while the worker counts the same trace's bytes."""
    pair, grows = Pair(torch.zeros(10)), {"first": torch.zeros(20)}
    for holder, into in ((pair, pair.__dict__), (grows, grows)):
        parts = _parts(holder)
        found = [next(parts)]
        into["new"] = torch.zeros(1000)
        assert all(one is None or one.numel() < 1000 for one in (*found, *parts))


def test_cycles_and_meta_tensors_have_an_end() -> None:
    loop: list[object] = [torch.zeros(10, device="meta"), torch.ones(2)]
    loop.append(loop)
    assert weight(loop) == 8


def test_the_memory_of_a_trace_is_that_of_its_tensors() -> None:
    trace = traces.trace(REQUEST)
    factors = [getattr(layer.factors, name) for layer in trace.layers for name in ("q", "k", "v")]
    storages = [tensor.untyped_storage() for tensor in (trace.normed, trace.logits, *factors)]
    assert {one.data_ptr(): one.nbytes() for one in storages}.items() <= blocks(trace).items()


# ---- the budget ----


def kept(budget: Budget) -> list[object]:
    return list(budget.entries)


def test_the_longest_unused_goes_first() -> None:
    budget = Budget(3 * (4000 + SMALL))
    for name in "abc":
        budget.put(name, torch.zeros(1000))
    assert budget.get("a") is not None  # used
    budget.put("d", torch.zeros(1000))
    assert kept(budget) == ["c", "a", "d"] and budget.get("b", "gone") == "gone"
    assert budget.held == 3 * (4000 + SMALL)


def test_what_entries_share_is_counted_once_and_freed_with_the_last() -> None:
    budget, shared = Budget(1 << 20), torch.zeros(1000)
    budget.put("one", Pair(shared, torch.zeros(10)))
    budget.put("two", Pair(shared))
    assert budget.held == 4000 + 40 + 2 * SMALL
    budget.release(lambda key: key == "one")
    assert budget.held == 4000 + SMALL
    budget.clear()
    assert budget.held == 0 and not budget.holders


def test_the_last_entry_stays_however_large_and_nothing_else_does() -> None:
    budget = Budget(1000)
    budget.put("small", torch.zeros(10))
    budget.put("large", torch.zeros(10_000))
    assert kept(budget) == ["large"]
    budget.put("small", torch.zeros(10))
    assert kept(budget) == ["small"]


def test_what_grows_is_weighed_again() -> None:
    budget, pair = Budget(1 << 20), Pair(torch.zeros(100))
    budget.put("pair", pair)
    before = budget.held
    assert pair.late.nbytes == 8000 and budget.held == before
    budget.weigh("pair")
    assert budget.held == before + 8000
    budget.weigh("nothing there")
    budget.put("pair", Pair(None))
    assert budget.held == SMALL


def test_room_is_made_before_a_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget(1 << 20)
    for name in "abc":
        budget.put(name, torch.zeros(1000))
    monkeypatch.setattr(memory, "available_bytes", lambda: 10_000 - budget.held)
    monkeypatch.setattr(memory, "RELIEF", [budget.make_room])
    check_fits(2000)
    assert kept(budget) == ["c"]  # 10,000 - 3 x 4,512 leaves less than nothing; two have to go
    check_fits(9_999)
    assert kept(budget) == []
    with pytest.raises(CheckpointError, match="of memory"):
        check_fits(20_000)


def test_the_cap_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIBERSCOPE_MEMORY", "3M")
    assert limit() == 3 << 20 and available_bytes() == 3 << 20
    monkeypatch.delenv("FIBERSCOPE_MEMORY")
    assert limit() == 0


# ---- what the app keeps in it ----


def test_a_small_budget_gives_the_same_answers(emptied: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("effective_rank", "entropy")
    expected = [answers.reading(REQUEST, name).values for name in names]
    emptied.clear()
    monkeypatch.setattr(emptied, "most", 1)
    for _ in range(2):
        for name, values in zip(names, expected, strict=True):
            assert np.array_equal(answers.reading(REQUEST, name).values, values)
            assert len(emptied.entries) == 1


def test_a_reading_is_computed_once_and_cannot_be_written(emptied: Budget) -> None:
    found = answers.reading(REQUEST, "effective_rank")
    assert answers.reading(REQUEST, "effective_rank") is found
    with pytest.raises(ValueError, match="read-only"):
        found.values[0] = 1.0


def test_a_model_shares_no_byte_twice_with_its_checkpoint(emptied: Budget) -> None:
    model = loading.model(REQUEST.reference, "cpu")
    both = blocks(model) | blocks(loading.checkpoint(REQUEST.reference))
    assert emptied.held == sum(both.values()) + 2 * SMALL


def test_what_is_released_is_of_that_checkpoint_alone(emptied: Budget) -> None:
    other = replace(REQUEST, reference="demo:l2")
    mine = answers.reading(REQUEST, "effective_rank")
    theirs = answers.reading(other, "effective_rank")
    assert set(references(("a", REQUEST, (other, 3)))) >= {"demo:riemannian", "demo:l2"}
    loading.release("demo:riemannian")
    assert answers.reading(other, "effective_rank") is theirs
    assert answers.reading(REQUEST, "effective_rank") is not mine
    emptied.clear()
    traces.trace(REQUEST)
    loading.release("demo:riemannian")
    assert not emptied.entries  # encoding, checkpoint, model, trace


def test_a_metric_goes_on_at_the_layer_where_it_was_stopped(emptied: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request("demo:euclidean", "the old sailor", source="local", rank=2)
    asked: list[int] = []

    def stopping(done: float, words: str) -> None:
        asked.append(round(done * 100))
        if len(asked) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(traces, "tell", stopping)
    with pytest.raises(KeyboardInterrupt):
        traces.trace(request)
    (layers,) = [value for key, (value, _) in emptied.entries.items() if key[0] == "layers"]
    first = layers[0]
    found = traces.trace(request)
    assert first is layers[0] and not any(key[0] == "layers" for key in emptied.entries)
    emptied.clear()
    again = traces.trace(request)
    assert all(torch.equal(one.given.U, two.given.U) for one, two in zip(found.layers, again.layers, strict=True))


def test_when_everybody_has_left_everything_goes(emptied: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "OPEN", {})
    monkeypatch.setattr(leases, "WAITING", {})
    leases.show("one", (REQUEST.reference,))
    answers.reading(REQUEST, "effective_rank")
    leases.expire()
    assert emptied.held > 0
    monkeypatch.setattr(leases, "GRACE", 1e6)
    leases.leave("one")
    assert emptied.held > 0  # someone may reload the page
    leases.expire()
    assert emptied.held == 0 and not emptied.entries


def test_a_limit_that_cannot_be_read_keeps_nothing_and_is_told_where_a_checkpoint_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FIBERSCOPE_MEMORY", "lots")
    assert most() == 0
    with pytest.raises(ValueError, match="got FIBERSCOPE_MEMORY='lots', expected bytes, such as 4G"):
        check_fits(1)


def test_a_view_of_a_tensor_by_numpy_counts_as_the_tensor() -> None:
    tensor, budget = torch.zeros(1000), Budget(1 << 20)
    budget.put("part", tensor[:10].numpy())
    assert budget.held == 4000 + SMALL
    budget.put("whole", tensor)
    assert budget.held == 4000 + 2 * SMALL
    budget.clear()
    assert budget.held == 0


def test_to_weigh_what_is_gone_keeps_nothing() -> None:
    budget = Budget(1 << 20)
    budget.weigh("gone")
    assert kept(budget) == [] and budget.get("gone", "none") == "none"


class Ring:
    """Holds itself, as a model and its hooks do."""

    def __init__(self, tensor: torch.Tensor | None = None) -> None:
        self.itself, self.tensor = self, tensor


def test_what_a_server_set_apart_is_given_back_all_the_same() -> None:
    ring = Ring()
    gone = weakref.ref(ring)
    gc.freeze()
    del ring
    gc.collect()
    assert gone() is not None
    give_back()
    assert gone() is None and gc.get_freeze_count() > 0


def test_a_large_model_that_is_freed_for_another_leaves_the_memory_though_it_was_set_apart() -> None:
    budget = Budget(LARGE + 4096)
    budget.put("ring", Ring(torch.zeros(LARGE // 4)))
    gone = weakref.ref(budget.get("ring"))
    gc.freeze()
    budget.put("small", torch.zeros(1024))
    assert gone() is None

"""Models on one device, on ``auto``, and under the hooks by which accelerate spreads one over several devices."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import torch
from accelerate import dispatch_model
from torch import Tensor, nn

from fbt_core.checkpoints import load
from fbt_core.huggingface import placement
from fbt_core.huggingface.model import HuggingFaceModel
from fbt_core.model import build
from tests.architectures import checkpoint_of, inputs_of, library_model

RIEMANNIAN = "assets/riemannian.safetensors"


def tensors_of(value: Any) -> list[Tensor]:
    """Every tensor of a tree of dataclasses and tuples."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, tuple):
        return [tensor for part in value for tensor in tensors_of(part)]
    if is_dataclass(value):
        return [tensor for field in fields(value) for tensor in tensors_of(getattr(value, field.name))]
    return []


@pytest.mark.skipif(torch.cuda.is_available(), reason="auto takes a GPU where there is one")
def test_auto_runs_any_model_on_the_cpu_where_there_is_no_gpu() -> None:
    own = build(load(RIEMANNIAN), device="auto")
    assert own.trace(torch.tensor([1, 2, 3])).logits.device.type == "cpu"
    foreign = build(checkpoint_of(library_model("llama")), device="auto")
    assert foreign.trace(torch.tensor([3, 4])).logits.device.type == "cpu"


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_a_model_under_the_hooks_of_accelerate_gives_the_same_traces(name: str) -> None:
    plain = build(checkpoint_of(library_model(name)))
    module = build(checkpoint_of(library_model(name))).module
    places = {path: "cpu" for path, part in module.named_modules() if not list(part.children())}
    hooked = HuggingFaceModel(dispatch_model(module, places, force_hooks=True), plain.config)
    assert any(hasattr(part, "_hf_hook") for part in hooked.module.modules())
    ids = inputs_of(name)["input_ids"][0]
    mine, theirs = hooked.traces(ids), plain.traces(ids)
    assert mine.keys() == theirs.keys()
    for stack, trace in theirs.items():
        for a, b in zip(tensors_of(mine[stack]), tensors_of(trace), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["riemannian", "dictionary", "t5", "bloom"])
def test_a_gathered_trace_has_every_tensor_on_the_device_of_the_head(name: str) -> None:
    own = name in ("riemannian", "dictionary")
    model = build(load(f"assets/{name}.safetensors") if own else checkpoint_of(library_model(name)))
    traces = model.traces(torch.tensor([3, 4, 5]))
    head = nn.Linear(2, 2, device="meta")
    module = type("Module", (), {"get_output_embeddings": lambda self: head})()
    found = placement.gathered(traces, module)
    for stack, trace in found.items():
        moved, before = tensors_of(trace), tensors_of(traces[stack])
        assert len(before) > 10
        assert [tensor.device.type for tensor in moved] == ["meta"] * len(before)
        assert [tensor.shape for tensor in moved] == [tensor.shape for tensor in before]


def test_a_module_is_spread_when_its_map_names_several_devices() -> None:
    module = nn.Linear(1, 1)
    assert not placement.is_spread(module)
    module.hf_device_map = {"": 0}
    assert not placement.is_spread(module)
    module.hf_device_map = {"model.layers.0": 0, "model.layers.1": 1}
    assert placement.is_spread(module)

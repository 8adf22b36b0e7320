"""Names without wrappers' prefixes: nothing is ever merged, and a second stripping changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fbt_core.checkpoints import CheckpointError
from fbt_core.checkpoints.keys import FRONTS, WRAPPERS, stripped

PLAIN = ("layers.0.weight", "layers.0.bias", "layers.1.weight", "head.weight")
SEGMENTS = st.sampled_from([*WRAPPERS, *FRONTS, "layers", "0", "1", "weight", "bias", ""])
NAMES = st.lists(st.lists(SEGMENTS, min_size=1, max_size=5).map(".".join), unique=True, max_size=8)


@pytest.mark.parametrize(
    "prefix",
    ["module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "model.", "module._orig_mod.",
     "_orig_mod.module.", "module.module.model._orig_mod.", "model.model.", ""],
)  # fmt: skip
def test_prefixes_go_in_any_order(prefix: str) -> None:
    found = stripped(prefix + name for name in PLAIN)
    assert found.names == {prefix + name: name for name in PLAIN}
    assert sorted({*found.prefixes}) == sorted({f"{part}." for part in prefix.split(".") if part})


def test_two_orders_in_one_file() -> None:
    first, second = PLAIN[:2], PLAIN[2:]
    names = [f"module._orig_mod.{name}" for name in first] + [f"_orig_mod.module.{name}" for name in second]
    assert [*stripped(names).names.values()] == [*PLAIN]


def test_wrappers_go_from_within_a_name() -> None:
    names = ["model._orig_mod.layers.0._checkpoint_wrapped_module.mlp._fsdp_wrapped_module.up.weight", "head.weight"]
    assert [*stripped(names).names.values()] == ["model.layers.0.mlp.up.weight", "head.weight"]


def test_a_prefix_that_not_all_share_stays() -> None:
    names = ["model.layers.0.weight", "lm_head.weight"]
    assert stripped(names).names == {name: name for name in names} and stripped(names).prefixes == ()


def test_the_counter_of_weight_averaging_is_no_weight() -> None:
    assert stripped(["n_averaged", "module.a.weight"]).names == {"module.a.weight": "a.weight"}


def test_a_collision_is_refused_and_both_names_are_said() -> None:
    with pytest.raises(CheckpointError) as caught:
        stripped(["_orig_mod.a.weight", "a.weight", "b.weight"])
    assert "'a.weight'" in str(caught.value) and "'_orig_mod.a.weight'" in str(caught.value)


@given(NAMES)
def test_no_two_names_become_one_and_a_second_time_changes_nothing(names: list[str]) -> None:
    try:
        once = stripped(names)
    except CheckpointError:
        # The oracle: without the wrappers' segments two names are equal, whatever is shared in front.
        bare = [".".join([*(s for s in n.split(".")[:-1] if s not in WRAPPERS), n.split(".")[-1]]) for n in names]
        assert len({*bare}) < len(names)
        return
    assert {*once.names} == {*names} and len({*once.names.values()}) == len(names)
    again = stripped(once.names.values())
    assert again.prefixes == () and all(name == short for name, short in again.names.items())
    for name, short in once.names.items():  # only whole segments of the list went, the rest stands in its order
        rest = iter(name.split("."))
        assert all(segment in rest for segment in short.split("."))

"""What was asked: through the URL and back, and never a link that fails."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.run import MATCHES, MAXIMUM_RANK, MAXIMUM_STRENGTH, MOST_MARKED, PICTURE, SOURCE, STACKS, Run
from app.sidebar import partner

REFERENCES = st.one_of(
    st.from_regex(r"demo:[a-z0-9_.-]{1,20}", fullmatch=True), st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True)
)
RUNS = st.builds(
    Run,
    a=REFERENCES,
    b=st.one_of(st.just(""), REFERENCES),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
    layer=st.integers(0, 200),
    head=st.integers(0, 200),
    token=st.integers(0, 5000),
    strength=st.floats(0, MAXIMUM_STRENGTH),
    match=st.sampled_from(list(MATCHES)),
    device=st.sampled_from(["cpu", "cuda", "cuda:1"]),
    source=st.one_of(st.sampled_from(["", "fisher", "local"]), REFERENCES.map("adapter:{}".format)),
    rank=st.integers(1, MAXIMUM_RANK),
    stack=st.sampled_from(STACKS),
    target=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    image=st.one_of(st.just(""), st.just("sample:scene"), st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True)),
    marked=st.lists(st.integers(0, 5000), max_size=9).map(lambda tokens: Run().marking(tokens).marked),
)


@given(RUNS)
def test_a_run_survives_the_url(run: Run) -> None:
    """Through real percent-encoding, not only through the dict."""
    text = urlencode(run.to_query())
    assert Run.from_query(dict(parse_qsl(text, keep_blank_values=True))) == run


def test_defaults_leave_the_url() -> None:
    assert Run().to_query() == {}
    assert Run(layer=3).to_query() == {"layer": "3"}


def test_a_text_too_long_for_a_url_is_left_out() -> None:
    run = Run(text="é" * 8000, layer=2)
    assert run.to_query() == {"layer": "2"} and not run.text_fits
    assert Run(text="a" * 20_000).to_query()["text"] == "a" * 20_000


def test_a_run_is_a_cache_key() -> None:
    assert hash(Run(layer=1)) == hash(Run().change(layer=1))
    assert Run(layer=1) != Run()


@pytest.mark.parametrize(
    "query",
    [
        {"a": "../../etc/passwd"}, {"a": "demo:../secret"}, {"a": "/x.safetensors"}, {"a": "sha256:zz"}, {"b": "x"},
        {"layer": "-4"}, {"layer": "two"}, {"head": "1e9"}, {"token": ""}, {"strength": "nan"}, {"strength": "inf"},
        {"strength": "-1"}, {"match": "magic"}, {"device": "cuda:0; rm"}, {"device": "tpu"}, {"unheard": "of"},
        {"source": "adapter:/etc/passwd"}, {"source": "Fisher!"}, {"rank": "0"}, {"rank": "17"}, {"stack": "sideways"},
        {"image": "file:///x.png"}, {"image": "sha256:zz"}, {"marked": "3,,5"}, {"marked": "three"}, {"marked": "-1"},
        {"marked": ",".join(["7"] * (MOST_MARKED + 1))}, {"marked": "٣"},
    ],
)  # fmt: skip
def test_a_bad_parameter_falls_back(query: dict[str, str]) -> None:
    """A link never fails, and never names a file by its path."""
    assert Run.from_query(query) == Run()


@given(RUNS, st.dictionaries(st.sampled_from(list(vars(Run()))), st.text(max_size=12)))
def test_any_query_gives_a_valid_run(run: Run, noise: dict[str, str]) -> None:
    found = Run.from_query(run.to_query() | noise)
    assert found.layer >= 0 and found.head >= 0 and found.token >= 0
    assert 0 <= found.strength <= MAXIMUM_STRENGTH and found.match in MATCHES
    assert 1 <= found.rank <= MAXIMUM_RANK and found.stack in STACKS
    assert not found.source or SOURCE.fullmatch(found.source)
    assert not found.image or PICTURE.fullmatch(found.image)
    assert Run.from_query(found.to_query()) == found


def test_marks_are_in_order_each_once_and_bounded() -> None:
    assert Run().marking([9, 3, 5, 3]).marked == "3,5,9" and Run(marked="9,3,3").marks == (3, 9)
    assert Run().marks == () and Run(marked="3").marking([]) == Run()
    many = Run().marking(range(1000))
    assert many.marks == tuple(range(MOST_MARKED)) and Run.from_query(many.to_query()) == many


def test_layers_of_b_follow_those_of_a() -> None:
    assert [partner(i, 6, 6, "number") for i in range(6)] == list(range(6))
    assert [partner(i, 6, 4, "number") for i in range(6)] == [0, 1, 2, 3, 3, 3]
    assert [partner(i, 3, 5, "depth") for i in range(3)] == [0, 2, 4]
    assert [partner(i, 12, 6, "depth") for i in (0, 11)] == [0, 5]
    assert partner(0, 1, 7, "depth") == 0

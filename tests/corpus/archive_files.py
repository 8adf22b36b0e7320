"""A Hugging Face folder as zip or tar: good ones, and those that would write elsewhere or fill the disk."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.corpus.case import CANARY, Case, loads, refused
from tests.corpus.folder_writers import tiny
from tests.corpus.pickle_writers import ZERO_DATE, write_zip

Entries = list[tuple[str, bytes]]


def parts(prefix: str = "") -> Entries:
    """The tiny GPT-2's files."""
    names = ("config.json", "model.safetensors", "tokenizer.json")
    return [(prefix + name, (tiny("gpt2") / name).read_bytes()) for name in names]


def zipped(*more: tuple[str, bytes], prefix: str = "", method: int = zipfile.ZIP_STORED) -> Callable[[Path], object]:
    return lambda path: write_zip(path, [*parts(prefix), *more], method)


def linked(path: Path) -> None:
    """A zip whose config.json is a symbolic link to a file of the machine."""
    with zipfile.ZipFile(path, "w") as file:
        for name, data in parts()[1:]:
            file.writestr(zipfile.ZipInfo(name, ZERO_DATE), data)
        info = zipfile.ZipInfo("config.json", ZERO_DATE)
        info.create_system, info.external_attr = 3, 0o120777 << 16
        file.writestr(info, "/etc/passwd")


def deflated(name: str, mebibytes: int) -> Callable[[Path], object]:
    """The folder, and one entry of so many zeros at a thousandth of the size."""
    return lambda path: zipped((name, bytes(mebibytes << 20)), method=zipfile.ZIP_DEFLATED)(path)


def overlapping(path: Path, copies: int = 100) -> None:
    """Members that lie inside one another, as in Fifield's bomb: each begins with a stored block that quotes the
    header of the next, and all of them end in the same mebibyte of zeros. Names and checksums are right.
    """
    content, data = bytes(1 << 20), zlib.compress(bytes(1 << 20), 9)[2:-4]
    places, locals_, body = list[tuple[bytes, bytes, int]](), b"", data
    for i in reversed(range(copies)):
        name = f"model-{i + 1:05}-of-{copies:05}.safetensors".encode()
        head = struct.pack("<HHHHHIII", 20, 0, 8, 0, 0x21, zlib.crc32(content), len(body), len(content))
        local = b"PK\x03\x04" + head + struct.pack("<HH", len(name), 0) + name
        places.append((name, head, len(local) + len(body)))
        quote = struct.pack("<BHH", 0, len(local), len(local) ^ 0xFFFF)
        content, locals_, body = local + content, local + body, quote + local + body
    directory = b""
    for name, head, back in reversed(places):
        directory += (
            b"PK\x01\x02"
            + struct.pack("<H", 20)
            + head
            + struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, len(locals_) - back)
        )
        directory += name
    end = struct.pack("<HHHHIIH", 0, 0, copies, copies, len(directory), len(locals_), 0)
    path.write_bytes(locals_ + directory + b"PK\x05\x06" + end)


def lying(path: Path) -> None:
    """Entries whose directory says one byte and whose data is a mebibyte."""
    write_zip(path, [*parts()[1:], ("config.json", bytes(1 << 20))], zipfile.ZIP_DEFLATED)
    raw = bytearray(path.read_bytes())
    at = raw.rindex(b"PK\x01\x02")
    raw[at + 24 : at + 28] = struct.pack("<I", 1)
    path.write_bytes(raw)


def encrypted(path: Path) -> None:
    write_zip(path, parts())
    raw = bytearray(path.read_bytes())
    at = -1
    while (at := raw.find(b"PK\x01\x02", at + 1)) >= 0:
        raw[at + 8] |= 1
    path.write_bytes(raw)


def inside(path: Path) -> None:
    """A zip within a zip."""
    inner = path.with_name(path.name + ".inner")
    write_zip(inner, parts())
    write_zip(path, [("model.zip", inner.read_bytes())])
    inner.unlink()


def cut_zip(path: Path) -> None:
    zipped()(path)
    path.write_bytes(path.read_bytes()[:-100])


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, "gz": lambda raw: gzip.compress(raw, mtime=0), "bz2": bz2.compress,
    "xz": lambda raw: lzma.compress(raw, preset=0),  # zeros become as small, and four times as soon
}  # fmt: skip


def tarred(*more: tuple[str, bytes, bytes], mode: str = "", prefix: str = "") -> Callable[[Path], object]:
    """The folder as tar: ``more`` are (name, type, data or target of a link)."""

    def write(path: Path) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as file:
            for name, data in parts(prefix):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
            for name, kind, data in more:
                file.addfile(*_member(name, kind, data))
        raw = buffer.getvalue()
        path.write_bytes(PACKERS[mode](raw))

    return write


def _member(name: str, kind: bytes, data: bytes) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
    info = tarfile.TarInfo(name)
    info.type = kind
    if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        info.linkname = data.decode()
        return info, None
    info.size = len(data)
    return info, io.BytesIO(data) if data else None


def gzip_bomb(path: Path) -> None:
    """A gigabyte of zeros as a tar.gz of a megabyte, built from one compressed block."""
    block, packer = bytes(1 << 20), zlib.compressobj(9, zlib.DEFLATED, -15)
    info = tarfile.TarInfo("model.safetensors")
    info.size = 1 << 30
    head = packer.compress(info.tobuf()) + packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + head + piece * 1024 + packer.flush() + bytes(8))


def zeros(mode: str, mebibytes: int = 64) -> Callable[[Path], object]:
    """The folder with so many zeros for weights, in a thousandth of the room or less."""
    member = "weights/model.safetensors", tarfile.REGTYPE
    return lambda path: tarred((*member, bytes(mebibytes << 20)), mode=mode)(path)


def long_name(size: int) -> Callable[[Path], object]:
    """A tar whose first entry claims a name of ``size`` bytes for the next one."""

    def write(path: Path) -> None:
        info = tarfile.TarInfo("././@LongLink")
        info.type, info.size = tarfile.GNUTYPE_LONGNAME, size
        tarred()(path)
        path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + path.read_bytes())

    return write


def sparse_member(path: Path) -> None:
    """A tar of one sparse member that claims a tebibyte."""
    info = tarfile.TarInfo("model.safetensors")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 512
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[386:410] = b"%011o\0%011o\0" % (0, 512)
    head[483:495] = b"%011o\0" % (1 << 32)
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    path.write_bytes(bytes(head) + bytes(512 + 1024))


def lone_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress((tiny("gpt2") / "model.safetensors").read_bytes(), mtime=0))


SLIP = f"../{CANARY}"
EVIL = b"evil"

CASES: dict[str, Case] = {
    "folder.zip": loads(28, zipped(), "GPT2|gpt2"),
    "folder-deflated.zip": loads(28, zipped(method=zipfile.ZIP_DEFLATED), "GPT2|gpt2"),
    "folder-below-a-folder.zip": loads(28, zipped(prefix="my model/"), "GPT2|gpt2"),
    "folder-with-others.zip": loads(
        28,
        zipped(("README.md", b"hello"), ("train.py", b"raise SystemExit"), ("__MACOSX/._config.json", b"\0")),
        "GPT2|gpt2",
    ),
    "folder.tar": loads(28, tarred(), "GPT2|gpt2"),
    "folder.tar.gz": loads(28, tarred(mode="gz", prefix="model/"), "GPT2|gpt2"),
    "folder.tar.bz2": loads(28, tarred(mode="bz2"), "GPT2|gpt2"),
    "folder.tar.xz": loads(28, tarred(mode="xz"), "GPT2|gpt2"),
    "weights.safetensors.gz": refused(28, lone_gzip, "gzip"),
    "zip-slip.zip": refused(28, zipped((SLIP, EVIL)), r"\.\./"),
    "zip-slip-config.zip": refused(28, zipped(("../../config.json", b"{}")), r"\.\./|config.json"),
    "zip-absolute.zip": refused(28, zipped(("/etc/config.json", b"{}")), "/etc/config.json|absolute"),
    "zip-drive.zip": refused(28, zipped(("C:\\Windows\\config.json", b"{}")), "C:"),
    "zip-link.zip": refused(28, linked, "link"),
    "zip-overlap.zip": refused(28, overlapping, "shares bytes with another"),
    "zip-bomb.zip": refused(28, deflated("model.safetensors.index.json", 64), "times|ratio|:1"),
    "zip-lying.zip": refused(28, lying, "config.json|size|bytes"),
    "zip-two-configs.zip": refused(28, zipped(("Config.json", b"{}")), "case|config.json|twice"),
    "zip-config-twice.zip": refused(28, zipped(("config.json", b"{}")), "twice|config.json"),
    "zip-two-folders.zip": refused(28, lambda path: zipped(*parts("two/"), prefix="one/")(path), "'one'", "'two'"),
    "zip-with-another-below.zip": loads(28, lambda path: zipped(*parts("other/"))(path), "GPT2"),
    "zip-in-zip.zip": refused(28, inside, "model.zip|zip|no weights"),
    "zip-encrypted.zip": refused(28, encrypted, "encrypt|password"),
    "zip-of-nothing.zip": refused(28, lambda path: write_zip(path, []), "empty|no |nothing"),
    "zip-of-pictures.zip": refused(28, lambda path: write_zip(path, [("cat.png", b"\x89PNG")]), "no |none|without"),
    "zip-cut.zip": refused(28, cut_zip, "cut short|directory|damaged"),
    "tar-climbs.tar": refused(28, tarred((SLIP, tarfile.REGTYPE, EVIL)), r"\.\./"),
    "tar-link.tar": refused(28, tarred(("generation_config.json", tarfile.SYMTYPE, b"/etc/passwd")), "link"),
    "tar-hard-link.tar": refused(28, tarred(("generation_config.json", tarfile.LNKTYPE, b"config.json")), "link"),
    "tar-pipe.tar": refused(28, tarred(("generation_config.json", tarfile.FIFOTYPE, b"")), "pipe|fifo|regular|special"),
    "tar-device.tar": refused(28, tarred(("generation_config.json", tarfile.CHRTYPE, b"")), "device|regular|special"),
    "tar-config-twice.tar": refused(28, tarred(("config.json", tarfile.REGTYPE, b"{}")), "twice|config.json"),
    "tar-name-10-9.tar": refused(28, long_name(10**9), "name|cut short|damaged|1000000000"),
    "tar-sparse.tar": refused(28, sparse_member, "sparse|regular|kind|special"),
    "bzip2-bomb.tar.bz2": refused(28, zeros("bz2"), "times|ratio|:1", seconds=3.0),
    "xz-bomb.tar.xz": refused(28, zeros("xz"), "times|ratio|:1", seconds=3.0),
    "gzip-bomb.tar.gz": refused(28, gzip_bomb, "times|ratio|:1|budget|larger|at most", seconds=2.0),
}

"""A warm process that opens files of the corpus and tells what came of each, with the time and the memory it took.

One JSON line in, one JSON line out. The parent starts another when it dies, so that a crash costs one file.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 100
"""After so long in one file the process prints where it stands, and ends."""

EXTRA_BYTES = 4 << 30
"""Of address space that this process may take beyond what it has after its imports."""

TEXT = "the capital of France is " + "a" * 28 + "b"
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
HARMLESS = ("/dev/null", "/dev/shm", "/dev/urandom", "/proc/self/clear_refs")
CHANGING = {"os.mkdir": (0, 2), "os.remove": (0, 1), "os.rmdir": (0, 1), "os.rename": (1, 3), "os.symlink": (1, 2),
            "os.link": (1, 3), "os.truncate": (0, 0), "os.chmod": (0, 2)}  # fmt: skip
"""Events of changes to the disk: which argument is the path, and which the open folder that it is relative to."""


class Watch:
    """What an audit hook saw: writing outside the temporary folder, connecting, shells, foreign imports."""

    def __init__(self, temporary: str, foreign: tuple[str, ...]) -> None:
        self.temporary, self.foreign, self.seen = temporary, foreign, list[str]()
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], (str, bytes)) and (arguments[2] or 0) & WRITING:
            self.written(event, arguments[0])
        elif event in CHANGING:
            at, folder = CHANGING[event]
            self.written(event, arguments[at], arguments[folder] if folder else -1)
        elif event in ("os.system", "socket.connect", "pty.spawn", "webbrowser.open"):
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event == "import" and str(arguments[0]).split(".")[0] in self.foreign:
            self.seen.append(f"import {arguments[0]}")

    def written(self, event: str, place: object, folder: int = -1) -> None:
        path = os.fsdecode(place) if isinstance(place, (str, bytes, os.PathLike)) else ""
        path = os.path.abspath(os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path) if folder >= 0 else path)
        if not path.startswith((self.temporary, *HARMLESS)):
            self.seen.append(f"{event} {path!r:.200}")


def resident(field: str) -> int:
    """Bytes of this process by a field of /proc/self/status: VmRSS now, VmHWM the most since ``forget_peak``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"no {field}")


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def processor_seconds() -> float:
    """Of this process and of its children that have ended: what a file costs, however busy the machine is."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def measured(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``call`` answers or how it failed, the processor's seconds and the bytes by which it grew at its peak."""
    from fbt_core.checkpoints import CheckpointError

    forget_peak()
    before, start = resident("VmRSS"), processor_seconds()
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    try:
        answer = {"outcome": "loads"} | call()
    except CheckpointError as fault:
        answer = {"outcome": "refused", "text": str(fault), "parts": [fault.got, fault.expected, fault.remedy]}
    except BaseException as fault:
        answer = {"outcome": "escaped", "text": f"{type(fault).__module__}.{type(fault).__name__}: {fault!s:.500}"}
    faulthandler.cancel_dump_traceback_later()
    answer |= {"seconds": processor_seconds() - start, "growth": resident("VmHWM") - before}
    return answer | {"children": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10}


def opened(name: str, source: Any) -> dict[str, Any]:
    """The checkpoint of one entry of the corpus, in words; its tensors compared with what was written."""
    import torch
    from safetensors.torch import load_file

    from fbt_core.checkpoints import load
    from tests.corpus import CASES

    case = CASES[name]
    checkpoint = load(source, part=case.part) if case.part else load(source)
    told = (checkpoint.origin.format, getattr(checkpoint.config, "architecture", ""), *checkpoint.notices)
    answer: dict[str, Any] = {"text": " | ".join(told)}
    answer["count"] = len(checkpoint.tensors)
    wanted = case.tensors() if case.tensors else None
    if case.same_as:
        wanted = load_file(Path(source).parent / case.same_as / "model.safetensors")
    if wanted is not None:
        alike = {
            k: k in wanted and v.dtype == wanted[k].dtype and same(v, wanted[k]) for k, v in checkpoint.tensors.items()
        }
        answer["unlike"] = sorted(k for k, same in alike.items() if not same) + sorted(set(wanted) - set(alike))
    answer["plain"] = all(type(t) is torch.Tensor for t in checkpoint.tensors.values())
    answer["tokens"] = tokens(checkpoint.tokenizer)
    return answer


def tokens(tokenizer: Any) -> int:
    """How many a text makes; a tokenizer may refuse it with a fault of the file, or want ids in place of words."""
    from fbt_core.checkpoints import CheckpointError

    try:
        return len(tokenizer.encode(TEXT).ids) if tokenizer is not None else 0
    except CheckpointError:
        return 0
    except ValueError:
        return len(tokenizer.encode("1 2 3").ids)


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, NaN included."""
    import torch

    return a.shape == b.shape and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def looked_at(source: Any) -> dict[str, Any]:
    from fbt_core.checkpoints import inspect

    return inspect(source).to_dict()


def source_of(corpus: Path, name: str) -> Any:
    """The path of an entry, or the files of a folder that stands for several files."""
    from tests.corpus import CASES

    return sorted((corpus / name).iterdir()) if CASES[name].loose else corpus / name


def main() -> None:
    """Serves until standard input ends."""
    from jaxtyping import install_import_hook

    with install_import_hook("fbt_core", "beartype.beartype"):
        import fbt_core.checkpoints  # noqa: F401
    from tests.corpus import FOREIGN

    corpus, temporary = Path(sys.argv[1]), os.environ["TMPDIR"]
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + EXTRA_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    watch = Watch(temporary, (FOREIGN, "modeling_evil"))
    for line in sys.stdin:
        name, before = json.loads(line), set(os.listdir(temporary))
        source = source_of(corpus, name)
        answer = {"load": measured(lambda: opened(name, source)), "inspect": measured(lambda: looked_at(source))}  # noqa: B023
        answer |= {"events": watch.seen[:], "left": sorted(set(os.listdir(temporary)) - before)}
        watch.seen.clear()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

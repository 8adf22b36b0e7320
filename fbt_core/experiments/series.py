"""Which checkpoints are meant: files, folders of one model, and folders of many, such as the steps of a training."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fbt_core.checkpoints.files import BESIDE, MOST_ENTRIES, SUFFIXES
from fbt_core.strict_json import strict_json

STEP = re.compile(r"(?:steps?|checkpoint|ckpt|iter|iteration)[-_= ]?(\d{1,15})(?!\d)", re.IGNORECASE)
"""How names of checkpoints tell their step: checkpoint-500, global_step1000, iter_0002000."""

SETTINGS = ("config.json", "adapter_config.json")
"""Files that make a folder the checkpoint of one model, whatever else is in it."""

MOST_STATE = 64 << 20
"""Bytes of a trainer's own record that are read for its step."""


@dataclass(frozen=True)
class Member:
    """One checkpoint of those asked for. ``model`` is what steps of one training have in common."""

    path: Path
    model: str
    name: str  # unique among the members
    step: int | None  # of training, as the name or the trainer's own record tells it

    @property
    def stamp(self) -> str:
        """Another text when its files are others: names, sizes and times."""
        files = sorted(self.path.iterdir()) if self.path.is_dir() else [self.path]
        states = [(file.name, file.stat()) for file in files if file.is_file()]
        return " ".join(f"{name}:{state.st_size}:{state.st_mtime_ns}" for name, state in states)


def members(paths: Sequence[Path]) -> list[Member]:
    """The checkpoints at ``paths``; those of a folder by step, then by name.

    A folder with a ``config.json`` is one, and so is each folder directly inside it that holds weights, as trainers
    leave their steps. Without one, every file of weights in it is a checkpoint. What cannot be opened is found out
    when it is. Raises ``ValueError`` for a path that is not there or holds no weights.
    """
    given = list(dict.fromkeys(paths))
    if not given:
        raise ValueError("got no checkpoint, expected at least one")
    names = Counter(map(_name, given))
    return [one for path in given for one in _of_path(path, str(path) if names[_name(path)] > 1 else _name(path))]


def step_of(path: Path) -> int | None:
    """The step that a checkpoint's name tells, or the ``trainer_state.json`` of its folder; None where neither does."""
    name = path.stem if path.is_file() else path.name
    found = STEP.findall(name)
    if found or name.isdecimal():
        return int(found[-1] if found else name[:15])
    record = path / "trainer_state.json"
    try:
        state = strict_json(record.read_text("utf-8")) if record.stat().st_size <= MOST_STATE else None
        step = state["global_step"] if isinstance(state, dict) else None
        return step if type(step) is int and step >= 0 else None
    except (OSError, ValueError, KeyError):
        return None


def _of_path(path: Path, label: str) -> list[Member]:
    if not path.exists():
        raise ValueError(f"got {str(path)!r}, where nothing is, expected a checkpoint, or a folder of them")
    if not path.is_dir():
        return [Member(path, _model(path, label) or _name(path.parent), label, step_of(path))]
    inside = [Member(one, _within(one, label), f"{label}/{one.name}", step_of(one)) for one in _inside(path)]
    inside.sort(key=lambda one: (one.step is None, one.step or 0, one.name))
    if any((path / name).is_file() for name in SETTINGS):
        model = label if inside else _model(path, label) or _name(path.parent)
        return [*inside, Member(path, model, label, step_of(path))]
    if not inside:
        raise ValueError(f"got the folder {str(path)!r} without weights, expected a checkpoint, or a folder of them")
    return inside


def _model(path: Path, label: str) -> str:
    """What steps of one training have in common: the name without the step. Empty where nothing else is in it."""
    rest = STEP.sub("", label.removesuffix(path.suffix) if path.is_file() else label).strip("-_./ ")
    return "" if rest.isdecimal() else rest


def _within(path: Path, folder: str) -> str:
    """The model of a checkpoint in a folder of that label."""
    rest = _model(path, path.name)
    return f"{folder}/{rest}" if rest else folder


def _inside(folder: Path) -> Iterator[Path]:
    """The checkpoints directly inside a folder; of a model's own folder, only folders are."""
    one_model = any((folder / name).is_file() for name in SETTINGS)
    seen = set()
    for count, entry in enumerate(sorted(folder.iterdir())):
        if count >= MOST_ENTRIES:
            raise ValueError(f"got a folder of more than {MOST_ENTRIES} entries, expected one of checkpoints")
        wanted = any(map(_is_weights, entry.iterdir())) if entry.is_dir() else _is_weights(entry) and not one_model
        if wanted and not entry.name.startswith(".") and entry.resolve() not in seen:  # "latest" may be a second name
            seen.add(entry.resolve())
            yield entry


def _is_weights(file: Path) -> bool:
    return file.name.endswith(SUFFIXES) and not BESIDE.fullmatch(file.name) and file.is_file()


def _name(path: Path) -> str:
    return path.name or path.resolve().name

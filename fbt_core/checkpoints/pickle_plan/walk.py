"""Where the tensors lie in what was built, told as people wrote it: dicts, lists, and modules by their state dict."""

from __future__ import annotations

from .names import (
    DAMAGED,
    MOST_DEPTH,
    MOST_LISTED,
    MOST_NAME,
    MOST_STEPS,
    MOST_TENSORS,
    MOST_TEXT,
    MOST_VALUES,
    SIMPLER,
    Refused,
    quote,
)
from .things import Tensor, Thing


class Walk:
    """Tensors, plain values and unreadable tensors by place, in the order of the file."""

    def __init__(self) -> None:
        self.tensors, self.values, self.unreadable = [], [], []
        self.steps = 0
        self.above: set[int] = set()  # what the present place lies in, since objects can hold what holds them
        self.barren: set[int] = set()  # what was searched and holds no tensor: shared parts are searched once

    def visit(self, node, path: list, dotted: str = "") -> None:
        """``path`` leads to the node, or for a part of a pickled module to that module; ``dotted`` on from there."""
        self.steps += 1
        if self.steps > MOST_STEPS or len(self.tensors) > MOST_TENSORS:
            limits = f"{MOST_STEPS} objects or {MOST_TENSORS} tensors"
            raise Refused(f"a pickle that unfolds to more than {limits}", "a checkpoint", SIMPLER)
        if isinstance(node, Tensor):
            self.leaf(node, path, dotted)
        elif isinstance(node, Thing) and id(node) not in self.above and id(node) not in self.barren:
            self.inside(node, path, dotted)
        elif _is_scalar(node):
            self.value(path, node)

    def leaf(self, tensor: Tensor, path: list, dotted: str) -> None:
        container, name = (path, dotted) if dotted else (path[:-1], str(path[-1]) if path else "tensor")
        if tensor.why:
            self.unreadable.append([container, name, tensor.why])
        else:
            row = [tensor.dtype, tensor.storage, tensor.offset, tensor.shape, tensor.stride]
            self.tensors.append([container, name, *row])

    def value(self, path: list, node) -> None:
        if len(self.values) < MOST_VALUES and len(path) <= 6:
            self.values.append([path, node])

    def inside(self, node: Thing, path: list, dotted: str) -> None:
        before = len(self.tensors) + len(self.unreadable)
        self.above.add(id(node))
        if len(self.above) > MOST_DEPTH:
            raise Refused(f"a pickle nested more than {MOST_DEPTH} deep", "a checkpoint", SIMPLER)
        rows = _rows(node)
        if _is_module(rows):
            self.module(rows, path, dotted)
        elif dotted and not dotted.endswith("."):
            self.unreadable.append([path, dotted, f"an inert {quote(node.what.removeprefix('object '))}"])
        elif not dotted:
            self.parts(node, rows, path)
        self.above.discard(id(node))
        if len(self.tensors) + len(self.unreadable) == before:
            self.barren.add(id(node))

    def parts(self, node: Thing, rows: dict, path: list) -> None:
        """The values of a dict, the items of a list, the attributes of an object."""
        if node.what in ("list", "tuple"):
            if len(node.items) <= MOST_LISTED and all(map(_is_scalar, node.items)):
                self.value(path, [_short(item) for item in node.items])
                return
            rows = {at: item for at, item in enumerate(node.items) if isinstance(item, (Tensor, Thing))}
        elif node.what != "dict":
            rows = {at: item for at, item in enumerate(node.items) if isinstance(item, Tensor)} | rows
        for count, (key, child) in enumerate(rows.items()):
            if isinstance(key, str) and len(key) > MOST_NAME:
                raise Refused(f"a name of {len(key)} characters", f"at most {MOST_NAME}", DAMAGED)
            place = key if type(key) in (int, str) else f"key {count}, a {type(key).__name__}"
            self.visit(_short(child), [*path, place])

    def module(self, rows: dict, path: list, dotted: str) -> None:
        """The state dict of a pickled ``torch.nn.Module``, as one container with dotted names."""
        passing = rows.get("_non_persistent_buffers_set")
        skipped = {item for item in passing.items if isinstance(item, str)} if isinstance(passing, Thing) else set()
        for group in ("_parameters", "_buffers", "_modules"):
            table = rows.get(group)
            for key, child in table.rows.items() if isinstance(table, Thing) else ():
                if not isinstance(child, (Tensor, Thing)) or (group == "_buffers" and key in skipped):
                    continue
                name = f"{dotted}{key}" if isinstance(key, str) else ""
                if len(name) > MOST_NAME:
                    raise Refused(f"a name of {len(name)} characters", f"at most {MOST_NAME}", DAMAGED)
                self.visit(child, path, name + "." * (group == "_modules"))


def _rows(node: Thing) -> dict:
    """The rows of a dict, or the attributes of an object (its state, or the first of two)."""
    state = node.state
    if isinstance(state, Thing) and state.what == "tuple" and state.items:
        state = state.items[0]
    return node.rows | state.rows if isinstance(state, Thing) else node.rows


def _is_module(rows: dict) -> bool:
    return isinstance(rows.get("_parameters"), Thing) and isinstance(rows.get("_modules"), Thing)


def _is_scalar(value) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _short(value):
    return value[:MOST_TEXT] if isinstance(value, str) else value

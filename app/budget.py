"""What the server keeps, in one budget of bytes: models, traces, readings and all else together.

Bytes are counted once, however many entries share them, as a model does with its checkpoint and a trace with the same
trace under another metric. Over the budget, what was used longest ago goes; what was put in last stays whatever its
size, because a page is about to show it.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from fbt_core.checkpoints.memory import give_back

OPAQUE = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType, str, bytes, bytearray, int, float, complex)
"""Not looked into: code, which all share, and plain values."""

SMALL = 512
"""Bytes that an entry counts beside its arrays: its key, its labels."""

LARGE = 1 << 25
"""Bytes in the place of which a large model may have gone: one with hooks holds itself until garbage is collected."""

Blocks = dict[int, int]
"""Bytes by the address of the memory that holds them."""


def blocks(value: Any) -> Blocks:
    """The memory that a value holds: of every tensor, array and text that can be reached from it.

    What a library keeps outside of Python, as a tokenizer its vocabulary, is not seen.
    """
    found: Blocks = {}
    seen, todo = set(), [value]
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            if storage.nbytes() and one.device.type != "meta":
                found[storage.data_ptr()] = storage.nbytes()
        elif isinstance(one, np.ndarray):
            owner = one
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            if isinstance(owner.base, torch.Tensor):
                todo.append(owner.base)  # of whose memory it may be a part
            else:
                found[owner.__array_interface__["data"][0]] = owner.nbytes
        elif isinstance(one, (str, bytes, bytearray)) and len(one) > SMALL:
            found[id(one)] = sys.getsizeof(one)
        todo.extend(_parts(one))
    return found


def _parts(one: Any) -> Iterator[Any]:
    """What an object leads to. Copied at once where another thread may add to it meanwhile."""
    if isinstance(one, dict):
        yield from list(one.values())
    elif isinstance(one, Mapping):
        yield from list(one.values())
    elif isinstance(one, (list, tuple, set, frozenset)):
        yield from tuple(one)
    elif not isinstance(one, OPAQUE):
        yield from list(getattr(one, "__dict__", {}).values())
        names = (name for kind in type(one).__mro__ for name in _slots(kind))
        yield from (getattr(one, name) for name in names if hasattr(one, name))
        if isinstance(one, torch.Tensor):
            yield one.grad if one.is_leaf else None


def _slots(kind: type) -> tuple[str, ...]:
    names = kind.__dict__.get("__slots__", ())
    names = (names,) if isinstance(names, str) else tuple(names)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__") and not name.startswith("__"))


@dataclass
class Budget:
    """Entries by key, the longest unused first. Thread-safe."""

    most: int
    entries: OrderedDict[Hashable, tuple[Any, Blocks]] = field(default_factory=OrderedDict)
    holders: Counter[int] = field(default_factory=Counter)  # entries that hold the memory at an address
    sizes: Blocks = field(default_factory=dict)  # of that memory, as whoever came first counted it
    held: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def get(self, key: Hashable, otherwise: Any = None) -> Any:
        """The value, now the last used, or ``otherwise``."""
        with self.lock:
            if key not in self.entries:
                return otherwise
            self.entries.move_to_end(key)
            return self.entries[key][0]

    def put(self, key: Hashable, value: Any) -> None:
        """Keep a value, in the place of another under its key. Others go when there is no room for all."""
        found = blocks(value) | {-id(value): SMALL}
        with self.lock:
            self._drop(key)
            self._add(key, value, found)
            freed = self.shrink(self.most, spare=key)
        if freed > LARGE:
            give_back()

    def weigh(self, key: Hashable) -> None:
        """Count again what has grown since it was put in."""
        with self.lock:
            if key in self.entries:
                self.put(key, self.entries[key][0])

    def shrink(self, most: int, spare: Hashable = None) -> int:
        """Free what was used longest ago until at most ``most`` bytes are held, or nothing but ``spare`` is left. How
        many bytes that were."""
        with self.lock:
            before = self.held
            for key in [key for key in self.entries if key != spare]:
                if self.held <= most:
                    break
                self._drop(key)
            return before - self.held

    def make_room(self, count: int) -> None:
        """Free so many bytes, or all that is held."""
        self.shrink(max(0, self.held - count))

    def release(self, chosen: Callable[[Hashable], bool]) -> None:
        """Free every entry whose key is chosen."""
        with self.lock:
            for key in [key for key in self.entries if chosen(key)]:
                self._drop(key)

    def clear(self) -> None:
        """Free everything."""
        self.release(lambda key: True)

    def _add(self, key: Hashable, value: Any, found: Blocks) -> None:
        self.entries[key] = (value, found)
        for address, size in found.items():
            self.holders[address] += 1
            self.held += self.sizes.setdefault(address, size) if self.holders[address] == 1 else 0

    def _drop(self, key: Hashable) -> None:
        _, found = self.entries.pop(key, (None, {}))
        for address in found:
            self.holders[address] -= 1
            if not self.holders[address]:
                del self.holders[address]
                self.held -= self.sizes.pop(address)

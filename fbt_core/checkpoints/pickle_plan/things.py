"""What a pickle builds here: names, containers and inert objects, storages, tensors. Nothing of it can act."""

from __future__ import annotations

from .names import DAMAGED, MOST_RANK, MOST_SIZE, OLD_MODULES, PARAMETERS, SIZES, Refused, is_dangerous, quote

PLAIN = ("dict", "list", "tuple", "set", "bytes")


class Global:
    """A name that the pickle would have imported."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = OLD_MODULES.get(module, module), name
        self.full = f"{self.module}.{name}"
        self.dangerous = is_dangerous(self.module, name)


class Thing:
    """A container (``what`` is one of ``PLAIN``) or an inert object (``what`` is "object" and its class's name).

    Hashed by identity, so that as a key it costs the same whatever it holds.
    """

    __slots__ = ("items", "rows", "state", "what")

    def __init__(self, what: str, items=(), rows=()) -> None:
        self.what, self.items, self.rows, self.state = what, list(items), dict(rows), None

    def set(self, pairs: list) -> None:
        for at in range(0, len(pairs), 2):
            self.rows[pairs[at]] = pairs[at + 1]


class Storage:
    """A claim of ``count`` elements of record ``key``, from ``start`` on (a view, in files of early versions)."""

    def __init__(self, dtype: str, key: str, count: int, start: int = 0) -> None:
        self.dtype, self.key, self.count, self.start = dtype, key, count, start


class Tensor:
    """A checked claim on a storage; offset and strides in elements. ``why`` says what makes it unreadable."""

    def __init__(self, dtype="", storage="", offset=0, shape=(), stride=(), why="") -> None:
        self.dtype, self.storage, self.offset, self.why = dtype, storage, offset, why
        self.shape, self.stride = list(shape), list(stride)


def is_count(value) -> bool:
    """Whether a value of the file can be a size, an offset or a stride."""
    return type(value) is int and 0 <= value < 1 << 62


def container(what: str, arguments: list) -> Thing:
    """``OrderedDict(pairs)``, ``set(items)`` and the like."""
    source = arguments[0] if arguments else None
    if not isinstance(source, Thing):
        return Thing(what)
    if what != "dict":
        return Thing(what, source.items)
    thing = Thing(what, rows=source.rows)
    for pair in source.items:
        if not isinstance(pair, Thing) or len(pair.items) != 2:
            raise ValueError("a dict of no pairs")
        thing.set(pair.items)
    return thing


def rebuilt(full: str, arguments: list) -> Tensor:
    """The claim of one of torch's rebuild functions, checked against its storage."""
    source = arguments[0]
    if full in PARAMETERS:
        return source if isinstance(source, Tensor) else Tensor(why="a parameter of something that is no tensor")
    if isinstance(source, Tensor):  # in place of a storage that cannot be read
        return source
    if not isinstance(source, Storage):
        return Tensor(why="built on something that is no storage")
    offset, shape, stride = arguments[1], arguments[2].items, arguments[3].items
    dtype, flags = source.dtype, arguments[6:7]
    if full.endswith("_v3"):
        dtype, flags = arguments[6].name, arguments[7:8]
        if dtype not in SIZES:
            return Tensor(why=f"of dtype {quote(dtype)}")
    if flags and isinstance(flags[0], Thing) and any(value is True for value in flags[0].rows.values()):
        return Tensor(why="a conjugated or negated view")
    _check_claim(offset, shape, stride, source.count * SIZES[source.dtype] // SIZES[dtype])
    start = source.start * SIZES[source.dtype] // SIZES[dtype]
    return Tensor(dtype, source.key, start + offset, shape, stride)


def _check_claim(offset, shape: list, stride: list, count: int) -> None:
    """A tensor may name each stored number in any order, but not more numbers than are stored."""
    counts = all(is_count(value) for value in [offset, *shape, *stride])
    if len(shape) > MOST_RANK or len(shape) != len(stride) or not counts or max(shape, default=0) > MOST_SIZE:
        raise Refused("a tensor of a malformed shape", f"at most {MOST_RANK} sizes and strides", DAMAGED)
    claimed, last = 1, offset
    for size, step in zip(shape, stride, strict=True):
        claimed, last = claimed * size, last + (size - 1) * step
    if claimed > count:
        stored, wanted = (f"{number:,}".replace(",", " ") for number in (count, claimed))
        got = f"a tensor with {stored} number{'s' * (count != 1)} stored, {wanted} claimed"
        raise Refused(got, "as many stored as claimed", DAMAGED)
    if claimed and last >= count:
        raise Refused(f"a tensor that ends at number {last + 1} of a storage of {count}", "one within it", DAMAGED)

"""The pickle machine: a stack, a memo, and what stands for the value of a call that is never made."""

from __future__ import annotations

from .names import (
    ATTACK,
    CONTAINERS,
    DAMAGED,
    MOST_IGNORED,
    MOST_NAME,
    MOST_STEPS,
    PARAMETERS,
    QUIET,
    SIMPLER,
    STORAGES,
    SUBCLASS,
    TENSORS,
    Refused,
    makes_tensors,
    quote,
)  # fmt: skip
from .things import PLAIN, Global, Storage, Tensor, Thing, container, is_count, rebuilt


class Machine:
    """Reads one pickle. ``opcodes.py`` says which method each opcode is."""

    def __init__(self) -> None:
        self.stack, self.marks, self.memo = [], [], {}
        self.storages: dict[str, list] = {}  # key: dtype and number of elements
        self.ignored: dict[str, None] = {}  # names of inert objects, in order
        self.suspects: list[str] = []  # dangerous names that were mentioned
        self.copied = 0

    def push(self, value) -> None:
        self.stack.append(value)

    def integer(self, value: int) -> None:
        self.push(value if value.bit_length() <= 128 else Thing("object integer"))

    def text(self, value: str) -> None:
        if not value.isascii():
            value.encode()  # a lone surrogate is no text: UnicodeEncodeError, a damaged file
        self.push(value)

    def mark(self, _) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def pop_mark(self) -> list:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def pop(self, _) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.pop_mark()

    def put(self, index) -> None:
        self.memo[len(self.memo) if index is None else index] = self.stack[-1]

    def get(self, index: int) -> None:
        self.push(self.memo[index])

    def group(self, what: str, items) -> None:
        self.push(Thing(what, items))

    def last(self, count: int) -> None:
        """A tuple of the topmost values."""
        if len(self.stack) < count:
            raise IndexError("stack underflow")
        items = self.stack[-count:]
        del self.stack[-count:]
        self.group("tuple", items)

    def table(self, pairs: list) -> None:
        self.group("dict", ())
        self.set(pairs)

    def add(self, items: list) -> None:
        if isinstance(self.stack[-1], Thing):
            self.stack[-1].items.extend(items)

    def set(self, pairs: list) -> None:
        if isinstance(self.stack[-1], Thing):
            self.stack[-1].set(pairs)

    def build(self, _) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Thing) and target.what not in PLAIN:
            target.state = state

    def named(self, module, name) -> Global:
        if not isinstance(module, str) or not isinstance(name, str) or len(module) + len(name) > MOST_NAME:
            raise ValueError("a global without a name")
        found = Global(module, name)
        if found.dangerous:
            self.suspects.append(found.full)
        return found

    def call(self, function, arguments) -> None:
        self.push(self.called(function, arguments.items if isinstance(arguments, Thing) else []))

    def called(self, function, arguments: list):
        """What stands for the value of a call: a tensor, a container, or an inert thing."""
        if not isinstance(function, Global):
            return Thing("object", arguments)
        full = function.full
        self.check_call(function, arguments)
        if full in TENSORS or full in PARAMETERS:
            return rebuilt(full, arguments)
        if full == SUBCLASS:
            return self.subclass(*arguments[:3])
        if full == "collections.defaultdict":
            return Thing("dict")
        if full == "builtins.getattr" and len(arguments) == 2 and isinstance(arguments[0], Global):
            return self.named(arguments[0].module, f"{arguments[0].name}.{arguments[1]}")
        if full in CONTAINERS:
            return self.copy(CONTAINERS[full], arguments)
        if full.startswith("torch._utils._rebuild") or full == "torch.storage._load_from_bytes":
            return Tensor(why=f"built by {quote(full)}")
        if full == "copyreg._reconstructor" and arguments and isinstance(arguments[0], Global):
            full = arguments[0].full
        return self.inert(full, arguments)

    def subclass(self, rebuild: Global, kind: Global, arguments: Thing):
        """A tensor of another class, as the plain one; its attributes are dropped."""
        if rebuild.full not in TENSORS and rebuild.full not in PARAMETERS:
            return Tensor(why=f"built by {quote(rebuild.full)}")
        self.inert(kind.full, [])
        return rebuilt(rebuild.full, arguments.items)

    def check_call(self, function: Global, arguments: list) -> None:
        """Raise ``Refused`` for a call that would do harm, were it made."""
        full = function.full
        of_bytes = arguments and isinstance(arguments[0], Thing)
        claims = full == "builtins.bytearray" and arguments and not of_bytes
        if function.dangerous or claims or makes_tensors(function.module, function.name):
            raise Refused(f"a pickle that calls {quote(full)}", "weights only, and no code", ATTACK)

    def copy(self, what: str, arguments: list) -> Thing:
        thing = container(what, arguments)
        self.copied += len(thing.items) + len(thing.rows)
        if self.copied > MOST_STEPS:
            raise Refused("a pickle that copies its lists again and again", "a checkpoint", SIMPLER)
        return thing

    def inert(self, full: str, arguments: list) -> Thing:
        if full not in QUIET and len(self.ignored) < MOST_IGNORED:
            self.ignored.setdefault(full)
        return Thing(f"object {full}", arguments)

    def persistent(self, _) -> None:
        """A storage, or in the older form a class together with its source text."""
        identity = self.stack.pop()
        fields = identity.items if isinstance(identity, Thing) else []
        if len(fields) >= 2 and fields[0] == "module":
            self.push(fields[1])
            return
        if len(fields) not in (5, 6) or fields[0] != "storage" or not isinstance(fields[1], Global):
            raise ValueError("a persistent id of no known kind")
        self.push(self.storage(fields[1], fields[2], fields[4], fields[5] if len(fields) == 6 else None))

    def storage(self, kind: Global, key, count, view) -> Storage | Tensor:
        if not isinstance(key, str) or len(key) > 64 or not is_count(count):
            raise ValueError("a malformed storage")
        dtype = STORAGES.get(kind.name)
        if dtype is None or kind.module.split(".")[0] != "torch":
            return Tensor(why=f"stored as {quote(kind.full)}")
        if self.storages.setdefault(key, [dtype, count]) != [dtype, count]:
            raise Refused(f"storage {key!r} with two sizes or dtypes", "one", DAMAGED)
        if not isinstance(view, Thing):
            return Storage(dtype, key, count)
        _, start, length = view.items
        if not is_count(start) or not is_count(length) or start + length > count:
            raise ValueError("a view beyond its storage")
        return Storage(dtype, key, length, start)

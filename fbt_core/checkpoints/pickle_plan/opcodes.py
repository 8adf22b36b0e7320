"""From the bytes of a pickle to the methods of the machine, opcode by opcode."""

from __future__ import annotations

import pickletools

from .machine import Machine
from .names import ATTACK, MOST_NAME, MOST_OPCODES, SIMPLER, Refused, quote
from .things import Thing


class Tape:
    """The bytes from ``start`` to ``stop`` of a file, as ``genops`` reads them, never more at once than there are."""

    def __init__(self, file, start: int, stop: int) -> None:
        file.seek(start)
        self.file, self.at, self.stop = file, start, stop

    def is_at_end(self) -> bool:
        return self.at >= self.stop

    def read(self, count: int) -> bytes:
        raw = self.file.read(min(count, self.stop - self.at))
        self.at += len(raw)
        return raw

    def readline(self) -> bytes:
        raw = self.file.readline(min(MOST_NAME * 16, self.stop - self.at))
        self.at += len(raw)
        return raw


def run(machine: Machine, tape: Tape):
    """The outermost object of the pickle on the tape, which is left behind its end.

    Raises ``Refused`` for what a checkpoint would not do, and any exception for a damaged pickle.
    """
    operations = pickletools.genops(tape)  # type: ignore[arg-type] - of a file it needs read and readline alone
    for count, (opcode, argument, _) in enumerate(operations):
        if count >= MOST_OPCODES:
            raise Refused(f"a pickle of more than {MOST_OPCODES} operations", "a checkpoint", SIMPLER)
        OPERATIONS[opcode.name](machine, argument)
    if machine.suspects:
        raise Refused(f"a pickle that refers to {quote(machine.suspects[0])}", "weights only", ATTACK)
    return machine.stack.pop()


def _reduce(machine: Machine, _) -> None:
    arguments, function = machine.stack.pop(), machine.stack.pop()
    machine.call(function, arguments)


def _newobj_ex(machine: Machine, _) -> None:
    machine.stack.pop()  # its keyword arguments
    _reduce(machine, None)


def _inst(machine: Machine, name: str) -> None:
    items = machine.pop_mark()
    machine.call(machine.named(*name.split(" ", 1)), Thing("tuple", items))


def _obj(machine: Machine, _) -> None:
    function, *items = machine.pop_mark()
    machine.call(function, Thing("tuple", items))


def _stack_global(machine: Machine, _) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.push(machine.named(module, name))


def _setitem(machine: Machine, _) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.set([key, value])


OPERATIONS = {
    **dict.fromkeys(["PROTO", "FRAME", "STOP"], lambda machine, _: None),
    **dict.fromkeys(["BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT"], Machine.push),
    **dict.fromkeys(["INT", "LONG", "LONG1", "LONG4"], Machine.integer),
    **dict.fromkeys(["STRING", "BINSTRING", "SHORT_BINSTRING"], Machine.text),
    **dict.fromkeys(["UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"], Machine.text),
    **dict.fromkeys(["BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"], lambda m, _: m.group("bytes", ())),
    **dict.fromkeys(["PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"], Machine.put),
    **dict.fromkeys(["GET", "BINGET", "LONG_BINGET"], Machine.get),
    **dict.fromkeys(["APPENDS", "ADDITEMS"], lambda m, _: m.add(m.pop_mark())),
    **dict.fromkeys(["REDUCE", "NEWOBJ"], _reduce),
    "NONE": lambda m, _: m.push(None),
    "NEWTRUE": lambda m, _: m.push(True),
    "NEWFALSE": lambda m, _: m.push(False),
    "EMPTY_LIST": lambda m, _: m.group("list", ()),
    "EMPTY_TUPLE": lambda m, _: m.group("tuple", ()),
    "EMPTY_SET": lambda m, _: m.group("set", ()),
    "EMPTY_DICT": lambda m, _: m.group("dict", ()),
    "MARK": Machine.mark,
    "POP": Machine.pop,
    "POP_MARK": lambda m, _: m.pop_mark(),
    "DUP": lambda m, _: m.push(m.stack[-1]),
    "TUPLE": lambda m, _: m.group("tuple", m.pop_mark()),
    "TUPLE1": lambda m, _: m.last(1),
    "TUPLE2": lambda m, _: m.last(2),
    "TUPLE3": lambda m, _: m.last(3),
    "LIST": lambda m, _: m.group("list", m.pop_mark()),
    "FROZENSET": lambda m, _: m.group("set", m.pop_mark()),
    "DICT": lambda m, _: m.table(m.pop_mark()),
    "APPEND": lambda m, _: m.add([m.stack.pop()]),
    "SETITEM": _setitem,
    "SETITEMS": lambda m, _: m.set(m.pop_mark()),
    "GLOBAL": lambda m, name: m.push(m.named(*name.split(" ", 1))),
    "STACK_GLOBAL": _stack_global,
    "NEWOBJ_EX": _newobj_ex,
    "INST": _inst,
    "OBJ": _obj,
    "BUILD": Machine.build,
    "BINPERSID": Machine.persistent,
}
"""Every opcode but EXT1..4, PERSID and the out-of-band buffers, which no checkpoint has: those are a damaged file."""

"""The child process: ``main(PATH, "zip" or "legacy", START, STOP)`` prints the plan of a pickle, or its fault."""

from __future__ import annotations

import json
import sys

from .machine import Machine
from .names import DAMAGED, MAGIC, MOST_VALUES, PROTOCOL, SIMPLER, SIZES, Refused
from .opcodes import Tape, run
from .walk import Walk


def plan(tape: Tape, form: str) -> dict:
    """The plan of the pickle on a tape; a legacy file's has ``keys`` (storages in order) and ``end`` besides."""
    if form == "legacy":
        if run(Machine(), tape) != MAGIC:
            raise Refused("a plain pickle (pickle.dump)", "a file of torch.save", SIMPLER)
        if (version := run(Machine(), tape)) != PROTOCOL:
            raise Refused(f"a torch.save file of version {str(version)[:20]!r}", f"version {PROTOCOL}", DAMAGED)
        run(Machine(), tape)  # of the machine that wrote it: byte order and sizes of C types
    machine, walk = Machine(), Walk()
    walk.visit(run(machine, tape), [])
    found = {
        "tensors": walk.tensors, "values": walk.values, "unreadable": walk.unreadable[:MOST_VALUES],
        "storages": {key: [dtype, count * SIZES[dtype]] for key, (dtype, count) in machine.storages.items()},
        "ignored": list(machine.ignored),
    }  # fmt: skip
    if form == "legacy":
        keys = run(Machine(), tape).items
        if not all(isinstance(key, str) for key in keys):
            raise ValueError("a list of storages without names")
        found |= {"keys": keys, "end": tape.at}
    return found


def main(path: str, form: str, start: str, stop: str) -> None:
    """Print the plan, or ``{"fault": [got, expected, remedy]}``. Running out of memory is left to the parent to see."""
    with open(path, "rb") as file:
        tape = Tape(file, int(start), int(stop))
        try:
            answer = plan(tape, form)
        except Refused as refusal:
            answer = {"fault": refusal.args}
        except MemoryError:
            raise
        except Exception as error:  # whatever a damaged pickle does to the machine, its file is what is at fault
            got = f"a damaged pickle ({type(error).__name__}: {str(error)[:120]!r})"
            if tape.is_at_end():
                got = f"a pickle cut short: {int(stop) - int(start)} bytes end within it"
            answer = {"fault": [got, "a whole pickle of torch.save", DAMAGED]}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])

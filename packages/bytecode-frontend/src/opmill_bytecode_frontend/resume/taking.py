"""A form of a resume function that owns its arguments.

Whoever calls a function holds the arguments until it returns. Where an object of the program must be able to die earlier, they are handed
over in a list, and the function begins by taking them out of it."""

from __future__ import annotations

from types import CodeType

from ..bytecode import Emitter, assemble, decode


def taking(code: CodeType) -> CodeType:
    """The code with one parameter instead of its positional ones: a list of the arguments, which is left empty. The parameter has the slot
    of the first one, where ``super()`` looks."""
    program = decode(code)
    names = program.varnames[: program.argcount]
    if not names:
        return code
    begins = next((i for i, ins in enumerate(program.instructions) if ins.opname != "COPY_FREE_VARS"), 0)
    emitter = Emitter(program.instructions[begins].position)
    emitter.load_fast(names[0])
    for name in [*names[:0:-1], names[0]]:
        emitter.copy(1)
        emitter.load_method("pop")
        emitter.call(0)
        emitter.store_fast(name)
    emitter.pop_top()
    program.instructions[begins:begins] = emitter.instructions
    program.argcount = 1
    return assemble(program)

"""What a launcher needs to run a GPU kernel. It lies in the kernel's artifact, beside its contract and its cubins (``sealed.py``).

The cubins lie one after the other; a :class:`Form` says which bytes are its own. A launcher, for each step in order,
takes the first form that fits and starts ``grid`` programs of ``32 * warps`` threads with the arguments of the step, then the two scratch
pointers that Triton's kernels take last (null where their sizes are 0). Size expressions are those of plans, over the kernel's own
symbols (``sizes`` names them in the order of ``Launch.sizes``).

Failed checks: ``error`` is an int32 in device memory, 0 before the plan. With ``n`` checks numbered in a whole plan, a launch whose
first check has number ``k`` passes ``n - k`` as ``check``; the word then holds ``n`` minus the number of the first check that failed.
Kernels return at once where it is not 0, so that nothing a check protects is touched.
"""

from __future__ import annotations

import msgspec

from .model import Size

VERSION = 2


class Arg(msgspec.Struct, frozen=True, array_like=True):
    """``kind``: ``buffer`` (pointer ``index`` of the launch), ``scratch`` (pointer into the launch's scratch block at byte ``value``),
    ``size`` (``index`` of the launch's sizes; ``Form.index_bits`` wide), ``error`` (pointer), ``check`` (int32), ``word`` (``value``
    itself, 64 bits of which the kernel takes as many as it needs)."""

    kind: str
    index: int = 0
    value: Size = 0


class Form(msgspec.Struct, frozen=True):
    """One compiled form: ``entry`` of the cubin in bytes ``offset`` to ``offset + size`` of all cubins. It may run where every pointer
    is a multiple of ``align`` bytes and every expression of ``fits`` is below ``limit``. ``shared``: dynamic shared memory in bytes.
    ``scratch`` and ``profile``: bytes a program of the two trailing pointers. ``waits``: before it touches memory the kernel waits for
    what is before it in the stream (``griddepcontrol.wait``), so that its programs may be started while that still ends."""

    offset: int
    size: int
    entry: str
    warps: int
    shared: int
    align: int = 1
    index_bits: int = 32
    fits: tuple[Size, ...] = ()
    limit: int = 0
    scratch: int = 0
    profile: int = 0
    waits: bool = False


class Step(msgspec.Struct, frozen=True):
    """One launch. ``grid``: programs along x; ``more``: along y and z."""

    grid: Size
    args: tuple[Arg, ...]
    forms: tuple[Form, ...]
    more: tuple[Size, Size] = (1, 1)


class LaunchData(msgspec.Struct, frozen=True):
    """A kernel. ``arch``: compute capability times ten; cubins run on that major version, this minor or later. ``scratch``: bytes that
    live during the launches, aligned to 256. ``checks``: how many checks it has."""

    arch: int
    sizes: tuple[str, ...]
    steps: tuple[Step, ...]
    scratch: Size = 0
    checks: int = 0
    version: int = VERSION

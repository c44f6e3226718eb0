"""Artifacts of GPU kernels: laws of launch data."""

import pytest
from msgspec.structs import replace

from opmill_runtime_cache.plan.contract import Contract, Touched
from opmill_runtime_cache.plan.launch import Arg, Form, LaunchData, Step
from opmill_runtime_cache.plan.sealed import ALIGNMENT, SealBroken, complaints, seal, unseal

CONTRACT = Contract(("n",), (Touched("float32", False, "n"), Touched("float32", True, "n")), 1)
FORM = Form(0, 100, "kernel_0", 4, 1024, 16)
STEP = Step(
    "(n + 127)//128", (Arg("buffer", 0), Arg("buffer", 1), Arg("size", 0), Arg("error"), Arg("check"), Arg("word", value=-1)), (FORM,)
)
DATA = LaunchData(90, ("n",), (STEP,), 256, 1)
CUBINS = bytes(range(100))


def test_an_artifact_is_read_back_and_machine_code_is_aligned():
    sealed = seal(DATA, CONTRACT, CUBINS)
    assert unseal(sealed) == (DATA, CONTRACT, CUBINS) and (len(sealed) - len(CUBINS)) % ALIGNMENT == 0
    assert not list(complaints(DATA, CONTRACT, 100))


@pytest.mark.parametrize("cut", [0, 3, 12, 40, -150, -1])
def test_one_that_was_cut_off_is_none(cut):
    with pytest.raises(SealBroken):
        unseal(seal(DATA, CONTRACT, CUBINS)[:cut])


def _form(**changes):
    return replace(DATA, steps=(replace(STEP, forms=(replace(FORM, **changes),)),))


def _args(*args):
    return replace(DATA, steps=(replace(STEP, args=args),))


BROKEN = {
    "of different kernels": replace(DATA, sizes=("m",)),
    "of different kernels ": replace(DATA, checks=2),
    "compute capability 0": replace(DATA, arch=0),
    "scratch memory depends on m": replace(DATA, scratch="m*4"),
    "scratch memory has a size of -1": replace(DATA, scratch=-1),
    "no machine code": replace(DATA, steps=(replace(STEP, forms=()),)),
    "programs along x are more": replace(DATA, steps=(replace(STEP, grid=1 << 31),)),
    "programs along y are more": replace(DATA, steps=(replace(STEP, more=(65536, 1)),)),
    "the grid along x": replace(DATA, steps=(replace(STEP, grid="n/2"),)),
    "is of kind 'file'": _args(Arg("file")),
    "is buffer 2 of 2": _args(Arg("buffer", 2)),
    "is buffer -1 of 2": _args(Arg("buffer", -1)),
    "is size 1 of 1": _args(Arg("size", 1)),
    "lies at byte 512 of 256": _args(Arg("scratch", value=512)),
    "machine code in bytes 0 to 101": _form(size=101),
    "machine code in bytes -1": _form(offset=-1),
    "names no function": _form(entry="a b"),
    "33 warps": _form(warps=33),
    "pointers of 3 bytes": _form(align=3),
    "memory that no launcher gives": _form(scratch=8),
    "what decides a form depends on m": _form(fits=("m",)),
}


@pytest.mark.parametrize("says", BROKEN)
def test_laws_of_launch_data(says):
    data = BROKEN[says]
    assert any(says.strip() in complaint for complaint in complaints(data, CONTRACT, 100))
    with pytest.raises(SealBroken):
        unseal(seal(data, CONTRACT, CUBINS))


@pytest.mark.parametrize(
    ("contract", "says"),
    [
        (replace(CONTRACT, buffers=(Touched("float31", False, 1),)), "no element type"),
        (replace(CONTRACT, floor="m"), "the floor depends on m"),
        (replace(CONTRACT, apart=((0, 2, False),)), "keeps buffers apart"),
    ],
)
def test_laws_of_contracts(contract, says):
    assert any(says in complaint for complaint in complaints(replace(DATA, steps=()), contract, 100))

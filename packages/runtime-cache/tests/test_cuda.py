"""Launches of GPU kernels by the native executor, on a driver that runs C functions."""

import contextlib
import shutil
import subprocess
import threading
from dataclasses import dataclass

import msgspec
import pytest
import torch
from msgspec.structs import replace
from runtime_driver import DOUBLED, DRIVER, KERNELS, Arg, FakeDriver, LaunchStep

from opmill_runtime_cache import _native
from opmill_runtime_cache.devices import cuda as device
from opmill_runtime_cache.devices.cuda import kernel as cuda
from opmill_runtime_cache.errors import BindError, KernelMissing, PlanError, PlanInputError
from opmill_runtime_cache.executor import bind, bind_reference, program
from opmill_runtime_cache.plan import parse
from opmill_runtime_cache.plan.contract import Contract, Touched
from opmill_runtime_cache.plan.launch import Form, LaunchData
from opmill_runtime_cache.plan.model import (
    Alloc,
    Call,
    Expr,
    KernelRef,
    Launch,
    ListArg,
    Literal,
    Plan,
    SizeInput,
    SizeOf,
    Slot,
    SlotOutput,
    TensorInput,
    TensorSpec,
)
from opmill_runtime_cache.plan.sealed import SealBroken, seal, unseal
from opmill_runtime_cache.store import Store

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a process has one driver, and here is a real one")


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("driver")
    for name, source in (("driver", "#include <cstdarg>\n" + DRIVER), ("kernels", KERNELS)):
        (folder / f"{name}.cpp").write_text(source)
        command = [compiler, "-O1", "-shared", "-fPIC", "-w", "-o", str(folder / f"{name}.so"), str(folder / f"{name}.cpp"), "-ldl"]
        subprocess.run(command, check=True)
    assert "no NVIDIA driver" in (_native.load_cuda("/nowhere/libcuda.so", cuda.TORCH) or "")
    made = FakeDriver(folder / "driver.so", folder / "kernels.so")
    cuda.DRIVER = cuda.TORCH = made.path
    device.load.cache_clear()
    return made


@pytest.fixture
def fake(driver):
    driver.history()
    driver.fail(0)
    return driver


@pytest.fixture
def cubins(tmp_path):
    return Store(tmp_path)


def elementwise(kernel, *, slots=(0, 1)) -> Plan:
    """``out = kernel(x)`` of any length."""
    spec = TensorSpec("float32", ("s0",), (1,))
    return Plan(
        "p", 2, (TensorInput(0, spec),), (SlotOutput(1),), (Alloc(1, spec), Launch(0, slots, ("s0",), (1,))), (SizeOf("s0", 0, 0),),
        kernels=(kernel,),
    )  # fmt: skip


ARGS = (Arg("buffer", 0), Arg("buffer", 1), Arg("size", 0))


@pytest.mark.parametrize("length", [1, 16, 17, 100])
def test_the_grid_follows_the_sizes(fake, cubins, length):
    kernel = fake.kernel(cubins, LaunchStep("(n + 15) // 16", ARGS, (fake.form("twice"),)), sizes=("n",))
    run = bind(elementwise(kernel), [], cubins)
    x = torch.arange(length, dtype=torch.float32)
    assert torch.equal(run(x)[0], 2 * x)
    assert f"launch {-(-length // 16)} 128 0 stream 100" in fake.history()


def test_nothing_is_launched_for_no_elements(fake, cubins):
    kernel = fake.kernel(cubins, LaunchStep("(n + 15) // 16", ARGS, (fake.form("twice"),)), sizes=("n",))
    assert bind(elementwise(kernel), [], cubins)(torch.empty(0))[0].shape == (0,)
    assert not any(line.startswith("launch") for line in fake.history())


def test_forms_are_chosen_by_alignment_and_by_size(fake, cubins):
    forms = (
        fake.form("twice", align=16, warps=1, fits=("n",), limit=1000),
        fake.form("twice", warps=2, fits=("n",), limit=1000),
        fake.form("twice_wide", warps=3, index_bits=64),
    )
    kernel = fake.kernel(cubins, LaunchStep("(n + 15) // 16", ARGS, forms), sizes=("n",))
    run = bind(elementwise(kernel), [], cubins)
    for x, warps in ((torch.ones(32), 1), (torch.ones(33)[1:], 2), (torch.ones(2000), 3)):
        assert torch.equal(run(x)[0], 2 * x)
        assert any(line.split()[2] == str(32 * warps) for line in fake.history() if line.startswith("launch"))


def test_no_form_fits(fake, cubins):
    kernel = fake.kernel(cubins, LaunchStep(1, ARGS, (fake.form("twice", fits=("n",), limit=10),)), sizes=("n",))
    run = bind(elementwise(kernel), [], cubins)
    with pytest.raises(BindError, match="RC047"):
        run(torch.ones(10))
    assert torch.equal(run(torch.ones(9))[0], torch.full((9,), 2.0))


def test_launches_share_scratch_memory(fake, cubins):
    steps = (
        LaunchStep(1, (Arg("buffer", 0), Arg("scratch", 0, "256 * (n // 4)")), (fake.form("store"),)),
        LaunchStep(1, (Arg("scratch", 0, "256 * (n // 4)"), Arg("buffer", 1)), (fake.form("fetch"),)),
    )
    kernel = fake.kernel(cubins, *steps, sizes=("n",), scratch="256 * (n // 4) + 4")
    run = bind(elementwise(kernel), [], cubins)
    dirty = [torch.full((n,), 1e30) for n in (4, 65)]  # what memory held before is not zero
    del dirty
    assert run(torch.tensor([1.0, 2.0, 3.0, 4.0]))[0][0] == 10


def test_modules_are_loaded_once_and_large_shared_memory_is_asked_for(fake, cubins):
    kernel = fake.kernel(cubins, LaunchStep(1, ARGS, (fake.form("twice", shared=100_000),)), sizes=("n",))
    for _ in range(2):
        run = bind(elementwise(kernel), [], cubins)
        run(torch.ones(4))
        run(torch.ones(5))
    lines = fake.history()
    assert lines.count("load") == 1 and lines.count("attribute 8 100000") == 1


def test_threads_without_a_context_get_one_for_the_launch(fake, cubins):
    kernel = fake.kernel(cubins, LaunchStep(1, ARGS, (fake.form("twice"),)), sizes=("n",))
    run = bind(elementwise(kernel), [], cubins)
    thread = threading.Thread(target=run, args=(torch.ones(4),))
    thread.start()
    thread.join()
    lines = [line for line in fake.history() if line in ("push", "pop") or line.startswith("launch")]
    assert [line.split()[0] for line in lines] == ["push", "launch", "pop"]


def test_more_arguments_than_usual(fake, cubins):
    spec = TensorSpec("float32", (1,), (1,))
    args = tuple(Arg("buffer", k) for k in range(81))
    buffers = [Touched("float32", k == 80, 1) for k in range(81)]
    kernel = fake.kernel(cubins, LaunchStep(1, args, (fake.form("many"),)), buffers=buffers)
    plan = Plan(
        "p", 81, tuple(TensorInput(k, spec) for k in range(80)), (SlotOutput(80),), (Alloc(80, spec), Launch(0, tuple(range(81)), (), (80,))),
        kernels=(kernel,),
    )  # fmt: skip
    assert bind(plan, [], cubins)(*(torch.tensor([float(k)]) for k in range(80)))[0] == sum(range(80))


def checked(fake, cubins) -> Plan:
    """Two launches with one check each."""
    step = LaunchStep(1, (Arg("buffer", 0), Arg("error"), Arg("check")), (fake.form("positive"),))
    kernel = fake.kernel(cubins, step, checks=1, buffers=[Touched("float32", False, 1)])
    spec = TensorSpec("float32", (1,), (1,))
    launches = tuple(Launch(0, (k,), checks=((name, f"input {k} is negative"),)) for k, name in enumerate(("IndexError", "ValueError")))
    return Plan("p", 2, (TensorInput(0, spec), TensorInput(1, spec)), (), launches, kernels=(kernel,))


@pytest.mark.parametrize("bad, error", [((-1, 1), IndexError), ((1, -1), ValueError), ((-1, -1), IndexError)])
def test_a_failed_check_stops_the_device_and_names_itself(fake, cubins, bad, error):
    run = bind(checked(fake, cubins), [], cubins)
    good = torch.ones(1), torch.ones(1)
    run(*good)
    run(*good)
    assert "trap" not in fake.history()
    run(*(torch.tensor([float(x)]) for x in bad))
    assert "trap" in fake.history()
    with pytest.raises(error, match="is negative.*earlier call"):
        run(*good)


def test_errors_of_the_driver(fake, cubins):
    run = bind(elementwise(fake.kernel(cubins, LaunchStep(1, ARGS, (fake.form("twice", warps=5),)), sizes=("n",))), [], cubins)
    fake.fail(701)
    with pytest.raises(BindError, match="RC048.*cuLaunchKernelEx failed: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, made up.*twice"):
        run(torch.ones(4))
    fake.fail(0)
    assert torch.equal(run(torch.ones(4))[0], torch.full((4,), 2.0))


def test_machine_code_that_the_driver_refuses(fake, cubins):
    step = LaunchStep(1, ARGS, (fake.form("twice", size=3),))
    run = bind(elementwise(fake.kernel(cubins, step, image=b"junk", sizes=("n",))), [], cubins)
    with pytest.raises(BindError, match="RC048.*cuModuleLoadData"):
        run(torch.ones(4))


def test_kernels_that_cannot_be_bound(fake, cubins):
    form = fake.form("twice")
    missing = KernelRef("cubin", "cuda-cubin", "0" * 64, "k")
    with pytest.raises(KernelMissing, match="RC031"):
        bind(elementwise(missing), [], cubins)
    for ref in (
        fake.kernel(cubins, LaunchStep(1, ARGS, (fake.form("twice", scratch=8),)), sizes=("n",)),
        fake.kernel(cubins, LaunchStep(1, ARGS, (fake.form("twice", offset=1),)), sizes=("n",)),
        fake.kernel(cubins, LaunchStep(1, ARGS, (form,)), sizes=("n",), version=99),
    ):
        with pytest.raises(BindError, match="RC032"):
            bind(elementwise(ref), [], cubins)


FORM = Form(0, 64, "k", 4, 0)
DATA = LaunchData(90, ("n",), (LaunchStep("n // 2", ARGS, (FORM,)),), "4 * n", 2)
CONTRACT = Contract(("n",), DOUBLED, 2)


def test_what_is_sealed_comes_back():
    assert unseal(seal(DATA, CONTRACT, bytes(64))) == (DATA, CONTRACT, bytes(64))


def changed(form=None, step=None, contract=CONTRACT, **facts):
    """Launch data and contract with something in it changed."""
    one = replace(replace(DATA.steps[0], forms=(replace(FORM, **(form or {})),)), **(step or {}))
    return replace(DATA, **{"steps": (one,), **facts}), contract


BROKEN = {
    "another version": changed(version=1),
    "sizes of another kernel": changed(sizes=("m",)),
    "checks of another kernel": changed(checks=1),
    "sizes that are no names": changed(sizes=("a b",), contract=Contract(("a b",), DOUBLED, 2)),
    "one size twice": changed(sizes=("n", "n"), contract=Contract(("n", "n"), DOUBLED, 2)),
    "no compute capability": changed(arch=0),
    "scratch memory of unknown size": changed(scratch="m"),
    "scratch memory of a text": changed(scratch="__import__('os').abort()"),
    "negative scratch memory": changed(scratch=-1),
    "an element type that is none": changed(contract=Contract(("n",), (Touched("float33", False, "n"), DOUBLED[1]), 2)),
    "a buffer of unknown size": changed(contract=Contract(("n",), (Touched("float32", False, "m"), DOUBLED[1]), 2)),
    "a floor that depends on nothing given": changed(contract=Contract(("n",), DOUBLED, 2, "m")),
    "buffers apart that are none": changed(contract=Contract(("n",), DOUBLED, 2, 0, ((0, 2, False),))),
    "a grid of a text": changed(step={"grid": "n; n"}),
    "a grid that is too wide": changed(step={"grid": 1 << 31}),
    "a grid that is too high": changed(step={"more": (65536, 1)}),
    "a grid that is too deep": changed(step={"more": (1, 65536)}),
    "a negative grid": changed(step={"grid": -1}),
    "a grid beyond 64 bits": changed(step={"grid": 1 << 64}),
    "an argument of an unknown kind": changed(step={"args": (Arg("tensor", 0),)}),
    "a buffer that is none": changed(step={"args": (Arg("buffer", 2),)}),
    "a buffer before the first": changed(step={"args": (Arg("buffer", -1),)}),
    "a size that is none": changed(step={"args": (Arg("size", 1),)}),
    "scratch memory before the block": changed(step={"args": (Arg("scratch", 0, -8),)}),
    "scratch memory behind the block": changed(step={"args": (Arg("scratch", 0, 65),)}, scratch=64),
    "a word of an unknown size": changed(step={"args": (Arg("word", 0, "m"),)}),
    "too many arguments": changed(step={"args": (Arg("buffer", 0),) * 5000}),
    "no machine code": changed(step={"forms": ()}),
    "machine code before the first byte": changed(form={"offset": -1}),
    "machine code behind the last byte": changed(form={"offset": 1}),
    "machine code of no bytes": changed(form={"size": 0}),
    "machine code beyond 64 bits": changed(form={"size": (1 << 63) - 1}),
    "no function": changed(form={"entry": ""}),
    "a function with an end in it": changed(form={"entry": "k\0"}),
    "no warps": changed(form={"warps": 0}),
    "too many warps": changed(form={"warps": 33}),
    "negative shared memory": changed(form={"shared": -1}),
    "more shared memory than any device has": changed(form={"shared": (1 << 18) + 1}),
    "pointers of no bytes": changed(form={"align": 0}),
    "pointers of three bytes": changed(form={"align": 3}),
    "indices of 16 bits": changed(form={"index_bits": 16}),
    "a form that unknown sizes decide": changed(form={"fits": ("m",)}),
    "memory that no launcher gives": changed(form={"scratch": 8}),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_laws_of_launch_data(cubins, what):
    """What breaks one is refused before anything is made of it, whoever wrote it down."""
    artifact = seal(*BROKEN[what], bytes(64))
    with pytest.raises(SealBroken):
        unseal(artifact)
    cubins.put("cuda-cubin", "a" * 64, artifact)
    with pytest.raises(BindError, match="RC032"):
        cuda.load_cubin(KernelRef("cubin", "cuda-cubin", "a" * 64, "k"), cubins)


def test_artifacts_that_were_cut_or_are_none():
    whole = seal(DATA, CONTRACT, bytes(64))
    for length in range(len(whole)):
        with pytest.raises(SealBroken):
            unseal(whole[:length])
    for at in range(len(whole) - 64):  # a changed byte is another kernel, or none
        changed = whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :]
        with contextlib.suppress(SealBroken):
            unseal(changed)
    with pytest.raises(SealBroken):
        unseal(bytes(64))


def test_a_plan_decides_nothing_of_a_launch(fake, cubins):
    """Launch data that stands in a plan is not looked at."""
    kernel = fake.kernel(cubins, LaunchStep("(n + 15) // 16", ARGS, (fake.form("twice"),)), sizes=("n",))
    other = LaunchData(90, ("n",), (LaunchStep(1 << 20, ARGS, (fake.form("twice", warps=9),)),))
    edited = KernelRef(kernel.kind, kernel.artifact_kind, kernel.key, "other", {"launch": msgspec.json.encode(other).decode()})
    fake.history()
    assert torch.equal(bind(elementwise(edited), [], cubins)(torch.ones(20))[0], torch.full((20,), 2.0))
    assert "launch 2 128 0 stream 100" in fake.history()


ROW = TensorSpec("float32", ("s0",), (1,))


def launched(kernel, *, out=ROW, sizes=("s0",), slots=(0, 1), writes=(1,), x=ROW, checks=()):
    return Plan(
        "p", 2, (TensorInput(0, x),), (SlotOutput(1),), (Alloc(1, out), Launch(0, slots, sizes, writes, checks)), (SizeOf("s0", 0, 0),),
        kernels=(kernel,),
    )  # fmt: skip


MISFITS = {  # edited plans, and what is said of them when they are bound or called
    "memory that is too small": ({"out": TensorSpec("float32", (7,), (1,))}, "RC058"),
    "memory that is too small for other sizes": ({"sizes": (9,)}, "RC058"),
    "a size that overflows": ({"sizes": ("s0*4611686018427387904",)}, "does not fit|RC058"),
    "no memory": ({"out": TensorSpec("float32", (0,), (1,))}, "RC058"),
    "elements of another type": ({"out": TensorSpec("int32", ("s0",), (1,))}, "RC049"),
    "narrower elements": ({"x": TensorSpec("float16", ("s0",), (1,))}, "RC049"),
    "one tensor": ({"slots": (0,), "writes": ()}, "RC049"),
    "three tensors": ({"slots": (0, 1, 1)}, "RC049"),
    "no sizes": ({"sizes": ()}, "RC049"),
    "two sizes": ({"sizes": ("s0", "s0")}, "RC049"),
    "nothing that is written": ({"writes": ()}, "RC049"),
    "something else that is written": ({"writes": (0,)}, "RC049"),
    "a check that is none": ({"checks": (("IndexError", "no"),)}, "RC049"),
}


@pytest.mark.parametrize("what", MISFITS)
@pytest.mark.parametrize("binder", [bind, bind_reference], ids=["native", "reference"])
def test_an_edited_plan_launches_nothing_beside_its_memory(fake, cubins, binder, what):
    kernel = fake.kernel(cubins, LaunchStep("(n + 15) // 16", ARGS, (fake.form("twice"),)), sizes=("n",))
    edits, said = MISFITS[what]
    plan = launched(kernel, **edits)
    fake.history()
    with pytest.raises((BindError, PlanInputError, OverflowError), match=said):
        binder(plan, [], cubins)(torch.ones(8, dtype=getattr(torch, plan.inputs[0].spec.dtype)))
    assert not [line for line in fake.history() if line.startswith("launch")]


@pytest.mark.parametrize("count", [5, 6])
def test_results_of_operators_are_held_to_the_contract(fake, cubins, count):
    """What only the call tells."""
    kernel = fake.kernel(cubins, LaunchStep("(n + 15) // 16", ARGS, (fake.form("twice"),)), sizes=("n",))
    row = TensorSpec("float32", (8,), (1,))
    inputs = (TensorInput(0, row), TensorInput(1, TensorSpec("bool", (8,), (1,))))
    steps = (Call("aten::masked_select", (Slot(0), Slot(1)), {}, (2,)), Alloc(3, row), Launch(0, (2, 3), (count,), (1,)))
    run = bind(Plan("p", 4, inputs, (SlotOutput(3),), steps, kernels=(kernel,)), [], cubins)
    x, chosen = torch.arange(8.0), torch.tensor([True] * 5 + [False] * 3)
    if count > 5:
        with pytest.raises(PlanInputError, match="RC058"):
            run(x, chosen)
    else:
        assert torch.equal(run(x, chosen)[0][:5], 2 * x[:5])


def test_scratch_memory_that_ends_before_an_argument(fake, cubins):
    steps = (LaunchStep(1, (Arg("buffer", 0), Arg("scratch", 0, "8 * n")), (fake.form("store"),)),)
    run = bind(elementwise(fake.kernel(cubins, *steps, sizes=("n",), scratch=64)), [], cubins)
    with pytest.raises(PlanInputError, match="RC058"):
        run(torch.ones(9))


def test_memory_that_the_device_does_not_reach(fake, cubins, monkeypatch):
    kernel = fake.kernel(cubins, LaunchStep(1, ARGS, (fake.form("twice"),)), sizes=("n",))
    monkeypatch.setattr(program, "reaches_host", lambda: False)
    with pytest.raises(BindError, match="RC049"):
        bind(elementwise(kernel), [], cubins)


def test_the_arena_has_one_device():
    text = "plan('p', slots=1, arena=64, device='cuda:0')\nt0 = alloc(float32[4](1), at=0)\noutput()\n"
    with pytest.raises(PlanError, match="RC025"):
        bind(parse(text), [], Store("/nowhere"))
    assert parse(text.replace("(1)", "(1, device='cuda:0')")).device == "cuda:0"


def test_tensors_on_a_gpu_need_the_driver_though_no_kernel_does(fake, cubins, monkeypatch):
    asked = []
    monkeypatch.setattr(device, "load", lambda: asked.append(1) or "there is none")
    spec = TensorSpec("float32", (4,), (1,), "cuda:0")
    plan = Plan("p", 1, (TensorInput(0, spec),), (SlotOutput(0),), ())
    with pytest.raises(BindError, match="RC046.*there is none; install NVIDIA's driver"):
        bind(plan, [], cubins)
    assert asked
    on_cpu = TensorSpec("float32", (4,), (1,))
    bind(Plan("p", 1, (TensorInput(0, on_cpu),), (SlotOutput(0),), ()), [], cubins)
    assert len(asked) == 1


@dataclass
class Image:
    image: bytes
    entry: str
    parameters: list
    arch: int = 90
    warps: int = 4
    shared: int = 0


@pytest.fixture
def doubling(fake):
    """An operator that doubles its first tensor into its second, as a kernel of a program's own does, and says how to start it."""
    with torch.library._scoped_library("runtime_cache_carried", "FRAGMENT") as library:
        library.define("twice_(Tensor x, Tensor(a!) out, SymInt[] numbers, SymInt[] grid) -> ()")
        library.impl("twice_", lambda x, out, numbers, grid: [out.copy_(2 * x)].clear(), "CPU")
        operator = torch.ops.runtime_cache_carried.twice_.default
        parameters = [("tensor", 0), ("tensor", 1), ("word", 40)]

        def kernel(dtypes, numbers, device, aligned):
            if numbers == [0]:
                return None
            assert dtypes == [torch.float32] * 2
            return Image(fake.image, "twice", parameters if numbers != [1] or aligned else parameters[:2])

        operator.opmill_kernel = kernel
        yield


def doubled(numbers, grid, *symbols) -> Plan:
    lists = [ListArg(tuple(Expr(n) if isinstance(n, str) else Literal(n) for n in items)) for items in (numbers, grid)]
    spec = TensorSpec("float32", (40,), (1,))
    inputs = (TensorInput(0, spec), TensorInput(1, spec), *(SizeInput(name) for name in symbols))
    return Plan("p", 2, inputs, (), (Call("runtime_cache_carried::twice_", (Slot(0), Slot(1), *lists)),))


@pytest.mark.parametrize("grid, said", [((3, 1, 1), ""), ((3, 2, 4), " over 2 4")])
def test_kernels_that_operators_carry_are_launched(fake, cubins, doubling, grid, said):
    device.load()
    plan, x, out = doubled((), grid), torch.randn(40), torch.zeros(40)
    before = out._version
    bind(plan, [], cubins)(x, out)
    assert [line for line in fake.history() if line.startswith("launch")] == [f"launch 3 128 0 stream 100{said}"]
    assert torch.equal(out, 2 * x) and out._version > before
    bind_reference(plan, [], cubins)(x, out.zero_())
    assert torch.equal(out, 2 * x)


@pytest.mark.parametrize(
    "numbers, grid, symbols", [((0,), (3, 1, 1), ()), ((1,), (3, 1, 1), ()), (("s0",), (3, 1, 1), ("s0",)), ((), ("s0", 1, 1), ("s0",))]
)
def test_operators_are_called_where_their_kernel_cannot_be_started_alone(fake, cubins, doubling, numbers, grid, symbols):
    x, out = torch.randn(40), torch.zeros(40)
    bind(doubled(numbers, grid, *symbols), [], cubins)(x, out, *(3 for _ in symbols))
    assert torch.equal(out, 2 * x) and not [line for line in fake.history() if line.startswith("launch")]


@pytest.mark.parametrize("waits", [False, True])
def test_kernels_that_wait_by_themselves_may_start_early(fake, cubins, waits):
    launch = LaunchStep(1, ARGS, (fake.form("twice", waits=waits),))
    run = bind(elementwise(fake.kernel(cubins, launch, sizes=("n",))), [], cubins)
    fake.history()
    assert torch.equal(run(torch.ones(4))[0], torch.full((4,), 2.0))
    assert [line for line in fake.history() if line.startswith(("attribute", "launch"))] == ["attribute 6 is 1"] * waits + [
        "launch 1 128 0 stream 100"
    ]

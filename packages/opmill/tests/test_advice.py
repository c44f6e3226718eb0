"""Advice names what costs, with its number, and only where there is something."""

import pytest
import torch

import opmill
from opmill import filesystems
from opmill.advice import Seen, advice_on
from opmill.record import GraphRecord
from opmill_graph_ir.report import Report
from opmill_runtime_cache.plan.model import Alloc, Call, Plan, Slot, SlotOutput, TensorInput, TensorSpec


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop = torch.nn.Linear(4, 4), torch.nn.Dropout()

    def forward(self, x):
        return self.drop(self.linear(x))


def advice(model, *args, before=(), **arguments):
    compiled = opmill.compile(model, options={"cache": False}, **arguments)
    for each in before:
        compiled(*each)
    return opmill.explain(compiled)(*args).advice


def test_nothing_is_said_where_there_is_nothing():
    pytest.importorskip("opmill_kernel_gen_cpp")
    assert advice(lambda x: x * 2, torch.ones(3)) == ()
    assert advice(Net(), torch.ones(2, 4)) == ()
    with torch.no_grad():
        assert advice(Net().eval(), torch.ones(2, 4)) == ()


def test_a_forgotten_eval_and_a_forgotten_no_grad():
    pytest.importorskip("opmill_kernel_gen_cpp")
    with torch.no_grad():
        [found] = advice(Net(), torch.ones(2, 4))
    assert found.startswith("a module") and ".eval()" in found
    [found] = advice(Net().eval(), torch.ones(2, 4))
    assert "torch.no_grad()" in found


def test_recompiles_for_sizes():
    sizes = [(torch.ones(n),) for n in (2, 3, 4)]
    [found] = advice(lambda x: x * 2, torch.ones(5), before=sizes, dynamic=False)
    assert found.startswith("3 recompiles for other sizes") and "expected sizes (4,), found sizes (5,)" in found and "mark_dynamic" in found


def test_a_break_that_is_met_often():
    def broken(x):
        x = x + 1
        if x.sum() > 1000:
            x = x.neg()
        return x * 2

    found = advice(broken, torch.ones(5), before=[(torch.ones(n),) for n in (2, 3, 4)], dynamic=False)
    assert any("times:" in line and __file__ in line for line in found), found


@pytest.mark.parametrize(("dtype", "count"), [(torch.float64, 1), (torch.float32, 0)])
def test_float64_by_accident(dtype, count):
    found = advice(lambda x, w: x * w, torch.ones(5), torch.ones(5, dtype=dtype))
    assert len([line for line in found if "are float64" in line]) == count


def test_many_small_steps():
    def many(x):
        for _ in range(60):
            x = torch.linalg.inv(x)
        return x

    found = advice(many, torch.eye(3))
    assert any("their number costs" in line for line in found), found


def on_gpu(*inputs: TensorSpec) -> Seen:
    """A graph of one product on a GPU, of its first two inputs; the rest is beside it."""
    out = TensorSpec(inputs[0].dtype, (inputs[0].sizes[0], inputs[1].sizes[1]), (inputs[1].sizes[1], 1), "cuda:0")
    steps = (Alloc(9, out), Call("aten::mm.out", (Slot(0), Slot(1)), {"out": Slot(9)}))
    plan = Plan("forward", 10, tuple(map(TensorInput, range(9), inputs)), (SlotOutput(9),), steps, device="cuda:0")
    return Seen([GraphRecord(0, 1, 2, "", 0.0, report=Report().counted(plan))], (), (), None, None)


def tensor(rows: int, columns: int, dtype: str = "float16", device: str = "cuda:0") -> TensorSpec:
    return TensorSpec(dtype, (rows, columns), (columns, 1), device)


def test_a_tensor_that_is_left_on_the_processor():
    assert advice_on(on_gpu(tensor(64, 64), tensor(64, 64), tensor(1, 1, device="cpu"))) == ()
    [found] = advice_on(on_gpu(tensor(64, 64), tensor(64, 64), tensor(3, 5, device="cpu")))
    assert "1 of 3 inputs (float16[3, 5]; 30 bytes) lie on the processor" in found and 'device="cuda:0"' in found


@pytest.mark.parametrize(("columns", "dtype", "said"), [(50257, "bfloat16", True), (50264, "bfloat16", False), (50257, "float32", False)])
def test_unaligned_sizes_of_products(columns, dtype, said):
    found = advice_on(on_gpu(tensor(64, 64, dtype), tensor(64, columns, dtype)))
    assert bool(found) == said
    assert not said or ("a dimension of 50257, which 8 does not divide: 50264 (padded with 7)" in found[0] and len(found) == 1)


def test_operators_that_are_torchs_own():
    def own(x):
        for _ in range(3):
            x = torch.linalg.inv(x) + 1
        return x

    [found] = [line for line in advice(own, torch.rand(3, 3)) if "torch's own" in line]
    assert "linalg_inv_ex (3)" in found and "opmill.profile" in found


@torch.library.custom_op("opmill_advice::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def test_an_operator_of_a_library():
    [found] = advice(lambda x: twice(x.sin()).cos(), torch.rand(3))
    assert "1 of 3 steps are operators of a library (opmill_advice::twice)" in found


MOUNTS = """rootfs / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sda /home/local\\040disk xfs rw 0 0
store /data fuse.s3fs rw 0 0
lxcfs /proc/x fuse.lxcfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/me/.cache/opmill", "nfs4"),
        ("/home/local disk/cache", ""),
        ("/data", "fuse.s3fs"),
        ("/database", ""),
        ("/tmp", ""),
        ("/proc/x/y", ""),
    ],
)
def test_a_cache_on_a_file_system_of_other_machines(folder, kind, tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(filesystems, "_MOUNTS", mounts)
    assert filesystems.network_filesystem(folder) == kind
    graphs = [GraphRecord(0, 1, 1, "", 0.0, report=Report(phases={"load": 1.25, "store": 0.5, "lower": 9.0}))]
    found = advice_on(Seen(graphs, (), (), None, None, folder))
    assert [f"{folder} lies on" in line and f"({kind})" in line and "took 1.75 s" in line for line in found] == [True] * bool(kind)


def test_where_nobody_tells_of_mounts_nothing_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystems, "_MOUNTS", tmp_path / "none")
    assert filesystems.network_filesystem("/home") == ""

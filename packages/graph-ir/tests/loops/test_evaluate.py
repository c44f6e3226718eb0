"""The reference interpreter of kernels, on kernels as text."""

import pytest
import torch

from opmill_graph_ir.loops.evaluate import REDUCERS, SCANNERS, evaluate
from opmill_graph_ir.loops.ir import SORTS
from opmill_graph_ir.loops.text import parse

NAN = float("nan")


def run(text, sizes=(), wide=False, **buffers):
    return evaluate(parse(text), buffers, sizes, wide=wide)


def test_a_value_of_a_phase_without_axes_is_seen_by_later_ones():
    text = """kernel k(s0)
  in x: float32[3*s0]
  out y: float32[3*s0]
nest i<3
  phase j<s0
    sum s: float32 = x[s0*i + j]
  phase
    let v = mul(s, float32(2.0))
  phase j<s0
    set y[s0*i + j] = add(x[s0*i + j], v)
"""
    x, y = torch.randn(3, 4), torch.zeros(12)
    assert run(text, (4,), x=x.flatten(), y=y) == 0
    torch.testing.assert_close(y.reshape(3, 4), x + 2 * x.sum(1, keepdim=True))


def test_a_check_that_fails_is_told_by_its_number_and_nothing_of_its_phase_is_stored():
    text = """kernel k()
  in x: float32[4]
  out y: float32[4]
  out z: float32[4]
nest i<4
  phase
    check gt(x[i], float32(0.0)), 'E', 'first'
    set y[i] = x[i]
nest i<4
  phase
    check lt(x[i], float32(9.0)), 'E', 'second'
    set z[i] = x[i]
"""
    x, y, z = torch.tensor([1.0, 2.0, 3.0, 10.0]), torch.zeros(4), torch.zeros(4)
    assert run(text, x=x, y=y, z=z) == 2 and torch.equal(y, x) and not z.any()
    assert run(text, x=-x, y=y, z=z) == 1 and torch.equal(y, x)


def test_masked_loads_touch_no_memory_outside():
    text = """kernel k()
  in x: float32[2]
  out y: float32[4]
nest i<4
  phase
    set y[i] = x.where(lt(int64.at(i), int64(2)), i, float32(7.0))
"""
    y = torch.zeros(4)
    assert run(text, x=torch.tensor([1.0, 2.0]), y=y) == 0 and y.tolist() == [1.0, 2.0, 7.0, 7.0]
    assert run(text.replace("lt(int64.at(i), int64(2))", "lt(int64.at(i), int64(0))"), x=torch.zeros(0), y=y) == 0 and (y == 7).all()


@pytest.mark.parametrize(("mode", "want"), [("add", 16.0), ("mul", 60.0), ("max", 5.0), ("min", 1.0), ("set", 5.0)])
def test_stores_into_one_place(mode, want):
    text = f"""kernel k()
  in x: float32[3]
  inout y: float32[1]
nest i<3
  phase
    {mode} y[0] = x[i]
"""
    y = torch.tensor([{"add": 5.0, "mul": 1.0, "max": -9.0, "min": 9.0, "set": 0.0}[mode]])
    x = torch.tensor([2.0, 4.0, 5.0]) if mode in ("add",) else torch.tensor([3.0, 4.0, 5.0])
    if mode == "min":
        x = torch.tensor([3.0, 1.0, 5.0])
    assert run(text, x=x, y=y) == 0 and y.item() == want


def test_wide_arithmetic_keeps_what_float32_loses():
    text = """kernel k()
  in x: float32[2]
  out y: float32[1]
nest
  phase j<2
    sum s: float32 = x[j]
  phase
    set y[0] = sub(s, float32(1.0))
"""
    x, narrow, wide = torch.tensor([1.0, 1e-9]), torch.zeros(1), torch.zeros(1, dtype=torch.float64)
    run(text, x=x, y=narrow)
    run(text, x=x, y=wide, wide=True)
    assert narrow.item() == 0 and abs(wide.item() - 1e-9) < 1e-14


@pytest.mark.parametrize("op", sorted(REDUCERS))
def test_reductions_go_along_the_last_dimension(op):
    """Against Python, on numbers that may be the same."""
    rows = torch.tensor([[3.0, 1.0, 3.0], [0.0, 2.0, 0.0]])
    dtype = torch.bool if op in ("any", "all") else torch.int64 if op == "xor" else torch.float32
    found = [t.tolist() for t in REDUCERS[op](rows.to(dtype), dtype)]
    want = {
        "sum": [[7.0, 2.0]],
        "prod": [[9.0, 0.0]],
        "max": [[3.0, 2.0]],
        "min": [[1.0, 0.0]],
        "any": [[True, True]],
        "all": [[True, False]],
        "xor": [[1, 2]],
        "argmax": [[3.0, 2.0], [0, 1]],
        "argmin": [[1.0, 0.0], [1, 0]],
        "welford": [[pytest.approx(7 / 3), pytest.approx(2 / 3)], [pytest.approx(8 / 3), pytest.approx(8 / 3)]],
    }
    assert found == want[op]


def test_the_first_nan_is_the_largest_and_the_smallest():
    rows = torch.tensor([1.0, NAN, 3.0, NAN])
    assert [REDUCERS[op](rows, torch.float32)[1].item() for op in ("argmax", "argmin")] == [1, 1]


@pytest.mark.parametrize("back", ["", "back."])
@pytest.mark.parametrize("op", sorted(SCANNERS))
def test_scans_go_in_their_direction(op, back):
    if back and op in SORTS:
        return
    values = "x[j]; y[j]" if op == "affine" else "x[j]"
    names = "r, q" if op in SORTS or op.startswith("arg") else "r"
    text = f"""kernel k()
  in x: float32[4]
  in y: float32[4]
  out z: float32[4]
nest
  phase j<4
    scan.{back}{op} {names}: float32 = {values}
    set z[j] = r
"""
    x, y, z = torch.tensor([3.0, 1.0, 2.0, 2.0]), torch.tensor([1.0, -1.0, 0.5, 2.0]), torch.zeros(4)
    assert run(text, x=x, y=y, z=z) == 0
    turned = (lambda t: t.flip(0)) if back else (lambda t: t)
    a, b = turned(x), turned(y)
    states = [b[0]]
    for k in range(1, 4):
        states.append(a[k] * states[-1] + b[k])
    want = {
        "sum": a.cumsum(0),
        "prod": a.cumprod(0),
        "logaddexp": a.logcumsumexp(0),
        "affine": torch.stack(states),
        "argmax": a.cummax(0).values,
        "argmin": a.cummin(0).values,
        "ascending": a.sort().values,
        "descending": a.sort(descending=True).values,
    }
    torch.testing.assert_close(z, turned(want[op]))

"""Nests that do the same to other buffers, as one launch."""

from dataclasses import replace

from opmill_graph_ir.loops.ir import Check, Const
from opmill_graph_ir.loops.text import parse
from opmill_kernel_gen_triton.pack import POINTERS, Pack, batches, pack


def kernel(*nests, buffers="abcdefgh"):
    lines = ["kernel k()", *(f"  inout {name}: float32[8]" for name in buffers)]
    for to, value in nests:
        lines += ["nest i<8", "  phase", f"    set {to}[i] = {value}"]
    return parse("\n".join(lines))


def shown(made):
    return [[sorted(part.members) if isinstance(part, Pack) else "nest" for part in batch] for batch in batches(made.nests, made.buffers)]


def test_nests_that_do_the_same_are_one_launch():
    found = shown(kernel(("b", "exp(a[i])"), ("d", "exp(c[i])"), ("e", "neg(c[i])")))
    assert found == [[[("a", "b"), ("c", "d")], "nest"]]


def test_what_reads_what_another_writes_waits():
    assert shown(kernel(("b", "exp(a[i])"), ("c", "exp(b[i])"))) == [["nest"], ["nest"]]
    assert shown(kernel(("b", "exp(a[i])"), ("a", "exp(c[i])"))) == [["nest"], ["nest"]]
    assert shown(kernel(("b", "exp(a[i])"), ("b", "exp(c[i])"))) == [["nest"], ["nest"]]


def test_a_launch_has_so_many_pointers():
    names = [f"x{k}" for k in range(2 * POINTERS)]
    made = kernel(*((names[2 * k + 1], f"exp({names[2 * k]}[i])") for k in range(POINTERS)), buffers=names)
    parts = pack(made.nests, made.buffers)
    assert len(parts) > 1 and all(sum(map(len, part.members)) <= POINTERS for part in parts)
    assert sum(len(part.members) for part in parts) == POINTERS


def test_what_checks_is_done_alone():
    made = kernel(("b", "exp(a[i])"), ("d", "exp(c[i])"))
    nests = tuple(replace(n, phases=(replace(n.phases[0], checks=(Check(Const(True, "bool"), "E", "m"),)),)) for n in made.nests)
    assert [type(part) is Pack for part in pack(nests, made.buffers)] == [False, False]

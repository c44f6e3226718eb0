"""Nested blocks of lines."""

from opmill_kernel_gen_cpp.emit.block import Block


def test_what_is_written_outside_while_a_block_is_open_stands_before_it():
    outer = Block()
    outer.add("a;")
    inner = outer.nested("for (;;)")
    inner.add("c;")
    outer.add("b;")
    deep = inner.nested("if (x)")
    deep.add("d;")
    deep.close()
    inner.close()
    outer.add("e;")
    assert outer.lines == ["a;", "b;", "for (;;) {", "  c;", "  if (x) {", "    d;", "  }", "}", "e;"]
    assert (outer.depth, inner.depth, deep.depth) == (0, 1, 2) and inner.memo is not outer.memo

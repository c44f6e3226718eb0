"""Texts inside of texts, and marks that quotes hide."""

import pytest

from opmill_graph_ir.inner_texts import Reading, Writing, apart


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a = b   # c.py:3", ("a = b", "c.py:3")),
        ("a = b", ("a = b", "")),
        ("f('x   # y')   # z   # w", ("f('x   # y')", "z   # w")),
        ("""f("it's   # y")   # z""", ("""f("it's   # y")""", "z")),
        (r"f('\'   # y')   # z", (r"f('\'   # y')", "z")),
        ("f('x   # y')", ("f('x   # y')", "")),
        ("a   # it's", ("a", "it's")),
    ],
)
def test_a_mark_counts_outside_of_quotes(line, found):
    assert apart(line, "   # ") == found


def test_each_text_is_written_once_and_read_back_as_one_object():
    writing = Writing()
    numbers = [writing.number(kind, key, lambda key=key: f"{key}\n  more") for kind, key in (("body", "a"), ("kernel", "b"), ("body", "a"))]
    assert numbers == [0, 1, 0]
    reading = Reading()
    lines = [*writing.lines, "use 0", "    not of a text"]
    assert [line for line in lines if not reading.takes(line)] == ["use 0", "    not of a text"]
    assert reading.made(1, str.upper) == "B\n  MORE"
    assert reading.made(0, lambda text: [text]) is reading.made(0, list)
    with pytest.raises(IndexError):
        reading.made(2, str)


def test_texts_nest():
    inner, outer = Writing(), Writing()
    inner.number("body", 1, lambda: "deep")
    outer.number("body", 2, lambda: "\n".join([*inner.lines, "calls 0"]))
    reading = Reading()
    assert all(map(reading.takes, outer.lines))

    def parse(text):
        within = Reading()
        [line] = [line for line in text.splitlines() if not within.takes(line)]
        return line, within.made(0, str)

    assert reading.made(0, parse) == ("calls 0", "deep")

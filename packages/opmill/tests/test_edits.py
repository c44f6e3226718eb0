"""A graph whose kernels are edited is compiled in the call behind an edit, and only then."""

import os

from opmill.edits import EditedGraph, Edits


def test_each_edit_compiles_once(tmp_path):
    file = tmp_path / "kernel.cpp"
    file.write_text("1")
    compiled = []

    def again(inputs):
        compiled.append(inputs)
        return lambda *inputs: (len(compiled), *inputs)

    graph = EditedGraph(lambda *inputs: (0, *inputs), Edits(tmp_path, [file]), again)
    assert graph(7) == (0, 7) and compiled == []
    file.write_text("two")
    assert graph(7) == graph(7) == (1, 7) and compiled == [(7,)]
    file.unlink()  # an editor puts another file in its place
    assert graph(8) == (2, 8)
    file.write_text("two")
    assert graph(9) == (3, 9) and len(compiled) == 3


def test_the_same_text_written_again_is_an_edit(tmp_path):
    file = tmp_path / "kernel.cpp"
    file.write_text("1")
    edits = Edits(tmp_path, [file])
    before = edits.stamps()
    os.utime(file, ns=(1, 1))
    assert edits.stamps() != before


def test_nothing_to_edit_is_never_another(tmp_path):
    assert Edits(tmp_path).stamps() == ()

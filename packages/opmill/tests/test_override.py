"""Kernels that were edited in a folder are built instead of those that would be generated."""

import pytest
import torch

import opmill
from opmill_graph_ir.errors import KernelBuildError

pytest.importorskip("opmill_kernel_gen_cpp")


def f(x):
    return torch.exp(x) * 2


X = torch.linspace(-1, 1, 37)


def run(folder, function=f):
    return opmill.compile(function, fullgraph=True, options={"override": folder, "suppress_errors": False})(X)


def files(folder):
    return {file.suffix: file for file in folder.iterdir()}


def edit(file, old, new):
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_kernels_are_written_and_used_as_they_are(tmp_path):
    torch.testing.assert_close(run(tmp_path), f(X))
    written = {suffix: file.read_text() for suffix, file in files(tmp_path).items()}
    assert set(written) == {".loops", ".cpp"}
    torch.testing.assert_close(run(tmp_path), f(X))
    assert {suffix: file.read_text() for suffix, file in files(tmp_path).items()} == written


def test_edited_loops_are_built(tmp_path):
    run(tmp_path)
    edit(files(tmp_path)[".loops"], "float32(2.0)", "float32(5.0)")
    torch.testing.assert_close(run(tmp_path), torch.exp(X) * 5)
    assert "5" in files(tmp_path)[".cpp"].read_text()  # which nobody edited: it is generated anew
    files(tmp_path)[".loops"].unlink()
    torch.testing.assert_close(run(tmp_path), f(X))


def test_edited_text_is_built(tmp_path):
    run(tmp_path)
    file = files(tmp_path)[".cpp"]
    head = 'extern "C" long kernel('
    edit(file, head, 'extern "C" long generated(')
    own = "{ const float* a = (const float*)p[0]; float* b = (float*)p[1]; for (int i = 0; i < 37; i++) b[i] = a[i] + 7; return 0; }"
    file.write_text(file.read_text() + f"\n{head}void* const* p, const long* s) {own}\n")
    torch.testing.assert_close(run(tmp_path), X + 7)
    torch.testing.assert_close(opmill.compile(f)(X), f(X))  # without the folder


def test_a_text_of_ones_own_needs_no_mark(tmp_path):
    run(tmp_path)
    file = files(tmp_path)[".loops"]
    text = file.read_text().partition("\n")[2]
    file.write_text(text.replace("float32(2.0)", "float32(4.0)"))
    torch.testing.assert_close(run(tmp_path), torch.exp(X) * 4)


@pytest.mark.parametrize(
    ("suffix", "old", "new", "message"),
    [
        (".loops", "float32(2.0)", "float32(", "GI035"),
        (".loops", "float32[37]", "float32[36]", "GI036"),
        (".cpp", 'extern "C" long kernel(', 'extern "C" wrong kernel(', "wrong"),
    ],
)
def test_what_cannot_be_built_is_an_error(tmp_path, suffix, old, new, message):
    run(tmp_path)
    edit(files(tmp_path)[suffix], old, new)
    with pytest.raises(KernelBuildError, match=message):
        run(tmp_path)


def test_the_folder_may_be_named_in_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OPMILL_OVERRIDE", str(tmp_path))
    opmill.compile(f)(X)
    edit(files(tmp_path)[".loops"], "float32(2.0)", "float32(6.0)")
    torch.testing.assert_close(opmill.compile(f)(X), torch.exp(X) * 6)


def test_other_kernels_stay_as_they_are(tmp_path):
    def two(x):
        return torch.exp(x) * 2, torch.cumsum(x * 3, 0)

    run(tmp_path, two)
    edit(next(file for file in tmp_path.glob("*.loops") if "float32(2.0)" in file.read_text()), "float32(2.0)", "float32(8.0)")
    first, second = run(tmp_path, two)
    torch.testing.assert_close(first, torch.exp(X) * 8)
    torch.testing.assert_close(second, two(X)[1])

"""``opmill.kernels``: the kernels of what was compiled, their texts, and edits that run from the next call on."""

import sys
import warnings

import pytest
import torch

import opmill

pytest.importorskip("opmill_kernel_gen_cpp")

X = torch.linspace(-1, 1, 37)


def f(x):
    return torch.exp(x) * 2


@opmill.disable
def apart():
    """What ends a graph."""


LINE = f.__code__.co_firstlineno + 1


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OPMILL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("OPMILL_OVERRIDE", raising=False)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)


def called(function=f, **arguments):
    compiled = opmill.compile(function, **arguments)
    compiled(X)
    return compiled


def change(file, old, new):
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_kernels_have_names_lines_and_texts():
    seen = opmill.kernels(called())
    [name] = seen
    kernel = seen[name]
    assert kernel.name == name and kernel.operators == "exp+mul" and kernel.lines == (f"{__file__}:{LINE}",)
    assert (kernel.graphs, kernel.launches, kernel.device) == ((0,), 1, "cpu")
    assert kernel.loops.startswith(f"kernel {name}(") and 'extern "C"' in kernel.source
    assert name in repr(seen) and "exp+mul" in repr(kernel) and name in seen._repr_html_()


def test_a_plan_from_the_cache_has_them_too():
    first = opmill.kernels(called())
    second = opmill.kernels(called(lambda x: torch.exp(x) * 2))
    assert opmill.counters()["plans_from_cache"] >= 1
    assert [k.loops for k in first.values()] == [k.loops for k in second.values()]


def test_what_is_made_of_gradients_is_there():
    compiled = opmill.compile(lambda x: torch.exp(x).sin().sum())
    compiled(X.clone().requires_grad_()).backward()
    first = compiled.__wrapped__.__code__.co_firstlineno
    assert len(opmill.kernels(compiled)) == 2
    assert all(kernel.lines == (f"{__file__}:{first}",) for kernel in opmill.kernels(compiled).values())


def test_one_kernel_of_several_graphs_is_one():
    def two(x):
        y = torch.exp(x) * 2
        apart()
        return torch.exp(y) * 2

    [kernel] = opmill.kernels(called(two)).values()
    assert kernel.launches == 2 and len(kernel.graphs) == 2


def test_kernels_of_one_name_are_numbered():
    def two(x):
        y = torch.exp(x) * 2
        apart()
        return torch.exp(y) * 3

    first, second = opmill.kernels(called(two))
    assert second == f"{first}_2"


def test_an_unknown_name_names_a_near_one():
    seen = opmill.kernels(called())
    with pytest.raises(KeyError, match=next(iter(seen))):
        seen["no such kernel"]


@pytest.mark.parametrize("what", ["source", "loops"])
def test_edits_run_from_the_next_call_on(what):
    compiled = called()
    [kernel] = opmill.kernels(compiled).values()
    file = kernel.edit(what)
    torch.testing.assert_close(compiled(X), f(X))
    change(file, "2.0", "3.0")
    torch.testing.assert_close(compiled(X), torch.exp(X) * 3)
    change(file, "3.0", "5.0")
    torch.testing.assert_close(compiled(X), torch.exp(X) * 5)
    file.unlink()
    torch.testing.assert_close(compiled(X), f(X))
    torch.testing.assert_close(called()(X), f(X))  # another callable of the same kernel


def edited(function=f, **arguments):
    compiled = called(function, **arguments)
    [kernel] = opmill.kernels(compiled).values()
    change(kernel.edit("loops"), "2.0", "3.0")
    return compiled


def test_what_was_edited_is_shown():
    compiled = edited()
    compiled(X)
    [kernel] = opmill.kernels(compiled).values()
    assert "3" in kernel.source and kernel.launches == 1 and "2.0" in kernel.loops


def test_a_module_with_gradients_is_edited():
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(37))

        def forward(self, x):
            return torch.exp(x * self.w) * 2

    module = Module()
    compiled = opmill.compile(module)
    compiled(X).sum().backward()
    for kernel in opmill.kernels(compiled).values():
        if "float32(2.0)" in kernel.loops:
            change(kernel.edit("loops"), "float32(2.0)", "float32(3.0)")
    module.w.grad = None
    result = compiled(X)
    torch.testing.assert_close(result, torch.exp(X) * 3)
    result.sum().backward()
    assert module.w.grad is not None


def test_sizes_that_vary():
    compiled = opmill.compile(f, dynamic=True)
    compiled(X)
    [kernel] = opmill.kernels(compiled).values()
    file = kernel.edit("loops")
    torch.testing.assert_close(compiled(X), f(X))
    change(file, "2.0", "3.0")
    for size in (5, 11):
        torch.testing.assert_close(compiled(torch.ones(size)), torch.exp(torch.ones(size)) * 3)
    assert opmill.explain(compiled)(X).recompiles == 0


def test_what_cannot_be_built_warns_until_it_is_mended():
    compiled = called()
    [kernel] = opmill.kernels(compiled).values()
    file = kernel.edit("loops")
    text = file.read_text()
    change(file, "float32(2.0)", "float32(")
    with pytest.warns(opmill.OpmillWarning, match="GI035"):
        torch.testing.assert_close(compiled(X), f(X))
    file.write_text(text.replace("float32(2.0)", "float32(4.0)"))
    torch.testing.assert_close(compiled(X), torch.exp(X) * 4)


def test_an_editor_is_run_with_the_file(tmp_path):
    editor = tmp_path / "editor.py"
    editor.write_text("import sys; p = sys.argv[1]; t = open(p).read(); open(p, 'w').write(t.replace('2.0', '6.0'))")
    compiled = called()
    [kernel] = opmill.kernels(compiled).values()
    kernel.edit("loops", editor=f"{sys.executable} {editor}")
    torch.testing.assert_close(compiled(X), torch.exp(X) * 6)


def test_the_folder_of_the_options_is_where_edits_are(tmp_path):
    folder = tmp_path / "folder"
    compiled = edited(options={"override": str(folder)})
    torch.testing.assert_close(compiled(X), torch.exp(X) * 3)
    torch.testing.assert_close(opmill.compile(f, options={"override": str(folder)})(X), torch.exp(X) * 3)


def test_the_same_arguments_check_what_was_edited():
    compiled = edited()
    assert not opmill.check(compiled)(X)
    found = opmill.bisect(compiled)(X)
    assert found.where and f"line {LINE}" in found.where[0] or f":{LINE}" in str(found)
    assert opmill.check(compiled, options={})(X)
    assert opmill.check(f)(X)
    [step] = opmill.profile(compiled, calls=1)(X).steps
    assert step.kind == "kernel"


def test_a_faulty_text_is_told_from_its_loops():
    compiled = called()
    [kernel] = opmill.kernels(compiled).values()
    change(kernel.edit(), "2.0", "3.0")
    assert [fault.name for fault in opmill.bisect(compiled)(X).kernels] == [kernel.name]


def test_only_what_opmill_compiled_has_kernels():
    for wrong in (f, opmill.compile(f, backend="eager")):
        with pytest.raises(TypeError, match="OM029"):
            opmill.kernels(wrong)
    assert repr(opmill.kernels(opmill.compile(f))) == "no kernels"


def test_only_texts_and_loops_are_edited():
    [kernel] = opmill.kernels(called()).values()
    with pytest.raises(ValueError, match="OM028"):
        kernel.edit("assembly")


def test_nothing_is_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        edited()(X)

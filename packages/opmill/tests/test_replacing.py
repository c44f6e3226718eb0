"""``torch.compile`` replaced, its options, ``opmill run``, and ``compiled.forward``."""

from __future__ import annotations

import sys
import textwrap

import pytest
import torch

import opmill
from opmill.cli import main
from opmill.compile import record_of
from opmill.errors import warn_once
from opmill.options import resolve_options
from opmill.torch_options import MEANINGS, _names


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, scale=1):
        return self.linear(x).relu() * scale


X = torch.linspace(-2, 2, 8).reshape(2, 4)


def compiles(run):
    """How many graphs of functions that were compiled while ``run`` ran there are."""
    from opmill.compile import _live

    before = set(map(id, list(_live)))
    kept = run()
    made = [record for function, record in list(_live.items()) if id(function) not in before]
    return sum(len(record.graphs) for record in made), kept


def test_torch_compile_is_opmills_until_it_is_not():
    theirs = torch.compile

    def program():
        model = torch.compile(Net(), dynamic=False)
        in_place = Net()
        in_place.compile(fullgraph=True)

        @torch.compile
        def f(x):
            return x * 2

        @torch.compile(backend="eager")
        def g(x):
            return x * 3

        return [model(X), in_place(X), f(X), g(X), model, in_place, f, g]

    with opmill.replace_torch_compile():
        count, kept = compiles(program)
    assert torch.compile is theirs
    assert count == 4
    assert torch.equal(kept[2], X * 2)
    assert torch.equal(kept[3], X * 3)
    switch = opmill.replace_torch_compile()
    assert torch.compile is not theirs
    switch.undo()
    switch.undo()
    assert torch.compile is theirs


def test_it_is_given_back_after_an_exception():
    theirs = torch.compile
    with pytest.raises(KeyError), opmill.replace_torch_compile():
        raise KeyError
    assert torch.compile is theirs


def test_a_script_is_run_as_python_runs_it(tmp_path, capsys):
    (tmp_path / "beside.py").write_text("value = 3\n")
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, torch, beside
            assert __name__ == "__main__"
            f = torch.compile(lambda x: x * beside.value)
            print(type(f).__name__, f(torch.ones(2)).tolist(), sys.argv[1:], "torch._dynamo" in sys.modules)
            """
        )
    )
    before = sys.argv[:], sys.path[:], torch.compile, "torch._dynamo" in sys.modules
    assert main(["run", str(script), "--epochs", "3"]) == 0
    assert capsys.readouterr().out.strip() == f"CompiledFunction [3.0, 3.0] ['--epochs', '3'] {before[3]}"
    assert (sys.argv, sys.path, torch.compile, "torch._dynamo" in sys.modules) == before
    sys.modules.pop("beside")


def test_options_of_torchs_have_their_meaning_or_are_ignored():
    warn_once.cache_clear()
    assert resolve_options("default", {"triton.cudagraphs": True, "max_autotune": True}) == opmill.Options(cuda_graphs=True, autotune=True)
    with pytest.warns(opmill.OpmillWarning, match="OM020.*epilogue_fusion, guard_filter_fn"):
        found = resolve_options("default", {"epilogue_fusion": True, "guard_filter_fn": len, "verify": True})
    assert found == opmill.Options(verify=True)
    with pytest.raises(ValueError, match="OM004"):
        resolve_options("default", {"no_such_option": 1})
    assert {name for name in MEANINGS if "." not in name} <= _names()
    assert "triton.cudagraphs" in _names()


def test_forward_of_a_compiled_module_runs_compiled():
    class Own(Net):  # modules of one class share what was compiled, and another test's may live still
        pass

    model = Own()
    compiled = opmill.compile(model, fullgraph=True)
    count, result = compiles(lambda: compiled.forward(X, scale=2))
    assert torch.allclose(result, model.forward(X, scale=2))
    assert count == 1
    assert compiled.forward is compiled.forward
    assert not record_of(compiled)[1].graphs  # the call is another function
    compiled.forward = lambda x: x + 1
    assert torch.equal(model(X), X + 1)
    assert torch.equal(compiled.forward(X), X + 1)
    del compiled.forward
    assert torch.allclose(compiled(X), model(X))
    with pytest.raises(AttributeError):
        del compiled.forward

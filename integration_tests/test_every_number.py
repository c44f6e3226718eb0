"""Every number of the list of errors is raised by some test; these raise what no test beside them is about, the rest is counted."""

import collections
import random
import re
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch

import opmill
from opmill.explain import explanation_of
from opmill_graph_ir.backend import compile_graph
from opmill_graph_ir.errors import GraphError, GraphWarning, KernelBuildError
from opmill_graph_ir.generator.protocol import GeneratorOptions
from opmill_graph_ir.loops.cases import cases

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "errors.md"
X = torch.ones(4)


@opmill.disable
def apart() -> None:
    """What ends a graph."""


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, kinds, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return function(*args, **(kwargs or {}))


class Plain:
    """Has no attribute that is read below."""


LIBRARY = torch.library.Library("opmill_audit", "DEF")
LIBRARY.define("without_fake(Tensor x) -> Tensor")
LIBRARY.impl("without_fake", lambda x: x + 1, "CPU")


def a_generator_of_numbers(x):  # type: ignore[no-untyped-def]
    return torch.rand(4, generator=torch.Generator()) + x


def a_weak_reference(x):  # type: ignore[no-untyped-def]
    found = weakref.ref(x)
    return x + 1, found()


def a_choice_of_strings(x):  # type: ignore[no-untyped-def]
    return x * random.choice(["a", "b"]).count("a")


def a_view_of_a_mapping(x):  # type: ignore[no-untyped-def]
    return x + len(types.MappingProxyType(collections.ChainMap({})))


def an_assignment_to_sys(x):  # type: ignore[no-untyped-def]
    sys.stdout = sys.stdout
    return x + 1


def the_hash_of_a_tensor(x):  # type: ignore[no-untyped-def]
    return x + (hash(x) is None)


def the_text_of_a_tensor(x):  # type: ignore[no-untyped-def]
    return x + 1, str(x)


def a_function_mode(x):  # type: ignore[no-untyped-def]
    with Mode():
        return x + torch.result_type(x, x).itemsize


def an_object_as_an_operand(x):  # type: ignore[no-untyped-def]
    return torch.add(x, Plain())


def an_operator_without_a_fake(x):  # type: ignore[no-untyped-def]
    return torch.ops.opmill_audit.without_fake(x)


def the_names_of_a_class_body(x):  # type: ignore[no-untyped-def]
    class Made:
        names = locals()

    return x + 1


def a_warning_that_is_caught(x):  # type: ignore[no-untyped-def]
    with warnings.catch_warnings(record=True) as caught:
        warnings.warn("a", stacklevel=2)
        return x + len(caught)


def a_break_in_inference_mode(x):  # type: ignore[no-untyped-def]
    with torch.inference_mode():
        y = x + 1
        apart()
        return y * 2


def a_masked_array(x):  # type: ignore[no-untyped-def]
    return torch.from_numpy(numpy.ma.masked_less(x.numpy(), 0).filled(0.0))


BREAKS: dict[str, Callable[..., object]] = {
    "FE012": a_generator_of_numbers,
    "FE018": a_weak_reference,
    "FE019": a_choice_of_strings,
    "FE020": a_view_of_a_mapping,
    "FE021": an_assignment_to_sys,
    "FE024": the_hash_of_a_tensor,
    "FE025": the_text_of_a_tensor,
    "FE029": a_function_mode,
    "FE034": an_object_as_an_operand,
    "FE039": an_operator_without_a_fake,
    "FE063": the_names_of_a_class_body,
    "FE068": a_warning_that_is_caught,
    "FE074": a_break_in_inference_mode,
    "FE085": a_masked_array,
}


@pytest.mark.parametrize("code", BREAKS)
def test_what_ends_a_graph_has_its_number(code: str) -> None:
    seen = []
    compiled = opmill.compile(BREAKS[code], backend="eager")
    try:
        compiled(X.clone())
    except Exception as error:  # as eager raises it
        seen.append(type(error).__name__)
    breaks = explanation_of(compiled).breaks
    assert code in [found.code for found in breaks], (seen, breaks)


def test_arguments_of_another_kind() -> None:
    for arguments in ({"mode": 3}, {"fullgraph": 1}, {"dynamic": "yes"}):
        with pytest.raises(TypeError, match="OM002"):
            opmill.compile(torch.sin, **arguments)  # type: ignore[arg-type, call-overload]
    with pytest.raises(TypeError, match="OM005"):
        opmill.compile(torch.sin, options=["cache"])  # type: ignore[call-overload]


def test_a_backend_that_fails() -> None:
    def failing(gm, inputs):  # type: ignore[no-untyped-def]
        raise ZeroDivisionError("of its own")

    with pytest.warns(opmill.OpmillWarning, match="OM024"):
        assert torch.equal(opmill.compile(lambda x: x + 1, backend=failing)(X), X + 1)


def test_crashes_are_not_looked_for_beside_a_gpu(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(ValueError, match="OM025"):
        opmill.bisect(lambda x: x + 1, of="crash")(X)


def test_memory_that_no_library_counts(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from opmill.diagnose import symptoms

    monkeypatch.setattr(symptoms.ctypes, "CDLL", lambda name: types.SimpleNamespace())
    with pytest.raises(ValueError, match="OM026"):
        opmill.bisect(lambda x: x + 1, of="memory")(X)


def test_a_generator_that_cannot_be_loaded(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from opmill_graph_ir import backend

    def broken() -> None:
        raise ImportError("a part is missing")

    entry = types.SimpleNamespace(name="broken", load=broken)
    monkeypatch.setattr(backend, "entry_points", lambda group: [entry])
    backend._loaded_generators.cache_clear()
    try:
        with pytest.warns(GraphWarning, match="GI031"):
            assert backend.installed_generators() == ()
    finally:
        backend._loaded_generators.cache_clear()


def test_graphs_that_give_nothing_that_can_be_given() -> None:
    graph = torch.fx.Graph()
    graph.placeholder("x")
    graph.output(({1, 2},))
    with pytest.raises(GraphError, match="GI006"):
        compile_graph(torch.fx.GraphModule(torch.nn.Module(), graph), [X])


def test_graphs_inside_of_forward_mode() -> None:
    graph = torch.fx.symbolic_trace(lambda x: (x + 1,))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(GraphError, match="GI011"):
        compile_graph(graph, [X])


@pytest.mark.parametrize(("package", "code"), [("opmill_kernel_gen_cpp.build", "KC004"), ("opmill_kernel_gen_triton.kernel", "KT004")])
def test_text_that_cannot_be_written(package: str, code: str, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    module = pytest.importorskip(package)

    def fails(*told: object) -> None:
        raise LookupError("no such primitive")

    monkeypatch.setattr(module, "kernel_text", fails)
    generators = pytest.importorskip(f"{package.partition('.')[0]}.generator")
    generator = generators.CppKernelGenerator() if code == "KC004" else generators.TritonKernelGenerator(90)
    with pytest.raises(KernelBuildError, match=code):
        generator.text(cases()[0].kernel, GeneratorOptions("cpu" if code == "KC004" else "cuda:0"))


UNRAISED = {"RC062": "a cache folder that cannot be read: whoever runs the tests as root can read every folder"}
"""Numbers that no test can raise everywhere, and why."""


def test_every_number_is_named_by_a_test_or_said_why_not() -> None:
    codes = re.findall(r"^### ([A-Z]{2}\d{3})$", PAGE.read_text(), re.MULTILINE)
    files = [*ROOT.glob("packages/*/tests/**/*.py"), *(ROOT / "integration_tests").glob("**/*.py")]
    own = Path(__file__)
    text = "".join(file.read_text() for file in files if file != own) + own.read_text().partition("UNRAISED =")[0]
    missing = [code for code in codes if code not in text]
    assert [code for code in missing if code not in UNRAISED] == [], "raise it in a test"
    assert [code for code in UNRAISED if code not in missing] == [], "it is named by a test now, or gone: strike it from the list"


def test_every_public_name_is_in_the_reference() -> None:
    """What a package gives at its top, but for names that say themselves that they are its own."""
    reference = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    missing = {
        name
        for top in ROOT.glob("packages/*/src/*/__init__.py")
        for name in re.findall(r"import (?:\w+ as )?(\w+) as \1\b", top.read_text())
        if not name.startswith("_") and not re.search(rf"\.{name}$", reference, re.MULTILINE)
    }
    assert missing == set()

"""Nodes of a graph tell the module whose code they are, so that times and faults can be told by module."""

import torch

from opmill_bytecode_frontend.entry.capture import capture


class Inner(torch.nn.Module):
    def forward(self, x):
        return twice(x).tanh()


def twice(x):
    return x * 2


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Inner(), torch.nn.Sequential(Inner())])
        self.named = torch.nn.ModuleDict({"it": Inner()})

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.named["it"](x) + 1


def modules_of(function, *args):
    found = []

    def backend(gm, inputs):
        found.extend(node.meta["module"] for node in gm.graph.nodes if node.op.startswith("call_"))
        return gm.forward

    capture(function, backend)(*args)
    return list(dict.fromkeys(found))


PATHS = ["layers.0", "layers.1.0", "named.it", ""]
model = Outer()


def test_paths_begin_at_what_is_called():
    assert modules_of(Outer.forward, Outer(), torch.ones(3)) == PATHS
    assert set(PATHS[:-1]) <= {name for name, _ in Outer().named_modules()}


def test_paths_begin_at_the_variable_of_a_function():
    def of_a_global(x):
        return model(x)

    def given(layer, x):
        return layer(x)

    for function, name, args in [(of_a_global, "model", ()), (given, "layer", (Outer(),))]:
        expected = [f"{name}.{path}" if path else name for path in PATHS]
        assert modules_of(function, *args, torch.ones(3)) == expected


def test_what_is_outside_of_modules_has_none():
    assert modules_of(lambda x: x + 1, torch.ones(3)) == [""]

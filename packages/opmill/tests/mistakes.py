"""Programs with a mistake that people make, each in the form in which it is met: what is said about them is tested here, and put beside
torch.compile's by ``benchmarks/mistakes.py``.

A program is a function of ``compile``. The line that is to be named is marked ``# here``. ``kind`` says what a message is about: a graph
that ends (``break``), a call that is compiled again (``recompile``), an exception that the program itself raises (``error``), what is said
in a warning (``warning``), an argument of ``compile`` that is refused (``usage``), time or memory that is wasted (``advice``), or nothing
to complain of, since it is captured (``captured``)."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import random
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import Struct

Compile = Callable[..., Any]


class Mistake(Struct, frozen=True):
    """``line``: that of the program which is to be named, 0 where the mistake has none."""

    title: str
    kind: str
    run: Callable[[Compile], Any]
    line: int

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def source(self) -> str:
        return "".join(inspect.getsourcelines(self.run)[0][1:])


MISTAKES: list[Mistake] = []


def mistake(title: str, kind: str) -> Callable[[Callable[[Compile], Any]], Callable[[Compile], Any]]:
    def add(run: Callable[[Compile], Any]) -> Callable[[Compile], Any]:
        lines, first = inspect.getsourcelines(run)
        marked = [first + number for number, line in enumerate(lines) if line.rstrip().endswith("# here")]
        MISTAKES.append(Mistake(title, kind, run, marked[0] if marked else 0))
        return run

    return add


X = torch.linspace(-1, 1, 12).reshape(3, 4)


@mistake("A branch on the values of a tensor", "break")
def data_dependent_branch(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum() > 0:  # here
            return y + 1
        return y - 1

    return compile(f)(X)


@mistake("`.item()` where a size is needed", "break")
def item_in_shape(compile: Compile) -> Any:
    def f(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        k = n.item()
        if k > 2:  # here
            return x[:, :k].sin()
        return x.cos()

    return compile(f)(X, torch.tensor(3))


@mistake("A tensor is printed", "break")
def print_of_a_tensor(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        print("mean", y.mean())  # here
        return y.cos()

    return compile(f)(X)


@mistake("A function written in C", "break")
def c_function(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        began = time.process_time()  # here
        return x.sin() + 0 * began

    return compile(f)(X)


def _third_party() -> Any:
    import zlib

    return zlib


@mistake("A C extension that computes on constants", "captured")
def c_extension(compile: Compile) -> Any:
    zlib = _third_party()

    def f(x: torch.Tensor, text: bytes) -> torch.Tensor:
        return x * (len(zlib.compress(text)) % 7)

    return compile(f)(X, b"abcabcabc")


@mistake("An operator without a fake kernel", "break")
def operator_without_fake(compile: Compile) -> Any:
    if not hasattr(torch.ops.mistakes, "scaled"):
        torch.library.define("mistakes::scaled", "(Tensor x, float s) -> Tensor")
        torch.library.impl("mistakes::scaled", "cpu", lambda x, s: x * s)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mistakes.scaled(x.sin(), 2.0).cos()  # here

    return compile(f)(X)


@mistake("Python code that computes with NumPy, as an operator that nobody registered", "break")
def unregistered_operator(compile: Compile) -> Any:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(np.convolve(x.detach().reshape(-1).tolist(), [1.0, 2.0]))  # here

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g

    def f(x: torch.Tensor) -> torch.Tensor:
        return Scale.apply(x.sin()).cos()

    return compile(f)(X)


@mistake("A break in a hot loop", "break")
def break_in_a_loop(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = x.sin() + 1
            if x.max() > 100:  # here
                break
        return x

    return compile(f)(X)


@mistake("A module's number that changes", "recompile")
def module_number(compile: Compile) -> Any:
    class Steps(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            if self.steps % 3 == 0:
                return x.sin()
            return x * self.steps

    m = compile(Steps())
    for _ in range(12):
        m(X)


@mistake("A closure over a float that changes", "recompile")
def changing_float(compile: Compile) -> Any:
    rate = 0.1

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * math.floor(rate * 100)

    g = compile(f)
    for n in range(12):
        rate = 0.1 * n
        g(X)


@mistake("A global that each call changes", "recompile")
def global_mutated(compile: Compile) -> Any:
    g = compile(_counts)
    for n in range(12):
        _STATE["name"] = f"step {n}"
        g(X)


_STATE = {"name": ""}


def _counts(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * len(_STATE["name"] + "x")


@mistake("A list that grows from call to call", "recompile")
def list_grows(compile: Compile) -> Any:
    seen: list[torch.Tensor] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.sin())
        return torch.stack(seen).sum(0)

    g = compile(f)
    for _ in range(12):
        g(X)


@mistake("A dict whose keys change from call to call", "recompile")
def dict_keys_change(compile: Compile) -> Any:
    def f(named: dict[str, torch.Tensor]) -> torch.Tensor:
        total = torch.zeros(3, 4)
        for name, value in named.items():
            total = total + value * len(name)
        return total

    g = compile(f)
    for n in range(12):
        g({f"feature_{n}": X, "bias": X})


@mistake("A size marked as dynamic is fixed by the program", "warning")
def marked_size_is_fixed(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(3, 4).sin() + torch.ones(3, 4)  # here

    x = X.clone()
    torch._dynamo.decorators.mark_dynamic(x, 0)
    return compile(f)(x)


@mistake("NumPy: an array of objects", "break")
def numpy_objects(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        table = np.array([1, "two", None], dtype=object)
        return x.sin() * len(table)  # here

    return compile(f)(X)


@mistake("NumPy: a distribution that torch draws otherwise", "break")
def numpy_distribution(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        mean = np.zeros(4)
        noise = np.random.multivariate_normal(mean, np.eye(4))  # here
        return x + torch.from_numpy(noise)

    return compile(f)(X)


@mistake("A branch on Python's random numbers", "break")
def python_random(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        if random.gauss(0, 1) > 0:  # here
            return x + 1
        return x - 1

    return compile(f)(X)


@mistake("Shapes that do not fit, inside of a block", "error")
def shape_mismatch(compile: Compile) -> Any:
    class Block(torch.nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.up, self.down = torch.nn.Linear(n, 8), torch.nn.Linear(9, n)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.down(self.up(x).relu())  # here

    return compile(torch.nn.Sequential(Block(4), Block(4)))(X)


@mistake("A device that is not there", "error")
def wrong_device(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin().to("xpu") + 1  # here

    return compile(f)(X)


@mistake("A product of two dtypes", "error")
def wrong_dtype(compile: Compile) -> Any:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.sin() @ w  # here

    return compile(f)(X, torch.ones(4, 4, dtype=torch.float64))


@mistake("In-place on a leaf that requires grad", "error")
def in_place_on_a_leaf(compile: Compile) -> Any:
    def f(w: torch.Tensor) -> torch.Tensor:
        w.mul_(2)  # here
        return w.sin()

    return compile(f)(torch.ones(3, requires_grad=True))


@mistake("A key that a dict lacks", "error")
def missing_key(compile: Compile) -> Any:
    def f(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return batch["inputs"].sin()  # here

    return compile(f)({"input": X})


@mistake("An attribute that a module lacks", "error")
def missing_attribute(compile: Compile) -> Any:
    class Head(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x.sin())  # here

    return compile(Head())(X)


@mistake("A key that cannot be hashed", "error")
def unhashable(compile: Compile) -> Any:
    def f(x: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        known = {(3, 4): 2.0}
        return x.sin() * known[sizes]  # type: ignore[index]  # here

    return compile(f)(X, [3, 4])


@mistake("Wrong arguments", "error")
def wrong_arguments(compile: Compile) -> Any:
    def norm(x: torch.Tensor, eps: float) -> torch.Tensor:
        return x / (x.norm() + eps)

    def f(x: torch.Tensor) -> torch.Tensor:
        return norm(x.sin())  # type: ignore[call-arg]  # here

    return compile(f)(X)


@mistake("A forgotten `.eval()`", "advice")
def forgotten_eval(compile: Compile) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(8, 2))
    with torch.no_grad():
        return compile(model)(X)


@mistake("An assertion on data under `fullgraph=True`", "captured")
def fullgraph_with_break(compile: Compile) -> Any:
    def loss(y: torch.Tensor) -> torch.Tensor:
        if torch.isnan(y).any():
            raise ValueError("not a number")
        return y.mean()

    def f(x: torch.Tensor) -> torch.Tensor:
        return loss(x.sin() * 2)

    return compile(f, fullgraph=True)(X)


@mistake("A graph break under `fullgraph=True`", "refusal")
def branch_under_fullgraph(compile: Compile) -> Any:
    def pick(y: torch.Tensor) -> torch.Tensor:
        return y.mean() if y.max() > 1 else y.sum()  # here

    def f(x: torch.Tensor) -> torch.Tensor:
        return pick(x.sin() * 2)

    return compile(f, fullgraph=True)(X)


@mistake("`try` around what breaks the graph", "break")
def try_around_a_break(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        try:
            y = x.sin()
            if y.sum() > 5:  # here
                raise ValueError("large")
        except ValueError:
            y = x.cos()
        return y + 1

    return compile(f)(X)


@mistake("A generator that is handed out", "captured")
def generator(compile: Compile) -> Any:
    def parts(x: torch.Tensor) -> Any:
        for row in x:
            yield row.sin()

    def f(x: torch.Tensor) -> Any:
        return parts(x * 2)

    return [part + 1 for part in compile(f)(X)]


@mistake("An asynchronous function", "captured")
def asynchronous(compile: Compile) -> Any:
    async def load(x: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return x.sin()

    async def f(x: torch.Tensor) -> torch.Tensor:
        return (await load(x)) + 1

    return asyncio.run(compile(f)(X))


@mistake("`breakpoint()` was left behind", "break")
def left_breakpoint(compile: Compile) -> Any:
    import sys

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        breakpoint()  # noqa: T100  # here
        return y.cos()

    sys.breakpointhook, kept = (lambda *a, **k: None), sys.breakpointhook
    try:
        return compile(f)(X)
    finally:
        sys.breakpointhook = kept


@mistake("A warning in captured code", "captured")
def warning_inside(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] < 4:
            warnings.warn("a small batch", stacklevel=2)
        return x.sin()

    return compile(f)(X)


@mistake("A tensor in a log line", "break")
def logging_inside(compile: Compile) -> Any:
    log = logging.getLogger("training")
    log.setLevel(logging.INFO)
    log.addHandler(logging.NullHandler())

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        log.info("loss %s", y.mean())  # here
        return y.cos()

    return compile(f)(X)


@mistake("`torch.save` in the model", "break")
def save_inside(compile: Compile) -> Any:
    file = Path(tempfile.gettempdir()) / "activations.pt"

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch.save(y, file)  # here
        return y.cos()

    return compile(f)(X)


@mistake("`x.data` is assigned", "captured")
def data_assigned(compile: Compile) -> Any:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        w.data = w.data * 0.9
        return (x * w).sum()

    return compile(f)(X, torch.ones(4, requires_grad=True))


@mistake("A hook whose handle is kept", "break")
def hook_inside(compile: Compile) -> Any:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x * w
        handle = y.register_hook(lambda g: g * 2)
        return y.sum(), handle  # type: ignore[return-value]  # here

    return compile(f)(X, torch.ones(4, requires_grad=True))[0].backward()


@mistake("`__getattr__` that runs foreign code", "break")
def getattr_tricks(compile: Compile) -> Any:
    class Config:
        def __getattr__(self, name: str) -> int:
            if name.startswith("_"):
                raise AttributeError(name)
            return int(time.process_time()) * 0 + 2  # here

    config = Config()

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * config.width

    return compile(f)(X)


@mistake("Reading `os.environ` and files each call", "break")
def reads_a_file(compile: Compile) -> Any:
    file = Path(tempfile.gettempdir()) / "scale.txt"
    file.write_text("2.5")

    def f(x: torch.Tensor) -> torch.Tensor:
        with open(file) as opened:  # here
            scale = float(opened.read())
        return x.sin() * scale

    return compile(f)(X)


@mistake("Results whose size depends on data", "captured")
def data_dependent_size(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        kept = x[x > 0]
        return kept.reshape(-1, 2).sin()

    return compile(f)(X)


@mistake("A loop over the values of a tensor", "break")
def loop_over_values(compile: Compile) -> Any:
    def f(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        total = x.new_zeros(4)
        for n in lengths.tolist():
            for row in range(n):  # here
                total = total + x[row]
        return total

    return compile(f)(X, torch.tensor([1, 3]))


@mistake("A batch size that changes", "recompile")
def batch_sizes_change(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin().sum(0)

    g = compile(f, dynamic=False)
    for n in range(2, 14):
        g(torch.ones(n, 4))


@mistake("A backend that fails", "warning")
def backend_fails(compile: Compile) -> Any:
    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        raise NotImplementedError("no lowering of sin")

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    return compile(f, backend=backend)(X)


@mistake("A backend that is not there", "usage")
def unknown_backend(compile: Compile) -> Any:
    return compile(lambda x: x.sin(), backend="inducter")(X)


@mistake("An option that is not there", "usage")
def unknown_option(compile: Compile) -> Any:
    return compile(lambda x: x.sin(), options={"max_autotun": True})(X)


@mistake("A mode that is not there", "usage")
def unknown_mode(compile: Compile) -> Any:
    return compile(lambda x: x.sin(), mode="fastest")(X)


@mistake("What is compiled was called already", "usage")
def not_a_function(compile: Compile) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    return compile(f(X))(X)

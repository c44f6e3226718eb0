"""Programs with operators that warn, each called three times under one filter: what is recorded of each call, as JSON.

usage: programs_that_warn.py SIDE FILTER; SIDE: eager, opmill (compiled), captured (compiled, and run by torch's operators). A process each:
torch gives some warnings once in a process."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

import opmill

X, SQUARE, CUBE, ONE = torch.arange(3.0) + 1, torch.eye(3) + 1, torch.randn(3, 2, 2), torch.ones(1)
COMPLEX = torch.randn(3, dtype=torch.complex64)
BYTES = torch.tensor([1, 0, 1], dtype=torch.uint8)
FRAMES = torch.randn(1, 16)
IMAGE, KERNEL = torch.randn(1, 1, 9, 9), torch.randn(1, 1, 4, 4)
NEEDS = torch.ones(3, requires_grad=True)


def two_lines(x):
    y = x.var()
    return y + x.var()


def in_a_callee(x):
    return two_lines(x) + 1


def beside_a_warning(x):
    warnings.warn("mine", stacklevel=1)
    return x.std() + 1


def beside_a_break(x):
    y = x.std()
    print(end="", file=sys.stdout)
    sys._getframe()
    return y + x.std()


def in_a_loop(x):
    for _ in range(3):
        x = x + torch.std(x)
    return x


def in_a_branch(x):
    return x.var() if x.sum() > 0 else x


def recorded_inside(x):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        x = x.var()
    return x + len(told)


def ignored_inside(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x.var() + 1


def handled_inside(x):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return x.var()
    except UserWarning as warning:
        return x + len(str(warning))


def of_a_gradient(x):
    y = x * 2
    return y.sum() + (0 if y.grad is None else 1)


def written_out(x):
    out = torch.empty(1)
    return torch.add(x, 1, out=out) * 2


def written_to(x):
    made = torch.zeros(3)
    made.copy_(x)
    made[:2] = x[:2]
    return made


def asked_and_written(x):
    y = x.clone()
    y[BYTES] = 7.0
    return y + y[BYTES].sum()


def failing_behind_a_warning(x):
    try:
        return torch.cholesky(-x) + 1
    except RuntimeError:
        return x


PROGRAMS: list[tuple[Callable[..., object], torch.Tensor]] = [
    (lambda x: x.var(), ONE),
    (lambda x: torch.std(x, 0) + 1, ONE),
    (lambda x: torch.var_mean(x)[0] + 1, ONE),
    (lambda x: torch.std_mean(x[None], 0)[1] + 1, X),
    (lambda x: x.var(0, correction=5), X),
    (lambda x: x.double().var(), ONE),
    (lambda x: x.std(), COMPLEX[:1]),
    (two_lines, ONE),
    (in_a_callee, ONE),
    (beside_a_warning, ONE),
    (beside_a_break, ONE),
    (in_a_loop, ONE),
    (in_a_branch, ONE),
    (recorded_inside, ONE),
    (ignored_inside, ONE),
    (handled_inside, ONE),
    (lambda x: x[BYTES] + 1, X),
    (lambda x: x.index_put((BYTES,), x[0]), X),
    (lambda x: x.index_put((BYTES,), x[:2]), X),
    (asked_and_written, X),
    (lambda x: x.masked_fill(BYTES, 2.0), X),
    (lambda x: x.masked_select(BYTES), X),
    (lambda x: torch.where(BYTES, x, 0.0), X),
    (lambda x: torch.cross(x, x) + 1, SQUARE),
    (lambda x: x.to(torch.float32) * 2, COMPLEX),
    (lambda x: x.float() * 2, COMPLEX),
    (written_to, COMPLEX),
    (lambda x: torch.softmax(x.real, 0, dtype=torch.float64), COMPLEX),
    (lambda x: torch.meshgrid(x, x)[0] + 1, X),
    (lambda x: x.T + 1, CUBE),
    (lambda x: x.mT.T + 1, CUBE),
    (failing_behind_a_warning, SQUARE),
    (lambda x: torch.qr(x)[1], SQUARE),
    (lambda x: torch.cholesky(x @ x.mT), SQUARE),
    (lambda x: torch.lu(x)[0], SQUARE),
    (lambda x: torch.lu_solve(x, *torch.linalg.lu_factor(x)), SQUARE),
    (lambda x: torch.triangular_solve(x, x)[0], SQUARE),
    (lambda x: torch.chain_matmul(x, x), SQUARE),
    (lambda x: F.conv2d(x, KERNEL, padding="same", dilation=3), IMAGE),
    (lambda x: x.index_reduce(0, torch.zeros(3, dtype=torch.long), x, "mean"), X),
    (lambda x: x.scatter(0, torch.tensor([0, 1]), x, reduce="add"), X),
    (lambda x: torch.searchsorted(x.mT, x.mT.contiguous()), SQUARE),
    (lambda x: torch.searchsorted(x, x.mT), SQUARE),
    (lambda x: torch.stft(x, 8, return_complex=True), FRAMES),
    (lambda x: torch.istft(torch.stft(x, 8, return_complex=True), 8), FRAMES),
    (lambda x: x.chalf(), X),
    (lambda x: torch.range(0, 3) + x[0], X),
    (written_out, X),
    (of_a_gradient, NEEDS),
    (lambda x: F.softmax(x), X),
    (lambda x: F.mse_loss(x, x[:1]), X),
    (lambda x: F.l1_loss(x, x[:1]), X),
    (lambda x: F.kl_div(x, x), X),
    (lambda x: F.mse_loss(x, x, size_average=True), X),
    (lambda x: F.dropout2d(x, 0.0), CUBE),
    (lambda x: F.upsample_nearest(x[None], scale_factor=2), CUBE),
    (lambda x: F.binary_cross_entropy(x.sigmoid(), x.sigmoid(), reduce=False), X),
    (lambda x: F.grid_sample(x[None], torch.zeros(1, 2, 2, 2)), CUBE),
    (lambda x: F.sigmoid(x) + F.tanh(x), X),
    (lambda x: torch.tensor(x) + 1, X),
    (lambda x: x.new_tensor(x) + 1, X),
    (lambda x: nn.Softmax()(x), X),
    (lambda x: x.sum().reshape(1).var(unbiased=True), X),
    (lambda x: torch.nn.utils.clip_grad_norm([x], 1.0), X),
]


def calls(function: Callable[..., object], x: torch.Tensor, action: str) -> list[object]:
    """Of each of three calls what it warned of, and its exception."""
    found: list[object] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter(action)  # type: ignore[arg-type]
        for _ in range(3):
            raised = None
            try:
                function(x)
            except Exception as error:
                raised = f"{type(error).__name__}: {error}"
            found.append([[[w.category.__name__, str(w.message), w.filename, w.lineno] for w in told], raised])
            told.clear()
    return found


def main(side: str, action: str) -> None:
    result = {}
    for number, (program, x) in enumerate(PROGRAMS):
        function = program if side == "eager" else opmill.compile(program, **({"backend": "eager"} if side == "captured" else {}))
        result[f"{number}: {program.__name__}, line {program.__code__.co_firstlineno}"] = calls(function, x, action)
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])

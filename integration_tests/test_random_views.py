"""Random chains of views, and calls that must raise, against eager: ``benchmarks/fuzz_views.py`` and ``error_inputs.py`` run very many;
here are some, and those that showed bugs."""

from __future__ import annotations

import warnings

import pytest
import torch

import opmill

error_inputs = pytest.importorskip("error_inputs")
fuzz_views = pytest.importorskip("fuzz_views")
random_views = pytest.importorskip("random_views")
FIRST, COUNT = 500_000, 150
SHOWED: dict[str, tuple[str, torch.Tensor]] = {
    "a view of another type, in which one element has a stride of its own": (
        "y = x.view(torch.int64); x.add_(3); z = y.reshape(4, 1, 1); z.add_(z); return z.transpose(2, 0)[None], z", torch.arange(8.0)
    ),
    "a view of another type without elements": ("y = x[:0][None].mT; return y.view(torch.int32), x.add_(1)", torch.ones(1, 1, dtype=torch.int64)),
    "windows of every second element": ("y = x.as_strided((4,), (3,)); y.unfold(0, 2, 2)[1].add_(5); return y, x", torch.arange(12.0)),
    "parts of what is conjugated": ("y = torch.unsafe_chunk(x.conj(), 2)[0]; y.zero_(); return y, x", torch.arange(4) * 1j + 1),
    "the gradient of a view by strides that shows more than what it is of": (
        "y = x.view(3, 1, 3).select(0, 0); return torch.as_strided(y, (), (), 3), y", torch.arange(9.0).view(3, 3).requires_grad_()
    ),
    "the gradient of a view by strides of a view, after a write": (
        "t = x * 2; v = t[:, :, 0::2]; v.mul_(3); w = torch.as_strided(v[1:], (), (), 3); v.neg_(); return w * 2, v",
        torch.arange(12.0).view(2, 2, 3).requires_grad_(),
    ),
    "the gradient of a diagonal that is filled": (
        "t = x * 2; u = t[1:]; t.fill_diagonal_(1); u.mul_(x[1:]); t.as_strided((2,), (5,), 1).add_(x[0, :2]); return t * 2, u.sin()",
        torch.arange(16.0).view(4, 4).requires_grad_(),
    ),
    "shapes changed in place": ("y = (x * 1).reshape(2, 3); y.unsqueeze_(1); y[:, :, 1:] = 2; return y, y.fill_(3)", torch.arange(6.0)),
}  # fmt: skip
CHECKED = "add index_add linalg.cholesky nn.functional.gelu diagonal_scatter gather heaviside complex scatter amax".split()


def wrong(seeds: range, how: str) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(fuzz_views.verdicts(seeds, how))
    assert sum(v.kind == "right" for v in found) > len(found) // 2, "most programs must be captured"
    return [f"seed {v.program.seed}: {v.kind}: {v.detail}\n{v.program.source}" for v in found if v.kind in ("crash", "wrong")]


@pytest.mark.parametrize("how", ["graph", "frontend"])
def test_random_chains_of_views(how: str) -> None:
    problems = wrong(range(FIRST, FIRST + COUNT), how)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("how", ["graph", "frontend"])
@pytest.mark.parametrize("name", SHOWED)
def test_chains_that_showed_bugs(name: str, how: str) -> None:
    source, x = SHOWED[name]
    program = random_views.Views(f"def program(x):\n    {source}\n", lambda: [x.detach().clone()], 0, x.requires_grad)
    verdict = fuzz_views.check(program, how)
    assert verdict.kind in ("right", "refused"), verdict.detail


@pytest.mark.parametrize("form", ["static", "dynamic"])
def test_calls_that_must_raise(form: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = error_inputs.samples_of(("declared", "dtype", "size"), CHECKED.__contains__, 1)
        found = [error_inputs.check(sample, [form]) for sample in samples]
    assert sum(count for count, _ in found) > 40
    different = [f"{d.sample.kind} {d.sample.name}: {d.expected} but {d.got or 'returns'}" for _, many in found for d in many]
    assert not different, "\n".join(different)


def test_gradients_through_views_by_strides_of_memory_that_is_written() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        whole = y.as_strided([], [])
        turned = whole.transpose(0, 0)
        part = torch.as_strided(turned, [4], [2], 1)
        turned.neg_()
        whole.zero_()
        return part * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gradients = []
        for call in (program, opmill.compile(program)):
            x = torch.arange(12.0).reshape(4, 3).requires_grad_()
            call(x).backward(torch.arange(1.0, 5.0))
            gradients.append(x.grad)
    assert torch.equal(*gradients)

"""``tensor.data = other`` in captured code: what comes later uses the new memory, a backward of what came before the old."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opmill_bytecode_frontend import capture


def data_of_average(p: Any, q: Any, x: Any) -> Any:
    q.data = q.data * 0.9 + p.data * 0.1
    return x * p


def data_of_step(p: Any, q: Any, x: Any) -> Any:
    loss = (x * p).sum()
    loss.backward()
    p.data = p.data - 0.1 * p.grad.data
    return loss


def data_swapped(p: Any, q: Any, x: Any) -> Any:
    kept = p.data
    p.data = q.data
    q.data = kept
    return x * 2


def data_twice(p: Any, q: Any, x: Any) -> Any:
    q.data = x + 1
    q.data = x + 2
    return x


def data_used(p: Any, q: Any, x: Any) -> Any:
    p.data = p.data.clamp(-0.5, 0.5)
    return p * x


def data_used_twice(p: Any, q: Any, x: Any) -> Any:
    p.data = p.data.clamp(-0.5, 0.5)
    y = p * x * p
    p.data = p.data * 2
    return y.detach(), p.sin().sum()


def data_used_without_history(p: Any, q: Any, x: Any) -> Any:
    with torch.no_grad():
        y = p * x
        p.data = y
        p.mul_(2)
        y.add_(1)
        return p is p.add_(1), y * p, p.is_leaf, p.requires_grad


def data_of_a_buffer(p: Any, q: Any, x: Any) -> Any:
    y = (p * q).sum()
    q.data = q.data * 0.9 + x
    q.mul_(0.5)
    return y.detach() + (p * q.sin()).sum()


def data_kept_for_a_backward(p: Any, q: Any, x: Any) -> Any:
    rows = q.data.expand(3, 3)
    q.data = q.data + 1
    return (p * rows.sin()).sum() + (p * rows.cos() * rows.exp() * rows).sum()


def data_of_a_factor(p: Any, q: Any, x: Any) -> Any:
    y = x @ p
    p.data = p.data / p.data.norm()
    return y + (p * p * x).sum()


def data_between_backwards(p: Any, q: Any, x: Any) -> Any:
    for _ in range(2):
        p.grad = None
        loss = (x * p * p).sum()
        loss.backward()
        p.data = p.data - 0.1 * p.grad
    return loss, p.detach() * 1


def data_that_is_used_and_written(p: Any, q: Any, x: Any) -> Any:
    made = x + 1
    p.data = made
    y = (p * q).sum()
    made.data.mul_(3)
    return y + (p * x).sum()


def data_of_the_other(p: Any, q: Any, x: Any) -> Any:
    p.data = q.data
    y = (p * x).sum()
    q.mul_(2)
    return y + (p * 2).sum()


def data_used_before(p: Any, q: Any, x: Any) -> Any:
    y = p * x * p
    p.data = p.data + 1
    return y


def data_of_another_shape(p: Any, q: Any, x: Any) -> Any:
    q.data = torch.cat([x, x])
    return q.shape, q * 2


def data_written_later(p: Any, q: Any, x: Any) -> Any:
    made = x + 1
    q.data = made
    made.mul_(3)
    return made


DATA = {
    **dict.fromkeys((data_of_average, data_of_step, data_swapped, data_twice, data_used, data_written_later), True),
    **dict.fromkeys((data_used_without_history, data_kept_for_a_backward, data_of_a_factor), True),
    **dict.fromkeys((data_used_twice, data_used_before, data_of_another_shape, data_of_a_buffer), False),
    **dict.fromkeys((data_that_is_used_and_written, data_of_the_other, data_between_backwards), False),
}


@pytest.mark.parametrize("play", DATA)
def test_data_that_is_assigned(play: Any) -> None:
    def outcome(f: Any) -> Any:
        p, q = torch.linspace(-1, 1, 3).requires_grad_(), torch.ones(3)
        told: list[Any] = []
        for k in range(3):
            result = f(p, q, torch.full((3,), k + 1.0))
            if isinstance(result, torch.Tensor) and result.grad_fn is not None and play is not data_of_step:
                result.sum().backward()
            q.add_(1)  # shows who shares memory
            if isinstance(result, tuple):
                result = tuple(each.detach() if isinstance(each, torch.Tensor) else each for each in result)
            shown = result.detach() if isinstance(result, torch.Tensor) else result
            told.append((p.detach().clone(), q.clone(), None if p.grad is None else p.grad.clone(), shown))
        return told

    assert str(outcome(capture(play, "eager", fullgraph=DATA[play]))) == str(outcome(play))


def written(o):
    o.data = o.data + 1
    o.zero_()


def written_by_an_operator(o):
    o.data = o.data + 1
    o += 1


def written_at_a_place(o):
    o.data = o.data + 1
    o[0] = 1


def a_part_written(o):
    o.data = o.data + 1
    o[1:].zero_()


def a_view_written(o):
    o.data = o.data + 1
    o.view(3, 1).mul_(2)


def turned(o):
    o.data = o.data + 1
    o.unsqueeze_(0)


def written_without_history(o):
    o.data = o.data + 1
    with torch.no_grad():
        o.add_(1)
        o[0] = 5


@pytest.mark.parametrize("kind", [torch.nn.Parameter, torch.clone])
@pytest.mark.parametrize(
    "program",
    [written, written_by_an_operator, written_at_a_place, a_part_written, a_view_written, turned, written_without_history],
    ids=lambda f: f.__name__,
)
def test_writes_behind_an_assignment(program, kind):
    outcomes = []
    for call in (program, capture(program, "eager")):
        tensor = kind(torch.arange(3.0))
        try:
            call(tensor)
            outcomes.append((tensor.tolist(), tensor.shape))
        except RuntimeError as error:
            outcomes.append((str(error), tensor.tolist()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("view", [lambda o: o.view(3, 1), lambda o: o.detach(), lambda o: o[1:]])
def test_views_behind_an_assignment_are_of_the_tensor(view):
    def program(o):
        o.data = o.data + 1
        return (o * 2).sum(), view(o)

    tensor = torch.nn.Parameter(torch.arange(3.0))
    _, seen = capture(program, "eager")(tensor)
    with torch.no_grad():
        tensor.add_(100)
    assert torch.equal(seen, view(tensor))


def test_a_tensor_of_new_data_requires_grad_from_then_on() -> None:
    def f(t: Any, x: Any) -> Any:
        t.data = t.data * 2
        t.requires_grad_()
        return t.requires_grad, t * x

    for _ in range(2):
        t = torch.ones(2)
        required, product = capture(f, "eager")(t, torch.ones(2))
        product.sum().backward()
        assert required and t.requires_grad and torch.equal(t.grad, torch.ones(2))

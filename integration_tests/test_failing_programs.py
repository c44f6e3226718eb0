"""Programs that fail half-way, or handle that, do in Python what they do in eager."""

import itertools
import random

import numpy as np
import pytest
import torch

import opmill

NOT_POSITIVE = -torch.eye(2)


def refused(log):
    try:
        torch.linalg.cholesky(NOT_POSITIVE)
        log.append("none")
    except RuntimeError:
        log.append("refused")


def draws_of_python(x, at, log):
    r = random.random()
    log.append(r)
    refused(log)
    return x * r + random.random()


def draws_of_numpy(x, at, log):
    r = float(np.random.rand())
    log.append(r)
    refused(log)
    return x * r


def draws_of_a_generator(x, at, log):
    r = float(GENERATOR.random())
    log.append(r)
    refused(log)
    return x * r


def attributes(x, at, log):
    log.append("begun")
    x += 1
    log.append(len(log))
    r = x[at]
    log.append("done")
    return r


def printed(x, at, log):
    print("one")
    x += 1
    r = x[at]
    print("two")
    return r


class Handling:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")

    def __exit__(self, cls, *rest):
        self.log.append(cls and cls.__name__)
        return True


def handled_by_a_block(x, at, log):
    with Handling(log):
        x += 1
        r = x[at]
        x += 10
        return r
    return x * 0


def ends_a_generator(x, at, log):
    def steps():
        try:
            x.add_(1)
            yield x[at]
        finally:
            log.append("finally")

    return [step * 2 for step in steps()][0]


def numbers_of_data(x, at, log):
    x += 1
    n = int(at.item())
    log.append(n)
    return x.narrow(0, 0, n)


def in_a_loop(x, at, log):
    for k in range(3):
        try:
            x.mul_(2)
            log.append(k)
            torch.linalg.cholesky(NOT_POSITIVE * (k - 1))
        except RuntimeError:
            continue
        log.append("fine")
    return x


def behind_a_break(x, at, log):
    x.add_(1)
    log.append(x.sum().item())
    try:
        x.mul_(2)
        return x[at]
    except IndexError as exc:
        log.append(str(exc))
        return x.sub_(1)
    finally:
        log.append("finally")


def draws_of_torch(x, at, log):
    log.append(float(torch.rand(())))
    r = torch.rand(2)
    refused(log)
    return x * r + torch.randn(2)


def drops(x, at, log):
    r = torch.nn.functional.dropout(x, 0.5)
    try:
        return x[at] + r
    except IndexError:
        log.append("outside")
        return r * 2


def draws_of_a_generator_of_torch(x, at, log):
    x.add_(torch.rand(2, generator=OF_TORCH))
    try:
        return x[at]
    except IndexError:
        return x.mul_(2)


def fills(x, at, log):
    log.append("begun")
    x.uniform_()
    r = x[at] + torch.bernoulli(x)
    log.append("done")
    return r


def attends(x, at, log):
    q = x.expand(1, 1, 3, 2)
    r = torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    refused(log)
    return r.sum() + x[at]


OF_TORCH = torch.Generator()
GENERATOR = np.random.default_rng(0)
FUNCTIONS = [draws_of_python, draws_of_numpy, draws_of_a_generator, attributes, printed, handled_by_a_block, ends_a_generator]
FUNCTIONS += [numbers_of_data, in_a_loop, behind_a_break]


FUNCTIONS += [draws_of_torch, drops, draws_of_a_generator_of_torch, fills, attends]


def foreign(graph, examples):
    return graph.forward


def late(graph, examples):
    """Fails by itself once all is written."""

    def run(*inputs):
        graph(*inputs)
        raise RuntimeError("late")

    return run


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "function, backend",
    [*itertools.product(FUNCTIONS, ["opmill", "eager", foreign]), (attributes, late), (behind_a_break, late), (drops, late)],
)
def test_what_is_left(function, backend, capsys):
    def outcomes(call):
        torch.manual_seed(5)
        OF_TORCH.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        GENERATOR.bit_generator.state = np.random.default_rng(5).bit_generator.state
        for at in (0, 5, 1, 6, -7):
            x, log = torch.ones(2), []
            try:
                result = call(x, torch.tensor(at), log).tolist()
            except (IndexError, RuntimeError) as exc:
                result = type(exc), str(exc)
            yield x.tolist(), log, result, capsys.readouterr().out
        yield random.random(), np.random.rand(), GENERATOR.random(), torch.rand(2).tolist(), torch.rand(2, generator=OF_TORCH).tolist()

    assert list(outcomes(opmill.compile(function, backend=backend))) == list(outcomes(function))

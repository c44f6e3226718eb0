"""Programs that fail half-way, or handle that, do in Python what they do in eager."""

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


GENERATOR = np.random.default_rng(0)
FUNCTIONS = [draws_of_python, draws_of_numpy, draws_of_a_generator, attributes, printed, handled_by_a_block, ends_a_generator]
FUNCTIONS += [numbers_of_data, in_a_loop, behind_a_break]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_left(function, capsys):
    def outcomes(call):
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
        yield random.random(), np.random.rand(), GENERATOR.random()

    assert list(outcomes(opmill.compile(function))) == list(outcomes(function))

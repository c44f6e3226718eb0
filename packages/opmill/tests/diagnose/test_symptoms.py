"""How crashes, hangs, slowness and leaks are seen, without a compiler."""

import os
import signal

import pytest
import torch

from opmill.diagnose.symptoms import apart, is_slow, keeps_memory

kept: list[torch.Tensor] = []


def test_what_a_child_said_is_known_after_it_died() -> None:
    def run(say):  # type: ignore[no-untyped-def]
        say("first")
        say("second")
        os.kill(os.getpid(), signal.SIGSEGV)

    ended = apart(run)
    assert ended.problem == "the process dies of SIGSEGV" and ended.said == ("first", "second")


def test_a_child_that_hangs_is_ended() -> None:
    ended = apart(lambda say: (say("waits"), signal.pause()), patience=2.0)
    assert "does not end within 2 s" in ended.problem
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_child_that_exits_is_no_success() -> None:
    assert apart(lambda _: os._exit(7)).problem == "the process ends with exit code 7"


def test_a_child_that_raises_did_not_crash() -> None:
    def run(say):  # type: ignore[no-untyped-def]
        say("begins")
        raise ValueError

    ended = apart(run)
    assert ended.problem == "" and ended.said == ("begins",)


def keep() -> None:
    kept.append(torch.zeros(1000))


def test_what_is_kept_is_seen_unless_eager_keeps_it_too() -> None:
    assert "each call keeps" in keeps_memory(lambda: torch.zeros(1000), keep).wrong[0].problem
    assert keeps_memory(keep, keep)
    assert keeps_memory(lambda: None, lambda: torch.zeros(1000))


def test_slow_is_what_takes_much_longer_than_eager() -> None:
    quick, slow = (lambda: torch.zeros(1)), (lambda: sum(range(3_000_000)))
    assert "eager" in is_slow(quick, slow).wrong[0].problem
    assert is_slow(slow, quick)

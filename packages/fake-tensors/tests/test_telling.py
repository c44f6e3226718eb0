"""Warnings of a compiler's own are shown like others, and raise nothing."""

import logging
import warnings

import pytest

from opmill_fake_tensors.telling import logged, tell


class OwnWarning(UserWarning):
    pass


def blamed() -> None:
    tell(OwnWarning("slow"), 2)


def test_it_is_shown_in_the_line_of_the_caller() -> None:
    with pytest.warns(OwnWarning, match="slow") as heard:
        blamed()
    assert heard[0].filename == __file__


def test_it_is_logged_where_it_would_be_raised(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING, "opmill.warnings"):
        warnings.simplefilter("error")
        blamed()
        blamed()
    assert caplog.messages == ["slow"]


def test_it_is_ignored_where_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("ignore")
        blamed()
    assert not heard and not caplog.messages


def test_what_showing_raises_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def show(*_: object) -> None:
        raise OwnWarning("of the program")

    monkeypatch.setattr(warnings, "showwarning", show)
    with warnings.catch_warnings(), pytest.raises(OwnWarning, match="of the program"):
        warnings.simplefilter("always")
        blamed()


def test_a_test_hears_what_is_logged_each_time() -> None:
    for _ in range(2):
        with warnings.catch_warnings(), logged() as texts:
            warnings.simplefilter("error")
            blamed()
        assert texts == ["slow"]

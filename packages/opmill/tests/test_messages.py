"""What is said about mistakes that people make: it names the user's line, has a number, and says what to do (``mistakes.py`` has the
programs)."""

import logging
import re
import sys
import traceback
import warnings
from pathlib import Path

import pytest
import torch

import opmill

sys.path.insert(0, str(Path(__file__).parent))  # the programs beside these tests, whatever import mode pytest runs in
from mistakes import MISTAKES, Mistake  # noqa: E402

BY_KIND = {kind: [m for m in MISTAKES if m.kind == kind] for kind in sorted({m.kind for m in MISTAKES})}
FILE = MISTAKES[0].run.__code__.co_filename


def of_kind(*kinds: str):  # type: ignore[no-untyped-def]
    found = [m for kind in kinds for m in BY_KIND[kind]]
    return pytest.mark.parametrize("mistake", found, ids=[m.name for m in found])


@pytest.fixture
def said(caplog, monkeypatch):  # type: ignore[no-untyped-def]
    """Runs a program and gives what was logged, what was warned of, and what was raised."""
    monkeypatch.setattr(logging.getLogger("opmill"), "propagate", True)

    def run(mistake: Mistake):  # type: ignore[no-untyped-def]
        opmill.errors.warn_once.cache_clear()
        opmill.reset()  # what is said of a piece of code is said once
        for topic in ("opmill.breaks", "opmill.recompiles"):
            caplog.set_level(logging.DEBUG, topic)
        torch.manual_seed(0)
        raised = None
        with warnings.catch_warnings(record=True) as warned, caplog.at_level(logging.DEBUG, "opmill"):
            warnings.simplefilter("always")
            try:
                mistake.run(
                    lambda f, **given: opmill.compile(
                        f, **({} if given.keys() & {"backend", "mode", "options"} else {"backend": "eager"}), **given
                    )
                )
            except Exception as error:
                raised = error
        logged = {t: [r.getMessage() for r in caplog.records if r.name == f"opmill.{t}"] for t in ("breaks", "recompiles")}
        return logged, [str(w.message) for w in warned], raised

    return run


def test_there_are_forty_and_each_marks_its_line() -> None:
    assert len(MISTAKES) >= 40 and len({m.name for m in MISTAKES}) == len(MISTAKES)
    assert all(m.line for m in MISTAKES if m.kind in ("break", "error", "refusal"))


@of_kind("break")
def test_a_break_names_the_line_the_number_and_what_to_do(mistake, said) -> None:  # type: ignore[no-untyped-def]
    logged, _, raised = said(mistake)
    assert raised is None
    first, *_ = logged["breaks"]
    assert re.match(r"FE\d{3}: ", first)
    assert f"  at: {FILE}:{mistake.line}\n" in first or f'File "{FILE}", line {mistake.line}, in' in first
    assert re.search(r"\n +[\^~]+", first), "the expression is not marked"
    for text in logged["breaks"]:
        assert "\n  hint: " in text and "\n  why: " in text
        assert re.search(r'\n  File ".*", line \d+, in \w+\n    \S', text), "no line of the program"
        assert f"  at: {FILE}:" in text, "the place is in a library, where nobody can mend it"


def test_a_break_in_a_loop_says_so(said) -> None:  # type: ignore[no-untyped-def]
    [mistake] = [m for m in MISTAKES if m.name == "break_in_a_loop"]
    logged, _, _ = said(mistake)
    assert "\n  loop: " in logged["breaks"][0]
    [other] = [m for m in MISTAKES if m.name == "data_dependent_branch"]
    assert "loop:" not in said(other)[0]["breaks"][-1]


@of_kind("recompile")
def test_a_recompile_names_what_changed_and_what_to_do(mistake, said) -> None:  # type: ignore[no-untyped-def]
    logged, _, raised = said(mistake)
    assert raised is None
    for text in logged["recompiles"]:
        assert "expected " in text and "found " in text and "\n  hint: " in text and f"\n  at: {FILE}:" in text
        assert "cell_contents" not in text and "__dict__" not in text and "_call_impl" not in text
        assert len(text.splitlines()) <= 9


@of_kind("error")
def test_exceptions_of_the_program_are_its_own(mistake, said) -> None:  # type: ignore[no-untyped-def]
    _, _, raised = said(mistake)
    with pytest.raises(type(raised)) as plain:
        mistake.run(lambda f, **_: f)
    assert str(raised) == str(plain.value)
    lines = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(raised.__traceback__)]
    assert (FILE, mistake.line) in lines
    assert not any("opmill_" in file or "<eval" in file for file, _ in lines), "frames of the compiler in the program's traceback"


@of_kind("refusal")
def test_a_refusal_under_fullgraph_shows_the_program_and_not_the_compiler(mistake, said) -> None:  # type: ignore[no-untyped-def]
    _, _, raised = said(mistake)
    text = str(raised)
    assert re.match(r"FE\d{3}: ", text) and f"at: {FILE}:{mistake.line}" in text and "hint: " in text and "^^^" in text
    assert sum("opmill_" in frame.filename for frame in traceback.extract_tb(raised.__traceback__)) <= 3


@of_kind("warning")
def test_a_warning_has_a_number_a_line_and_a_remedy(mistake, said) -> None:  # type: ignore[no-untyped-def]
    _, warned, _ = said(mistake)
    [text] = [w for w in warned if re.match(r"(FE|OM)\d{3}: ", w)]
    assert "hint: " in text and "mistakes.py" in text


@of_kind("usage")
def test_a_wrong_argument_is_refused_with_what_there_is(mistake, said) -> None:  # type: ignore[no-untyped-def]
    _, _, raised = said(mistake)
    assert isinstance(raised, opmill.OpmillError) and re.match(r"OM\d{3}: ", str(raised))
    assert "hint: " in str(raised) or "there are: " in str(raised)


@of_kind("captured")
def test_what_needs_no_break_has_none(mistake, said) -> None:  # type: ignore[no-untyped-def]
    logged, _, raised = said(mistake)
    assert raised is None and not logged["breaks"] and not logged["recompiles"]


@of_kind("advice")
def test_what_costs_is_told_by_explain(mistake) -> None:  # type: ignore[no-untyped-def]
    assert mistake.run(lambda f: opmill.explain(f, backend="eager")).advice

"""Lines of the user's source in messages, as Python's tracebacks mark them."""

import traceback

from opmill_bytecode_frontend.messages.excerpt import excerpt, first_read, plainly


def raises(x):
    return [x + (1 / 0), 2]


def caller(x):
    return raises(x) + raises(x)


def test_frames_are_shown_as_python_shows_them():
    try:
        caller(1)
    except ZeroDivisionError as e:
        shown = traceback.extract_tb(e.__traceback__)[1:]
        want = "".join(traceback.StackSummary.from_list(shown).format()).rstrip().splitlines()
        stack = [(f.filename, f.lineno, f.name) for f in reversed(shown)]
        spans = [(f.lineno, f.end_lineno, f.colno, f.end_colno) for f in reversed(shown)]
    assert excerpt(stack, spans) == want
    assert any("^" in line or "~" in line for line in want)


def test_without_columns_the_line_alone():
    found = excerpt([(__file__, raises.__code__.co_firstlineno + 1, "raises")], [None])
    assert found[-1].strip() == "return [x + (1 / 0), 2]" and len(found) == 2


def test_a_frame_without_source_is_not_shown():
    assert excerpt([("<string>", 3, "f")], [None]) == []


def test_where_a_name_is_first_read():
    def outer(config):
        def inner():
            return config.rate

        return inner

    file, line, name, span = first_read(outer.__code__, "rate")
    assert (file, line, name) == (__file__, outer.__code__.co_firstlineno + 2, "inner") and span[0] == line
    assert first_read(outer.__code__, "nothing") is None


def test_sources_as_the_program_writes_them():
    assert plainly("fn.cell_contents.__dict__['rate']") == "fn.rate" and plainly(".stack3[0]") == "a value of the unfinished statement[0]"
    assert plainly("self.stacked") == "self.stacked"

"""What measuring scripts hear of their processes: lines as they come, an end that was not told, and silence."""

import os
import sys

import pytest

from processes import telling

WRITES = "import os; channel = os.fdopen({}, 'w'); channel.write('[1, \"a\"]\\n'); channel.flush(); "


def started(code):
    return telling(lambda write: ([sys.executable, "-c", WRITES.format(write) + code], os.environ))


def test_a_process_that_crashes_has_an_end_a_status_and_what_it_wrote():
    with started("print('aside', flush=True); os._exit(7)") as child:
        assert child.next(60) == [1, "a"]
        with pytest.raises(EOFError):
            child.next(60)
        assert child.process.wait() == 7 and child.noise(6) == "aside\n"


def test_a_silent_process_is_ended_with_the_block():
    with started("import signal; signal.pause()") as child:
        assert child.next(60) == [1, "a"] and child.next(0) is None and child.process.poll() is None
    assert child.process.poll() is not None

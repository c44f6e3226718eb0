"""What a launcher needs to run a kernel is data that reads back as it was written."""

import msgspec
import pytest

from opmill_runtime_cache.plan.launch import VERSION, Arg, Form, LaunchData, Step

FORM = Form(offset=0, size=4096, entry="kernel", warps=4, shared=1024, align=16, fits=("s0*4",), limit=1 << 31)
STEP = Step("(s0 + 127) // 128", (Arg("buffer", 1), Arg("size", 0), Arg("scratch", 0, "s0*4"), Arg("word", 0, -1)), (FORM, FORM))
DATA = LaunchData(90, ("s0",), (STEP,), scratch="s0*4", checks=2)


def test_it_reads_back():
    for form in (msgspec.msgpack, msgspec.json):
        assert form.decode(form.encode(DATA), type=LaunchData) == DATA


def test_what_is_left_out_is_the_usual():
    assert (FORM.index_bits, FORM.scratch, FORM.profile, FORM.waits, STEP.more, DATA.version) == (32, 0, 0, False, (1, 1), VERSION)


@pytest.mark.parametrize(
    "text", ['{"arch":"90","sizes":[],"steps":[]}', '{"arch":90,"sizes":[]}', '{"arch":90,"sizes":[],"steps":[{"grid":1.5}]}']
)
def test_other_data_is_refused(text):
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=LaunchData)

"""Arguments of ``opmill.compile``: what is taken, and what is refused in which words."""

import pytest

from opmill import Options
from opmill.errors import OpmillError
from opmill.settings import NATIVE, resolve


def ran(gm, inputs):
    return gm.forward


def test_opmills_own():
    found = resolve(True, None, NATIVE, None, {"cache": False})
    assert found.native and found.fullgraph and found.mode == "default" and not found.options.cache and found.foreign == {}
    assert found.key == resolve(True, None, NATIVE, "default", Options(cache=False)).key
    assert found.key != resolve(False, None, NATIVE, None, {"cache": False}).key


def test_other_backends_get_what_they_were_given():
    found = resolve(False, True, ran, "reduce-overhead", {"a": 1})
    assert not found.native and found.dynamic and found.foreign == {"mode": "reduce-overhead", "options": {"a": 1}}
    assert found.key != resolve(False, True, ran, None, {"a": 1}).key


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((1, None, NATIVE, None, None), "fullgraph"), ((True, 1, NATIVE, None, None), "dynamic"), ((True, None, "nobody's", None, None), "nobody's"),
     ((True, None, NATIVE, "fastest", None), "fastest"), ((True, None, NATIVE, None, {"cahce": True}), "cahce")],
)  # fmt: skip
def test_refused(arguments, named):
    with pytest.raises(OpmillError, match=named):
        resolve(*arguments)

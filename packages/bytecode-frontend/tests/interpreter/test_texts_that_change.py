"""Texts and numbers that come out of a break and change from call to call: no operation decides by what it does not know."""

import pytest
import torch

from opmill_bytecode_frontend import capture

WORDS = ("abc", "abc", "", "xy", "a", "")
EXPRESSIONS = """
    B(w) in w; B(w) not in w; w in B(w); B(w) in w[:0]; B(w) in str(""); "" in B(w); "a" in B(w); w.__contains__(B(w)); str.__contains__(w, B(w));
    B(w.encode()) in w.encode(); B(len(w)) in b""; B(len(w)) in bytes([0, 3]); bytearray(b"").__contains__(B(0)); B(w) in (); B(w) in {w: 1};
    B(len(w)) in range(3); B(len(w)) in range(0); B(len(w)) in [0, 3]; w.__eq__(B(w)); w.__ne__(B(w)); w.__lt__(B(w)); w.__add__(B(w));
    w == B(w); B(w) < "b"; "b" > B(w); w + B(w); B(w) + w; "%s!" % B(w); f"{B(w)}|{w!r}"; w * len(B(w)); "x" * B(len(w)); (8,) * B(len(w));
    w.replace(B(w), "q"); w.split(B(w) or " "); w.join(B(w)); B(w).join(["1", "2"]); w.find(B(w)); w.count(B(w)); w.startswith((B(w), "z"));
    w.strip(B(w)); w.partition(B(w) or "a"); w.translate({97: B(w)}); w.zfill(B(len(w))); bool(B(w)); B(w) or "none"; len(B(w)); [*B(w)];
    {B(w): 1}[w]; {B(w): 1}.get("abc"); max(B(w), w); set(B(w)) == set(w); w[B(len(w)) - 1 :]; (1, 2, 3, 4)[B(len(w))]; [0, 1, 2, 3][B(len(w))];
    round(1.2345, B(len(w))); divmod(7, B(len(w)) + 1); 2 ** B(len(w)); "{:>{}}".format("a", B(len(w))); format(B(len(w)), "03d"); -B(len(w));
    [c for c in B(w) if c in "ax"]; any(c in B(w) for c in "xa"); getattr(w, B("upper"))(); hash(B(w)) == hash(w); B(None if w else w) is None
""".replace("\n", " ").split(";")  # fmt: skip


@torch.compiler.disable
def B(value):
    return value


def outcome(call, word):
    try:
        found = call(torch.ones(2), word)[1]
    except Exception as error:
        return type(error), str(error)
    return type(found), found


@pytest.mark.parametrize("text", [text.strip() for text in EXPRESSIONS])
@pytest.mark.parametrize("form", ["return x + 1, {}", "return (x + 1, 1) if {} else (x - 1, 2)"], ids=["value", "branch"])
def test_as_plainly(text, form):
    names = {"B": B}
    exec(f"def program(x, w):\n    {form.format(text)}\n", names)
    plain, compiled = names["program"], capture(names["program"], "eager")
    for word in WORDS:
        assert outcome(compiled, word) == outcome(plain, word), word

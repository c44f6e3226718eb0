"""Twenty questions that programs ask of sizes that move, each of which was a guard: which are answered now.

usage: size_questions.py
For each: what the program said before (``torch._check``, ranges), the question, and who answers it: rules, a proof with sympy, or nobody
(then the compiled program holds for one answer only, and is compiled again for the other).
"""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

from opmill_fake_tensors.symbols import Index, Relation, Sizes, floordiv, mod
from opmill_fake_tensors.symbols import sizes as environment


def at_least(a: Index, b: Index | int) -> Relation:
    return Relation(a - b, ">=")


def equal(a: Index, b: Index | int) -> Relation:
    return Relation(a - b, "==")


def said(*relations: Callable[[Index, Index], Relation]) -> tuple[Callable[[Index, Index], Relation], ...]:
    return relations


EIGHT = said(lambda n, m: equal(mod(n, 8), 0))
BOTH = said(lambda n, m: equal(mod(n, 16), 0), lambda n, m: equal(mod(m, 4), 0))
SMALLER = said(lambda n, m: at_least(m, n))
QUESTIONS: dict[str, tuple[tuple[Callable[[Index, Index], Relation], ...], Callable[[Index, Index], Relation]]] = {
    "half twice is not more": ((), lambda n, m: at_least(n, floordiv(n, 2) * 2)),
    "a padded size is no smaller": ((), lambda n, m: at_least(floordiv(n + 7, 8) * 8, n)),
    "padding adds less than a block": ((), lambda n, m: at_least(n + 7, floordiv(n + 7, 8) * 8)),
    "a strided convolution shrinks": ((), lambda n, m: at_least(n, floordiv(n - 1, 2) + 1)),
    "two strided convolutions leave something": ((), lambda n, m: at_least(floordiv(floordiv(n - 1, 2), 2) + 1, 1)),
    "halves add up": ((), lambda n, m: equal(floordiv(n, 2) + floordiv(n + 1, 2), n)),
    "thirds are less than halves": ((), lambda n, m: at_least(floordiv(n, 2), floordiv(n, 3))),
    "a chunk of two sizes fits": ((), lambda n, m: at_least(n * m, floordiv(n, 2) * m)),
    "the rest is less than the size": ((), lambda n, m: at_least(n, mod(n, 4))),
    "a window fits a larger image": (SMALLER, lambda n, m: at_least(floordiv(m, 2), floordiv(n, 2))),
    "heads of eight": (EIGHT, lambda n, m: equal(floordiv(n, 8) * 8, n)),
    "divided by four, too": (EIGHT, lambda n, m: equal(mod(n, 4), 0)),
    "half of it is even": (EIGHT, lambda n, m: equal(mod(floordiv(n, 2), 2), 0)),
    "halves of eights are whole": (EIGHT, lambda n, m: equal(floordiv(n, 2) * 2, n)),
    "at least eight": (EIGHT, lambda n, m: at_least(n, 8)),
    "never twelve": (EIGHT, lambda n, m: equal(n, 12)),
    "patches cover the image": (BOTH, lambda n, m: equal(floordiv(n, 16) * 16 * floordiv(m, 4) * 4, n * m)),
    "products are multiples": (BOTH, lambda n, m: equal(mod(n * m, 64), 0)),
    "padding does nothing": (EIGHT, lambda n, m: equal(floordiv(n + 7, 8) * 8, n)),
    "blocks of a sum": (BOTH, lambda n, m: equal(floordiv(n + m, 4), floordiv(n, 4) + floordiv(m, 4))),
}


def answer(name: str, rules_alone: bool = False) -> bool | None:
    if rules_alone:
        with mock.patch.object(environment, "prove", lambda *_: None), mock.patch.object(Sizes, "_note_multiple", lambda *_: None):
            return answer(name)
    sizes = Sizes()
    n, m = sizes.new(48), sizes.new(64)
    before, question = QUESTIONS[name]
    for relation in before:
        sizes.decide(relation(n, m))
    return sizes.known(question(n, m))


def main() -> None:
    guards = [0, 0]
    for name in QUESTIONS:
        alone, now = answer(name, rules_alone=True), answer(name)
        guards[0] += alone is None
        guards[1] += now is None
        print(f"{name:42} {'a guard' if alone is None else alone!s:8} -> {'a guard' if now is None else now}")
    print(f"guards: {guards[0]} of {len(QUESTIONS)} with rules alone, {guards[1]} with what was said and proofs")


if __name__ == "__main__":
    main()

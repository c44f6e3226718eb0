"""What methods of a class read, and whether something that they lead to may read an attribute by its name."""

import functools
import gc
import weakref

from opmill_bytecode_frontend.values.self_contained import also_read, mentions

SIZES = {"first": 1}
NAMES = ("by_table",)


class Base:
    limit = 3

    def plain(self):
        return self.number + self.limit

    def deeper(self):
        return self.plain() * len(self.items)

    def global_(self):
        return SIZES[self.number]

    def writes(self):
        self.number = 1

    def imports(self):
        import math

        return math.pi

    @property
    def read(self):
        return self.number

    def called(self):
        return called(self)


def called(obj):
    return obj.by_function, [getattr(obj, name) for name in NAMES]


def test_a_method_that_reads_its_object_alone():
    assert also_read(Base, "plain") == (3,)
    assert also_read(Base, "deeper") == (3,)
    assert also_read(Base, "read") == ()
    assert also_read(Base, "number") == ()


def test_a_method_that_may_read_or_change_something_else():
    for name in ("global_", "writes", "imports", "called"):
        assert also_read(Base, name) is None, name


def test_what_methods_lead_to_is_read_by_name():
    assert mentions(Base, "number") and mentions(Base, "by_function") and mentions(Base, "by_table")
    assert not mentions(Base, "by_nobody")


def test_code_that_looks_at_all_attributes_at_once_may_read_any():
    class All:
        def shown(self):
            return vars(self)

    assert mentions(All, "by_nobody")


def test_a_class_lives_no_longer_for_having_been_looked_at():
    class Gone:
        def read(self):
            return self.number

    assert mentions(Gone, "number")
    gone = weakref.ref(Gone)
    del Gone
    gc.collect()
    assert gone() is None


def test_a_metaclass_is_not_asked():
    class Meta(type):
        def __hash__(cls):
            raise AssertionError("asked")

        __eq__ = functools.partialmethod(__hash__)

    class Made(metaclass=Meta):
        def read(self):
            return self.number

    assert mentions(Made, "number") and not mentions(Made, "other")

"""What is made when it is first asked for."""

import gc
import threading
import weakref

import pytest

from opmill_fake_tensors.lazily import cached_property, once_for_each_class, submodules


class Made:
    def __init__(self):
        self.count = 0

    @cached_property
    def value(self):
        """What it is."""
        self.count += 1
        return [self.count]


def test_an_attribute_is_made_once_for_each_instance():
    one, other = Made(), Made()
    assert one.value is one.value and (one.count, other.count) == (1, 0) and other.value == [1]
    assert Made.value.__doc__ == "What it is."
    del one.__dict__["value"]
    assert one.value == [2]


def test_two_threads_get_one_value():
    """Both may compute it; nobody waits for a lock that a forked process would wait for for ever."""
    meet = threading.Barrier(2, timeout=20)

    class Slow:
        @cached_property
        def value(self):
            meet.wait()
            return object()

    slow, found = Slow(), []
    threads = [threading.Thread(target=lambda: found.append(slow.value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and found[0] is found[1] is slow.value


def test_modules_of_folders(tmp_path):
    for name in ("b.py", "a.py", "__init__.py", "notes.txt"):
        (tmp_path / name).touch()
    assert submodules([str(tmp_path)]) == ["a", "b"]
    with pytest.raises(OSError):
        submodules([str(tmp_path / "gone")])


def test_a_fact_about_a_class_is_found_once_and_keeps_nothing():
    asked = []

    class Hashed(type):
        def __hash__(cls):
            raise AssertionError("the program's own code is not run")

        __eq__ = __hash__

    @once_for_each_class
    def name(cls):
        """What it is."""
        asked.append(cls.__name__)
        return [cls.__name__]

    class One(metaclass=Hashed): ...

    assert name(One) is name(One) and name(int) == ["int"] and asked == ["One", "int"] and name.__doc__ == "What it is."
    ended = weakref.ref(One)
    del One
    gc.collect()
    assert ended() is None

    class One(metaclass=Hashed): ...

    assert name(One) == ["One"] and asked == ["One", "int", "One"]

"""A cache that machines share: entries come from it checked, it decides who compiles, and it never holds up or fails anybody."""

import threading
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from opmill_runtime_cache.errors import StoreWarning
from opmill_runtime_cache.store import NoSecret, Remote, Store, default_store, key_of, open_remote, turns
from opmill_runtime_cache.store import store as store_module
from opmill_runtime_cache.store.files import Files
from opmill_runtime_cache.store.remote import Limits, path_of, secret_from

fsspec = pytest.importorskip("fsspec")
KEY, OTHER = key_of("an artifact"), key_of("another")
TEXT = "a secret that has more than enough characters"
SECRET = secret_from(TEXT)
PATIENT = 60.0
"""Seconds that no test waits for unless it fails."""


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    yield f"memory://{uuid.uuid4().hex}" if request.param == "memory" else f"file://{tmp_path}/shared"


@pytest.fixture
def machine(tmp_path):
    """Makes stores of machines that know nothing of one another but the shared cache."""

    def make(url, name, secret=SECRET, limits=Limits(answer=PATIENT), **more):
        return Store(tmp_path / name, remote=Remote(url, secret, limits), **more)

    return make


def test_what_one_machine_puts_another_gets(url, machine):
    here, there = machine(url, "here"), machine(url, "there")
    here.put("plan", KEY, b"payload")
    here.put("cpu-so", OTHER, b"code")
    here.remote.flush()
    assert there.get("plan", KEY) == b"payload"
    assert there.path("cpu-so", OTHER).read_bytes().startswith(b"code")  # a file of its own
    assert Store(there.root).get("plan", KEY) == b"payload"  # kept, under the user's own secret
    assert there.get("plan", OTHER) is None


def test_many_are_asked_for_at_once(url, machine, monkeypatch):
    here, there = machine(url, "here"), machine(url, "there")
    keys = [key_of(number) for number in range(5)]
    for number, key in enumerate(keys[:4]):
        here.put("plan", key, bytes([number]))
    here.remote.flush()
    asked, read = [], Files.read
    monkeypatch.setattr(Files, "read", lambda self, names: asked.append(len(names)) or read(self, names))
    there.fetch("plan", keys)
    assert [there.get("plan", key) for key in keys] == [b"\0", b"\1", b"\2", b"\3", None]
    there.fetch("plan", keys)
    assert asked == [5]


def spoiled(data, how):
    return {"flipped": bytes([data[0] ^ 1]) + data[1:], "cut": data[:-1], "longer": data + b"x", "empty": b""}[how]


@pytest.mark.parametrize("how", ["flipped", "cut", "longer", "empty", "moved", "other secret"])
def test_what_was_not_sealed_so_is_not_used(url, machine, how):
    here = machine(url, "here", secret_from("x" * 32) if how == "other secret" else SECRET)
    here.put("plan", KEY, b"payload")
    here.remote.flush()
    files, place = Files(url), path_of("plan", KEY)
    [data] = files.read([place]).values()
    if how == "moved":
        files.write(path_of("plan", OTHER), data)
    elif how != "other secret":
        files.write(place, spoiled(data, how))
    there = machine(url, "there")
    with pytest.warns(StoreWarning, match="RC068") as caught:
        assert there.get("plan", OTHER if how == "moved" else KEY) is None
    assert len(caught) == 1
    there.put("plan", KEY, b"made anew")
    there.remote.flush()
    assert machine(url, "third").get("plan", KEY) == b"made anew"


class Gate:
    """What a file system waits for."""

    def __init__(self):
        self.entered, self.open = threading.Event(), threading.Event()


@pytest.fixture
def broken(monkeypatch):
    """Makes operations of the shared cache's files hang until the test is over, or fail."""
    gate = Gate()

    def make(operation, error=None):
        def instead(*args, **kwargs):
            gate.entered.set()
            if error is not None:
                raise error
            gate.open.wait(PATIENT)

        monkeypatch.setattr(Files, operation, instead)
        return gate

    yield make
    gate.open.set()


ERRORS = [None, OSError("no route to host"), RuntimeError("quota"), PermissionError("forbidden")]


@pytest.mark.parametrize("error", ERRORS, ids=["hangs", "host", "quota", "forbidden"])
@pytest.mark.parametrize("operation", ["__init__", "read"])
def test_one_that_hangs_or_fails_is_done_without(machine, broken, operation, error):
    broken(operation, error)
    store = machine("memory://down", "here", limits=Limits(answer=0.05 if error is None else PATIENT))
    with pytest.warns(StoreWarning, match="RC066.*" + ("did not answer" if error is None else str(error))) as caught:
        for number in range(3):
            assert store.get("plan", key_of(number)) is None
            with store.turn("plan", key_of(number)) as waited:
                assert not waited
                store.put("plan", key_of(number), b"made here")
            assert store.get("plan", key_of(number)) == b"made here"
        store.remote.flush()
    assert len(caught) == 1


@pytest.mark.parametrize("error", ERRORS[:3], ids=["hangs", "host", "quota"])
def test_one_that_takes_nothing_more(machine, broken, error):
    gate = broken("write", error)
    store = machine("memory://full", "here", limits=Limits(answer=0.05 if error is None else PATIENT))
    with pytest.warns(StoreWarning, match="RC066"):
        store.put("plan", KEY, b"made here")
        assert gate.entered.wait(PATIENT)
        store.remote.flush()
        writer = store.remote._writer
        with store.remote._state:
            assert store.remote._state.wait_for(lambda: not store.remote._working, PATIENT)
    assert writer.is_alive() and not store.remote.usable and store.get("plan", KEY) == b"made here"


@pytest.mark.parametrize("error, code", [(PermissionError("forbidden"), "RC069"), (NotImplementedError(), None)])
def test_one_that_only_gives(url, machine, broken, monkeypatch, error, code):
    here = machine(url, "here")
    here.put("plan", KEY, b"payload")
    here.remote.flush()
    for operation in ("write", "create"):
        broken(operation, error)
    there = machine(url, "there")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with there.turn("plan", OTHER) as waited:
            assert not waited
        for number in range(3):
            there.put("plan", key_of(number), b"mine")
        there.remote.flush()
    assert [str(w.message)[1:6] for w in caught] == ([code] if code else [])
    assert there.get("plan", KEY) == b"payload" and not there.remote.writable


def test_the_first_machine_makes_it_and_the_others_wait(url, machine):
    made, begun, go_on = [], threading.Event(), threading.Event()
    limits = Limits(answer=PATIENT, look=0.01)

    def work(name):
        store = machine(url, name, limits=limits)
        if store.get("plan", KEY) is None:
            with store.turn("plan", KEY) as waited:
                if not waited or store.get("plan", KEY) is None:
                    made.append(name)
                    begun.set()
                    assert go_on.wait(PATIENT)
                    store.put("plan", KEY, b"made once")
        return store.get("plan", KEY)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(work, "first")
        assert begun.wait(PATIENT)
        rest = [pool.submit(work, f"machine {number}") for number in range(3)]
        go_on.set()
        assert {f.result(PATIENT) for f in (first, *rest)} == {b"made once"}
    assert made == ["first"]


def test_a_lease_whose_owner_is_gone(url, machine):
    """A machine that dies while it compiles leaves its lease behind."""
    Files(url).create(f"leases/plan-{KEY}", b"somebody 1")
    store = machine(url, "here", limits=Limits(answer=PATIENT, look=0.01, dead=0.02))
    with store.turn("plan", KEY) as waited:
        assert waited and store.get("plan", KEY) is None
        store.put("plan", KEY, b"made")
    store.remote.flush()
    assert not Files(url).read([f"leases/plan-{KEY}"])


def test_a_lease_is_renewed_while_its_owner_works(url, machine, monkeypatch):
    renewed, write = threading.Event(), Files.write
    monkeypatch.setattr(Files, "write", lambda self, name, data: (write(self, name, data), name.startswith("leases") and renewed.set()))
    store = machine(url, "here", limits=Limits(answer=PATIENT, beat=0.01))
    with store.turn("plan", KEY):
        before = Files(url).read([f"leases/plan-{KEY}"])
        assert renewed.wait(PATIENT)
        assert before
    store.remote.flush()


def test_one_machine_that_stands_still_holds_up_no_other(url, machine, monkeypatch):
    """It goes on to give signs of life, and never ends."""
    signs = iter(range(1_000_000))
    monkeypatch.setattr(turns, "_take", lambda files, path, sign: f"alive {next(signs)}".encode())
    store = machine(url, "here", limits=Limits(answer=PATIENT, look=0.01), lock_timeout_s=0.1)
    with pytest.warns(StoreWarning, match="RC067"), store.turn("plan", KEY) as waited:
        assert waited and store.get("plan", KEY) is None


def test_one_process_that_stands_still_holds_up_no_other(tmp_path):
    first, second = Store(tmp_path), Store(tmp_path, lock_timeout_s=0.1)
    with first.turn("plan", KEY) as waited:
        assert not waited
        with ThreadPoolExecutor(1) as pool:

            def other():
                with second.turn("plan", KEY) as waited:
                    return waited

            with pytest.warns(StoreWarning, match="RC067"):
                assert pool.submit(other).result(PATIENT)


class Watched(Store):
    """Says when it has begun to wait for another one."""

    def __init__(self, root):
        super().__init__(root, lock_timeout_s=PATIENT)
        self.waits = threading.Event()

    def _find_here(self, kind, key):
        found = super()._find_here(kind, key)
        self.waits.set()
        return found


def test_all_that_wait_go_on_at_once_when_the_entry_comes(tmp_path):
    """None waits for another one that loads what was made, nor for what its maker does after it."""
    first, others = Store(tmp_path), [Watched(tmp_path) for _ in range(4)]
    inside = threading.Barrier(len(others))

    def other(store):
        with store.turn("plan", KEY) as waited:
            inside.wait(PATIENT)
            return waited, store.get("plan", KEY)

    with ThreadPoolExecutor(len(others)) as pool, first.turn("plan", KEY):
        found = [pool.submit(other, store) for store in others]
        assert all(store.waits.wait(PATIENT) for store in others)
        first.put("plan", KEY, b"made")
        assert [each.result(PATIENT) for each in found] == [(True, b"made")] * len(others)


def test_an_entry_of_no_use_lets_nobody_go_on(tmp_path):
    """It is there before, and made anew."""
    first, other = Store(tmp_path), Watched(tmp_path)
    first.put("plan", KEY, b"of no use")

    def turned():
        with other.turn("plan", KEY) as waited:
            return waited, other.get("plan", KEY)

    with ThreadPoolExecutor(1) as pool:
        with first.turn("plan", KEY):
            found = pool.submit(turned)
            assert other.waits.wait(PATIENT)
            first.put("plan", KEY, b"made")
            assert not found.done()
        assert found.result(PATIENT) == (True, b"made")


def test_a_turn_within_itself_waits_for_nobody(tmp_path):
    store = Store(tmp_path, lock_timeout_s=PATIENT)
    with store.turn("plan", KEY), store.turn("plan", KEY) as waited:
        assert not waited


@pytest.mark.parametrize("secret", [None, "", "short", " " * 40])
def test_no_shared_cache_without_a_secret(monkeypatch, tmp_path, secret):
    monkeypatch.setenv("OPMILL_CACHE_URL", "memory://anything")
    monkeypatch.setenv("OPMILL_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("OPMILL_CACHE_KEY", raising=False)
    if secret is not None:
        monkeypatch.setenv("OPMILL_CACHE_KEY", secret)
    store_module._warn_unused.cache_clear()
    with pytest.raises(NoSecret, match="at least 32"):
        open_remote()
    with pytest.warns(StoreWarning, match="RC065"):
        assert default_store().remote is None


def test_the_secret_from_the_environment_or_a_file(monkeypatch, tmp_path):
    monkeypatch.setenv("OPMILL_CACHE_URL", "memory://by-environment")
    monkeypatch.setenv("OPMILL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("OPMILL_CACHE_KEY", TEXT)
    (tmp_path / "secret").write_text(TEXT + "\n")
    assert default_store().remote is open_remote() is open_remote("memory://by-environment", tmp_path / "secret") is not None
    assert TEXT not in repr(default_store())


def test_no_shared_cache_unless_asked_for(monkeypatch, tmp_path):
    monkeypatch.delenv("OPMILL_CACHE_URL", raising=False)
    monkeypatch.setenv("OPMILL_CACHE_DIR", str(tmp_path))
    assert default_store().remote is None and not default_store().portable

"""Entries as files: payload and seal are torn apart by nobody."""

import pytest

from opmill_runtime_cache.store.entry import PARTIAL, seal, unseal, write_atomically

SECRET = b"s" * 32


@pytest.mark.parametrize("payload", [b"", b"x", b"\x7fELF" + bytes(1000)])
def test_a_sealed_entry_begins_with_its_payload_and_is_read_back(payload):
    data = seal("cpu-so", "k", payload, SECRET)
    assert data.startswith(payload) and bytes(unseal("cpu-so", "k", data, SECRET)) == payload


def test_any_other_byte_name_or_secret_breaks_the_seal():
    data = seal("plan", "k", b"payload", SECRET)
    for k in range(len(data)):
        assert unseal("plan", "k", data[:k] + bytes([data[k] ^ 1]) + data[k + 1 :], SECRET) is None
        assert unseal("plan", "k", data[:k], SECRET) is None
    assert unseal("plan", "k", data + b"\0", SECRET) is None and unseal("plan", "k", b"\0" + data, SECRET) is None
    assert unseal("plan", "j", data, SECRET) is None and unseal("plans", "k", data, SECRET) is None
    assert unseal("plan", "k", data, b"t" * 32) is None


def test_a_file_is_written_whole_or_not(tmp_path, monkeypatch):
    path = tmp_path / "entry"
    write_atomically(path, b"one", tmp_path)
    assert path.read_bytes() == b"one" and path.stat().st_mode & 0o077 == 0

    def fails(*_):
        raise OSError("no room")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(OSError, match="no room"):
        write_atomically(path, b"two", tmp_path)
    assert path.read_bytes() == b"one" and not [p for p in tmp_path.iterdir() if p.name.startswith(PARTIAL)]

"""What others can write to is not read, and links are not followed."""

import os

import pytest

from opmill_runtime_cache.store.private import NotPrivate, check, make_below, open_below, secret_of


@pytest.fixture
def root(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path


def test_folders_are_made_for_the_user_alone(root):
    made = make_below(root, "a", "b")
    assert made == root / "a" / "b" and made.is_dir()
    assert (made.stat().st_mode & 0o022) == 0
    assert make_below(root, "a", "b") == made
    (made / "file").write_bytes(b"x")
    handle = open_below(root, "a", "b", "file")
    assert os.read(handle, 2) == b"x"
    os.close(handle)
    with pytest.raises(NotPrivate):
        open_below(root, "a", "b")


@pytest.mark.parametrize("mode", [0o777, 0o702])
def test_what_all_may_write_to_is_refused(root, mode):
    folder = make_below(root, "a")
    (folder / "file").write_bytes(b"x")
    os.close(open_below(root, "a", "file"))
    folder.chmod(mode)
    with pytest.raises(NotPrivate):
        check(folder.stat(), folder)
    with pytest.raises(NotPrivate):
        open_below(root, "a", "file")


def test_links_are_not_followed(root):
    (make_below(root, "real") / "file").write_bytes(b"x")
    (root / "link").symlink_to(root / "real")
    (root / "real" / "link").symlink_to(root / "real" / "file")
    for names in (("link", "file"), ("real", "link")):
        with pytest.raises(OSError):
            open_below(root, *names)


def test_a_secret_is_made_once(root):
    assert secret_of(root) is None
    made = secret_of(root, make=True)
    assert made and secret_of(root, make=True) == made == secret_of(root)

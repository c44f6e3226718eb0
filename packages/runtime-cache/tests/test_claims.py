"""A folder is its owner's while it works there, and goes with it."""

import os
import signal
import subprocess
import sys

from opmill_runtime_cache.store.claims import claim, claimed, sweep

HELD = "import sys; from pathlib import Path; from opmill_runtime_cache.store.claims import claim\nheld = claim(Path(sys.argv[1]), 'work-'); print('held', flush=True); sys.stdin.read()"


def folders(parent):
    return sorted(each.name for each in parent.iterdir() if each.is_dir())


def test_it_goes_with_the_block(tmp_path):
    with claimed(tmp_path, "work-") as folder:
        (folder / "x").write_text("1")
        assert folder.name.startswith("work-") and folders(tmp_path) == [folder.name]
        sweep(tmp_path, "work-")
        assert (folder / "x").exists()
    assert list(tmp_path.iterdir()) == []


def test_two_have_two(tmp_path):
    with claimed(tmp_path, "work-") as first, claimed(tmp_path, "work-") as second:
        assert first != second


def test_what_a_killed_process_leaves_is_removed_by_the_next(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HELD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    sweep(tmp_path, "work-")
    assert len(folders(tmp_path)) == 1
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    sweep(tmp_path, "other-")
    assert len(folders(tmp_path)) == 1
    with claimed(tmp_path, "work-") as mine:
        sweep(tmp_path, "work-")
        assert folders(tmp_path) == [mine.name]


def test_a_claim_is_let_go(tmp_path):
    held = claim(tmp_path, "work-")
    assert len(folders(tmp_path)) == 1
    held.release()
    held.release()
    assert folders(tmp_path) == []

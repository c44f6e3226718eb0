"""Which folders other machines are asked for: by the mount with the longest path, of several at one place the last."""

import pytest

from opmill import filesystems

MOUNTS = r"""
/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
tmpfs /home/local tmpfs rw 0 0
sshfs#host: /mnt/far\040away fuse.sshfs rw 0 0
lxcfs /proc/cpuinfo fuse.lxcfs rw 0 0
first /twice nfs rw 0 0
second /twice xfs rw 0 0
broken line
""".strip()


@pytest.mark.parametrize(
    ("folder", "kind"),
    [("/tmp", ""), ("/home", "nfs4"), ("/home/me/cache", "nfs4"), ("/home/local/x", ""), ("/homes", ""),
     ("/mnt/far away/x", "fuse.sshfs"), ("/proc/cpuinfo", ""), ("/twice/x", "")],
)  # fmt: skip
def test_mounts(tmp_path, monkeypatch, folder, kind):
    table = tmp_path / "mounts"
    table.write_text(MOUNTS)
    monkeypatch.setattr(filesystems, "_MOUNTS", table)
    monkeypatch.setattr(filesystems.os.path, "realpath", lambda path: path)
    assert filesystems.network_filesystem(folder) == kind


def test_a_system_that_does_not_say(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystems, "_MOUNTS", tmp_path / "missing")
    assert filesystems.network_filesystem(tmp_path) == ""

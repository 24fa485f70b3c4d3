"""Owners and modes of a node's files come back."""

import os
import pathlib
import stat

import pytest

from ganeti.base.pathutils import Paths
from ganeti.migration.takeover import node

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="owners need root")


@pytest.fixture
def paths(tmp_path):
    made = Paths(root=str(tmp_path / "node1"), hostname="node1")
    for directory in (made.data_dir, made.run_dir, made.log_dir, made.data("queue")):
        os.makedirs(directory)
    pathlib.Path(made.data("server.pem")).write_text("x")
    os.chown(made.data("server.pem"), 890, 891)
    os.chmod(made.data("server.pem"), 0o440)
    os.chown(made.data("queue"), 890, 895)
    os.chmod(made.data("queue"), 0o750)
    os.symlink("/etc/passwd", made.data("link"))
    return made


def state(path):
    status = os.lstat(path)
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def test_files_get_their_owners_back_and_the_queue_its_new_files(
    paths, tmp_path
) -> None:
    target = str(tmp_path / "owners.json")
    assert node.keep_files(paths, target) == 5
    os.chown(paths.data("server.pem"), 0, 0)
    os.chmod(paths.data("server.pem"), 0o600)
    os.chown(paths.data("queue"), 0, 0)
    # After an interruption, the first list counts.
    assert node.keep_files(paths, target) == 0
    os.makedirs(paths.data("queue/archive/0"))
    pathlib.Path(paths.data("queue/archive/0/job-7")).write_text("{}")
    node.restore_files(paths, target)
    assert state(paths.data("server.pem")) == (890, 891, 0o440)
    assert state(paths.data("queue")) == (890, 895, 0o750)
    assert state(paths.data("queue/archive/0")) == (890, 895, 0o750)
    assert state(paths.data("queue/archive/0/job-7")) == (890, 895, 0o640)


def test_a_link_in_the_place_of_a_file_is_not_followed(paths, tmp_path) -> None:
    target, victim = str(tmp_path / "owners.json"), tmp_path / "victim"
    node.keep_files(paths, target)
    victim.write_text("x")
    before = state(victim)
    os.unlink(paths.data("server.pem"))
    os.symlink(victim, paths.data("server.pem"))
    node.restore_files(paths, target)
    assert state(victim) == before


def test_without_a_list_nothing_changes(paths, tmp_path) -> None:
    assert node.restore_files(paths, str(tmp_path / "none")) == 0

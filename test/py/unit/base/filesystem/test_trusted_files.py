"""Programs that nobody but root can replace."""

import os
import stat

import pytest

from ganeti.base.filesystem import trusted_files

ME = os.geteuid()


class Files:
    """File status with owners and modes of a test's choice; the rest is real."""

    def __init__(self, top):
        self.top = str(top)
        self.changes = {}
        self.real = os.lstat

    def set(self, path, **changes):
        self.changes[str(path)] = changes

    def lstat(self, path):
        info = self.real(path)
        values = list(info)
        if not str(path).startswith(f"{self.top}/"):
            # Directories above the test's own are like those of a real node.
            values[stat.ST_MODE] = stat.S_IFMT(info.st_mode) | 0o755
            values[stat.ST_UID] = 0
        else:
            values[stat.ST_UID] = 0
        for name, value in self.changes.get(str(path), {}).items():
            if name == "mode":
                values[stat.ST_MODE] = stat.S_IFMT(info.st_mode) | value
            else:
                values[getattr(stat, f"ST_{name.upper()}")] = value
        return os.stat_result(values)


@pytest.fixture
def files(tmp_path, monkeypatch):
    fake = Files(tmp_path)
    monkeypatch.setattr(trusted_files.os, "lstat", fake.lstat)
    return fake


@pytest.fixture
def program(tmp_path, files):
    path = tmp_path / "sbin" / "deep" / "helper"
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o755)
    path.parent.parent.chmod(0o755)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def problem(path, *, is_virtual=False):
    return trusted_files.program_problem(str(path), is_virtual=is_virtual)


def test_a_program_of_root_below_directories_of_root_may_run(program):
    assert problem(program) is None
    assert problem(f"{program.parent}//./{program.name}") is None
    assert problem(f"{program.parent}/../deep/{program.name}") is None
    assert problem(f"{program.parent}/./../deep/{program.name}") is None


@pytest.mark.parametrize("level", [1, 2])
def test_a_directory_where_nobody_can_replace_the_files_of_root_is_right(
    program, files, level
):
    path = [program, *program.parents][level]
    files.set(path, mode=0o1777)
    assert problem(program) is None
    files.set(path, mode=0o1777, uid=4321)
    assert problem(program) == f"{path} belongs to user 4321, wanted root"


@pytest.mark.parametrize(
    ("level", "mode"),
    [(0, 0o1777)] + [(n, mode) for n in (0, 1, 2) for mode in (0o775, 0o757, 0o777)],
)
def test_what_others_can_write_is_refused(program, files, mode, level):
    path = [program, *program.parents][level]
    files.set(path, mode=mode)
    assert problem(program) == (
        f"{path} can be written by others than its owner (mode {mode:04o})"
    )


@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_belongs_to_others_is_refused(program, files, level):
    path = [program, *program.parents][level]
    files.set(path, uid=1234)
    assert problem(program) == f"{path} belongs to user 1234, wanted root"


def test_other_things_than_programs_are_refused(program, tmp_path):
    assert problem(f"{program}.gone") == f"{program}.gone does not exist"
    assert "is not a regular file" in problem(program.parent)
    assert "is not a directory" in problem(program / "below")
    assert "wanted an absolute path" in problem("sbin/helper")
    assert problem("/sbin/a\0b") == r"'/sbin/a\x00b': no path has a zero byte"
    program.chmod(0o644)
    assert "is not executable for its owner" in problem(program)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert "is not a regular file" in problem(fifo)


@pytest.mark.parametrize("is_absolute", [True, False])
def test_links_are_followed_and_both_sides_checked(
    program, files, tmp_path, is_absolute
):
    places = tmp_path / "etc"
    places.mkdir()
    places.chmod(0o755)
    link = places / "helper"
    target = program if is_absolute else "../sbin/deep/helper"
    link.symlink_to(target)
    assert problem(link) is None
    files.set(program.parent.parent, mode=0o777)
    assert f"{program.parent.parent} can be written" in problem(link)
    files.set(program.parent.parent, mode=0o755)
    files.set(places, mode=0o777)
    assert f"{places} can be written" in problem(link)


def test_a_directory_that_is_a_link_is_followed(program, files, tmp_path):
    (tmp_path / "alias").symlink_to(program.parent)
    assert problem(tmp_path / "alias" / "helper") is None
    files.set(program.parent, uid=1234)
    assert "belongs to user 1234" in problem(tmp_path / "alias" / "helper")


def test_links_in_a_circle_are_refused(files, tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert "too many symbolic links" in problem(tmp_path / "a")


def test_a_virtual_node_trusts_its_own_user_and_sticky_directories(program, files):
    files.set(program, uid=ME)
    files.set(program.parent, uid=ME, gid=os.getegid(), mode=0o775)
    files.set(program.parent.parent, uid=4321, mode=0o1777)
    assert problem(program, is_virtual=True) is None
    files.set(program.parent, uid=4321)
    assert "belongs to user 4321" in problem(program, is_virtual=True)
    files.set(program.parent, mode=0o777)
    assert "can be written" in problem(program, is_virtual=True)

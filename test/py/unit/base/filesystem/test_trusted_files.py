"""Programs that nobody but root can replace."""

import os
import stat

import pytest

from ganeti.base import errors
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


ROOT = (0, 0)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A directory with one command; both belong to root, whoever runs the test."""
    folder = tmp_path / "allowed"
    folder.mkdir(mode=0o755)
    program = folder / "check"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    owners = {str(folder): ROOT, str(program): ROOT}
    real = os.lstat

    def lstat(path, **options):
        info = real(path, **options)
        owner = owners.get(str(path))
        return os.stat_result((*info[:4], *owner, *info[6:])) if owner else info

    monkeypatch.setattr(os, "lstat", lstat)
    return folder, program, owners


def find(place, name="check", *, is_name=lambda _name: True, is_virtual=False):
    return trusted_files.find_command(
        str(place[0]), name, is_name=is_name, is_virtual=is_virtual
    )


def refuses(place, match, **options):
    with pytest.raises(errors.GenericError, match=match):
        find(place, **options)


def test_a_command_of_root_is_used(place):
    assert find(place) == str(place[1])


@pytest.mark.parametrize("name", ["", " ", "\t\n"])
def test_an_empty_name_is_refused_whatever_the_caller_permits(place, name):
    refuses(place, "not a valid command name", name=name)


def test_the_caller_decides_on_the_name_before_any_file_is_looked_at(place):
    asked = []

    def is_name(name):
        asked.append(name)
        return False

    refuses(place, r"'\.\./check' is not a valid", name="../check", is_name=is_name)
    assert asked == ["../check"]


def test_a_command_that_does_not_exist_is_no_command(place):
    with pytest.raises(FileNotFoundError, match="other"):
        find(place, "other")
    place[1].unlink()
    place[0].rmdir()
    with pytest.raises(FileNotFoundError, match="allowed"):
        find(place)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("owner", [(1, 0), (0, 1)])
def test_owner_and_group_must_be_root(place, which, owner):
    place[2][str(place[which])] = owner
    refuses(place, rf"{place[which].name}: wanted owner and group \(0, 0\)")


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("mode", [0o775, 0o757, 0o4755, 0o2755, 0o1755])
def test_nobody_else_may_write_and_no_special_bit_is_set(place, which, mode):
    place[which].chmod(mode)
    refuses(place, f"{place[which].name}: mode allows more than 755")


@pytest.mark.parametrize("mode", [0o700, 0o500, 0o755])
def test_stricter_modes_are_fine(place, mode):
    place[0].chmod(mode)
    place[1].chmod(mode)
    assert find(place) == str(place[1])


@pytest.mark.parametrize("mode", [0o644, 0o655])
def test_a_command_that_its_owner_cannot_execute_is_refused(place, mode):
    place[1].chmod(mode)
    refuses(place, "check: not executable for its owner")


def test_links_are_not_followed(place, tmp_path):
    target = tmp_path / "target"
    place[1].rename(target)
    place[1].symlink_to(target)
    refuses(place, "check: wrong type of file")
    place[1].unlink()
    target.rename(place[1])
    place[0].rename(tmp_path / "elsewhere")
    place[0].symlink_to(tmp_path / "elsewhere")
    refuses(place, "allowed: wrong type of file")


def test_a_directory_is_no_command(place):
    place[1].unlink()
    place[1].mkdir(mode=0o755)
    refuses(place, "check: wrong type of file")


def test_on_a_virtual_node_its_user_takes_the_part_of_root(place, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    monkeypatch.setattr(os, "getegid", lambda: 8)
    refuses(place, r"wanted owner and group \(7, 8\)", is_virtual=True)
    for path in place[:2]:
        place[2][str(path)] = (7, 8)
    assert find(place, is_virtual=True) == str(place[1])
    refuses(place, r"wanted owner and group \(0, 0\)")

"""A command runs only if nobody but root can have put it there."""

import os

import pytest

from ganeti.base import errors
from ganeti.base.filesystem import allowed_commands

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
    return allowed_commands.find(
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

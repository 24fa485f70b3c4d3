"""Files of disks are reached through descriptors: others can swap what has a name.

`ganeti.base.filesystem.beneath` opens them. So the drivers of files call nothing of `os` with a
path, and nobody opens, examines or changes a disk by the path of its driver.
"""

import ast
import pathlib
import textwrap

import pytest

LIB = pathlib.Path(__file__).resolve().parents[3] / "lib"
#: Drivers whose disks are files; all of their calls work on descriptors.
DRIVERS = ("node/storage/files.py",)
#: Packages that have drivers at hand.
USERS = ("node/calls", "node/hypervisor", "node/storage")
#: Functions that take a path, and those of their arguments that make it relative to a
#: descriptor, or say what they take.
BY_PATH = (
    *("open", "stat", "lstat", "unlink", "truncate", "link", "rename", "rmdir"),
    *("mkdir", "makedirs", "walk", "listdir", "scandir", "chmod", "chown", "exists"),
    *("isfile", "lexists", "getsize", "access", "replace", "symlink", "readlink"),
)
RELATIVE = ("dir_fd", "src_dir_fd")
#: Places that may, with the reason.
ACCEPTED = {
    (
        "node/calls/disks/blockdev.py",
        "exists",
    ): "the device of a mirror, which is none of a file",
    (
        "node/hypervisor/kvm/devices/firmware.py",
        "open",
    ): "a file of a guest, which is no disk",
    ("node/storage/base.py", "open"): "devices; the drivers of files have their own",
    ("node/storage/external.py", "open"): "a device of external storage",
    ("node/storage/files.py", "makedirs"): "a directory that this node's root allowed",
    ("node/storage/mirrors.py", "open"): "the device of a mirror",
    ("node/storage/volumes.py", "exists"): "a logical volume",
    ("node/storage/volumes.py", "stat"): "a logical volume",
}


def modules():
    for package in USERS:
        assert (LIB / package).is_dir(), package
        for path in sorted((LIB / package).rglob("*.py")):
            yield str(path.relative_to(LIB)), path.read_text()


def names_a_disk(node):
    """Return whether an argument is the path of a driver: ``device.path`` and such."""
    return isinstance(node, ast.Attribute) and (
        node.attr == "path"
        and ast.unparse(node.value) in ("self", "device", "source", "disk", "attached")
    )


def violations(text, *, is_driver):
    for scope in ast.parse(text).body:
        parts = scope.body if isinstance(scope, ast.ClassDef) else [scope]
        for part in parts:
            yield from violations_of(part, is_driver=is_driver)


def violations_of(scope, *, is_driver):
    """Yield what a function, or a statement outside of functions, calls by path."""
    aliases = {
        target.id
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign) and names_a_disk(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(scope):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        owner = ast.unparse(called.value) if isinstance(called, ast.Attribute) else ""
        name = called.attr if owner else getattr(called, "id", "")
        if name not in BY_PATH or owner not in ("os", "os.path", ""):
            continue
        if any(keyword.arg in RELATIVE for keyword in node.keywords):
            continue
        by_driver = any(
            names_a_disk(arg) or (isinstance(arg, ast.Name) and arg.id in aliases)
            for arg in node.args
        )
        if by_driver or is_driver:
            yield name


def test_no_file_of_a_disk_is_used_by_its_path():
    present = {
        (name, what)
        for name, text in modules()
        for what in violations(text, is_driver=name in DRIVERS)
    }
    assert sorted(present - set(ACCEPTED)) == []
    assert set(ACCEPTED) <= present, "accepted, but not there any more"


@pytest.mark.parametrize(
    "source",
    [
        "open(self.path, 'r+b')",
        "os.truncate(device.path, 5)",
        """
        def f(device):
            path = device.path
            os.unlink(path)
        """,
        "os.path.isfile(source.path)",
    ],
)
def test_a_path_of_a_disk_is_reported(source):
    assert list(violations(textwrap.dedent(source), is_driver=False))


def test_a_driver_of_files_uses_descriptors_alone():
    assert list(violations("os.unlink(name)", is_driver=True))
    assert not list(violations("os.unlink(name, dir_fd=top)", is_driver=True))
    assert not list(violations("os.ftruncate(fd, 5)", is_driver=True))

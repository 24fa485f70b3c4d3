"""Nodes read at most a bounded part of a file, which guests or nodes may have written.

`ganeti.base.filesystem.files` has the functions for that: they refuse pipes, devices and, for
files of other programs, links.
"""

import ast
import pathlib
import textwrap

import pytest

LIB = pathlib.Path(__file__).resolve().parents[3] / "lib"
PACKAGES = (
    *("automation/maintenance", "automation/watcher", "base", "daemons/common.py"),
    *(
        "daemons/confd",
        "daemons/mains",
        "daemons/maintd_metrics.py",
        "daemons/mond_agent.py",
        "migration",
        "node",
    ),
    *("protocols/confd", "protocols/ssconf.py", "protocols/uidpool.py", "tools"),
)
#: Calls without a size: they read to the end.
_TO_THE_END = ("read", "readline", "readlines")
_WHOLE = ("read_text", "read_bytes")
_COPIES = ("load", "copy", "copyfile")
_OWN_PIPE = "a pipe from a process of the same program"
_SIZED = "reads a number of bytes; also of a device or of standard input"
_DISK = "the content of a disk, in pieces"
_PERSON = "the answer of the person at the terminal"
_SEEKS = "finds the size of a device; reads nothing"
#: Places that may open or read otherwise, with the reason.
ACCEPTED = {
    ("node/calls/disks/blockdev.py", "open"): _SEEKS,
    (
        "node/calls/helper_machines.py",
        "open",
    ): "a checked descriptor; reads a number of bytes",
    (
        "node/hypervisor/kvm/devices/firmware.py",
        "open",
    ): "a checked descriptor, also of its links",
    ("node/hypervisor/kvm/devices/tpm.py", "open"): "gives a file away; reads nothing",
    ("node/collectors/helper.py", "read"): _OWN_PIPE,
    ("daemons/common.py", "read"): _OWN_PIPE,
    ("daemons/mains/masterd.py", "readline"): _PERSON,
    ("node/storage/adopted.py", "open"): _SEEKS,
    ("node/storage/base.py", "open"): _DISK,
    ("node/storage/external.py", "open"): _SEEKS,
    ("node/storage/mirrors.py", "open"): _SEEKS,
    ("migration/cfgupgrade.py", "readline"): _PERSON,
    ("tools/guest_freeze.py", "open"): _OWN_PIPE,
    ("tools/guest_freeze.py", "read"): _OWN_PIPE,
    ("tools/mon_collector.py", "open"): _SIZED,
    ("migration/move_instance/settings.py", "open"): _SIZED,
    (
        "tools/oob/oob_common.py",
        "open",
    ): "a checked descriptor; reads a number of bytes",
    ("tools/os_image/main.py", "open"): _DISK,
    ("migration/ovf/conversion.py", "open"): _SIZED,
    ("migration/ovf/images.py", "open"): _DISK,
    ("migration/takeover/main.py", "readline"): _PERSON,
    ("base/filesystem/files.py", "open"): "the digest of a file, in pieces",
}


def modules():
    for package in PACKAGES:
        top = LIB / package
        assert top.exists(), package
        for path in [top] if top.is_file() else sorted(top.rglob("*.py")):
            yield str(path.relative_to(LIB)), path.read_text()


def reads_a_file(call):
    mode = call.args[1] if len(call.args) > 1 else None
    for keyword in call.keywords:
        mode = keyword.value if keyword.arg == "mode" else mode
    if mode is None:
        return True
    return isinstance(mode, ast.Constant) and not set(str(mode.value)) & set("wax+")


def violations(text):
    """Return each way around the functions: the name of what is called."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            if reads_a_file(node):
                yield "open"
        elif isinstance(called, ast.Attribute):
            owner = ast.unparse(called.value)
            if called.attr in _TO_THE_END and not (node.args or node.keywords):
                # Methods of our own records, not of streams.
                if owner not in ("self", "own"):
                    yield called.attr
            elif called.attr in _WHOLE or (
                called.attr in _COPIES and owner in ("json", "shutil")
            ):
                yield called.attr


def test_no_file_is_read_without_a_bound():
    present = {(name, what) for name, text in modules() for what in violations(text)}
    assert sorted(present - set(ACCEPTED)) == []
    assert set(ACCEPTED) <= present, "accepted, but not there any more"


@pytest.mark.parametrize(
    "source",
    [
        """
        with open(path) as src:
            text = src.read(10)
        """,
        "lines = [line for line in open(path, encoding='ascii')]",
        "data = stream.read()",
        "line = child.stdout.readline()",
        "text = pathlib.Path(path).read_text()",
        "data = json.load(stream)",
        "shutil.copyfile(source, target)",
        "data = open(path, mode='rb')",
    ],
)
def test_a_way_around_is_reported(source):
    assert list(violations(textwrap.dedent(source)))


@pytest.mark.parametrize(
    "source",
    [
        "open(path, 'w').write(text)",
        "open(path, 'r+b').seek(1)",
        "stream.read(32)",
        "files.read_start(path, 32)",
    ],
)
def test_bounded_reading_is_not_reported(source):
    assert not list(violations(source))

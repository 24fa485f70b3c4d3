"""Rotation of logs: the example of the documents covers what the product writes."""

import fnmatch
import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
EXAMPLE = (TOP / "doc/examples/ganeti.logrotate.in").read_text()
PATTERNS = re.findall(r"@LOCALSTATEDIR@/log/ganeti/(\S+)", EXAMPLE)
#: Directories of files that belong to one guest: programs have them open as long as it
#: runs, and a start of the guest or the end of a script shortens them.
OF_GUESTS = {"chroot", "kvm", "lxc", "xen"}


def written():
    """Return the files and directories below the log directory that the code names."""
    names = set()
    for path in (TOP / "lib").rglob("*.py"):
        names |= set(re.findall(r"log_dir\}/([\w-]+(?:\.log)?)\b", path.read_text()))
    return sorted(names - OF_GUESTS)


def test_the_code_names_logs():
    assert {"epo.log", "commands.log", "os", "extstorage"} <= set(written())


@pytest.mark.parametrize("name", written())
def test_logs_are_rotated(name):
    path = name if name.endswith(".log") else f"{name}/run.log"
    assert any(
        fnmatch.fnmatch(path, pattern) and path.count("/") == pattern.count("/")
        for pattern in PATTERNS
    )

"""Run a program under the restrictions of a systemd unit, without systemd.

``python confinement.py UNIT ROOT PROGRAM ARGUMENT...`` applies what the kernel offers for
each setting of the unit in ``KNOWN`` and executes the program. Paths of the unit are below
the root of a virtual node. It needs root and is run in a mount namespace of its own.
"""

import ctypes
import os
import pathlib
import re
import struct
import subprocess
import sys

#: Settings that are applied; each has a function below or is part of one.
KNOWN = frozenset(
    {
        "CapabilityBoundingSet",
        "MemoryDenyWriteExecute",
        "NoNewPrivileges",
        "ProtectSystem",
        "ReadWritePaths",
        "RestrictAddressFamilies",
        "SystemCallFilter",
    }
)
HEADER = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_SET_MDWE = 22, 2, 65
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_SOCKET, _EPERM, _EAFNOSUPPORT = 41, 1, 97
_FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}


def unit_of(path):
    """Return a unit file as section -> key -> list of words."""
    sections = {}
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            section.setdefault(key, []).extend(value.split())
    return sections


def mount(*argv):
    subprocess.run(["mount", *argv], check=True)


def protect(writable):
    """Make everything read-only but some directories, and the views of the kernel."""
    for path in writable:
        if os.path.isdir(path):
            mount("--bind", path, path)
    mount("-o", "remount,bind,ro", "/")


def system_calls(words):
    """Return the numbers of the system calls of a filter of systemd's groups."""
    known = dict(re.findall(r"__NR_(\w+) (\d+)", pathlib.Path(HEADER).read_text()))
    names, groups = set(), list(words)
    while groups:
        word = groups.pop()
        if not word.startswith("@"):
            names.add(word)
            continue
        text = subprocess.check_output(
            ["systemd-analyze", "syscall-filter", "--no-pager", word], text=True
        )
        groups += re.findall(r"^ {4}(\S+)", text, re.MULTILINE)
    return sorted(int(known[name]) for name in names if name in known)


def program(numbers, families):
    """Return a BPF program that allows some system calls and address families."""
    code = []
    # The rule of socket(2) comes first: its argument decides.
    code.append((_LOAD, 0, 0, 0))
    code.append((_EQUAL, 0, 2 * len(families) + 2, _SOCKET))
    code.append((_LOAD, 0, 0, 16))
    for family in families:
        code += [(_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
    code.append((_RETURN, 0, 0, _ERROR | _EAFNOSUPPORT))
    for number in numbers:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    code.append((_RETURN, 0, 0, _ERROR | _EPERM))
    return code


def set_filter(code):
    data = b"".join(struct.pack("HBBI", *line) for line in code)
    lines = ctypes.create_string_buffer(data, len(data))
    head = struct.pack("HxxxxxxP", len(code), ctypes.addressof(lines))
    prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.create_string_buffer(head))


def prctl(*args):
    libc = ctypes.CDLL(None, use_errno=True)
    padded = [*args, 0, 0, 0, 0][:5]
    if libc.prctl(*padded) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {args[0]}")


def main():
    unit, root, *argv = sys.argv[1:]
    wanted = unit_of(pathlib.Path(unit))["Service"]
    protect(
        f"{root}{path.removeprefix('-').replace('@LOCALSTATEDIR@', '/var')}"
        for path in wanted["ReadWritePaths"]
    )
    names = [word.lower()[4:] for word in wanted["CapabilityBoundingSet"]]
    bounding = ",".join(["-all", *(f"+{name}" for name in names)])
    numbers = system_calls(wanted["SystemCallFilter"])
    families = [_FAMILIES[word] for word in wanted["RestrictAddressFamilies"]]
    apply = [
        sys.executable,
        __file__,
        "--filter",
        ",".join(map(str, numbers)),
        ",".join(map(str, families)),
        *argv,
    ]
    os.execvp(
        "setpriv",
        [
            "setpriv",
            "--no-new-privs",
            f"--bounding-set={bounding}",
            f"--inh-caps={bounding}",
            *apply,
        ],
    )


def confine():
    numbers, families, *argv = sys.argv[2:]
    prctl(_PR_SET_MDWE, 1)
    set_filter(
        program(
            [int(number) for number in numbers.split(",")],
            [int(family) for family in families.split(",")],
        )
    )
    os.execv(argv[0], argv)


if __name__ == "__main__":
    if sys.argv[1] == "--filter":
        confine()
    main()

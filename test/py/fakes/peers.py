"""Debian's Ganeti 3.0 programs, which run unmodified as clients of our daemons.

``autotools/setup-env --test`` unpacks them in ``build/peers``. On Debian 12, a test that
needs them fails without them: skipped, it would hide that nothing was compared. Other
releases do not have them.
"""

import contextlib
import pathlib
import platform
import re

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
#: The unpacked packages.
TREE = TOP / "build" / "peers"
_CLIENTS = TREE / "usr/share/ganeti/3.0"
_PLACEMENT = TREE / "usr/lib/ganeti/3.0/usr/bin"
_SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
#: The allocator, as the master runs allocators.
HAIL = TREE / "usr/lib/ganeti/3.0/usr/lib/ganeti/iallocators/hail"

#: Parts of outputs that differ between two runs, and what replaces them.
_CHANGING = (
    (r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?", "TIME"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"\baa:00:00(:[0-9a-f]{2}){3}", "MAC"),
    (r"(?i)\b(jobs?|JobID:) \d+(, \d+)*", r"\1 N"),
)


def require():
    """Fail the test unless the programs were unpacked; skip it except on Debian 12."""
    # Earlier trees did not unpack the maintainer scripts.
    if (TREE / "complete").exists() and (TREE / "control").exists():
        return
    system = platform.freedesktop_os_release()
    if (system["ID"], system.get("VERSION_ID")) != ("debian", "12"):
        pytest.skip("only Debian 12 has Ganeti 3.0")
    pytest.fail(f"{TREE}: missing; run autotools/setup-env --test", pytrace=False)


def command(*argv):
    """Return the command line that runs one of the programs on a node."""
    path = f"PATH={_CLIENTS}:{_PLACEMENT}:{_SYSTEM_PATH}"
    return ("env", path, f"PYTHONPATH={_CLIENTS}", *argv)


def program(name):
    """Return the path of a placement program."""
    return str(_PLACEMENT / name)


def mask(text):
    """Return an output without times, UUIDs, MAC addresses and job numbers."""
    for pattern, word in _CHANGING:
        text = re.sub(pattern, word, text)
    return text


def unlike(text):
    """Return an output without the lines in which the two intentionally differ.

    The programs compute search paths of their own, and the order of the ratios of a
    policy and of the keys of its bounds is open.
    """
    text, _, _copies = mask(text).partition("Copies of the configuration")
    lines = text.splitlines()
    kept = [line for line in lines if "search path: " not in line]
    if any("bounds specs" in line for line in lines):
        return sorted(line.strip(" -") for line in kept)
    return kept


def transcript(cluster, argvs, wrap):
    """Run commands; return what each did, and the jobs of all of them."""
    with contextlib.closing(cluster.luxi()) as client:
        before = client.call("QueryJobs", [None, ["id"]])
        rows = []
        for argv in argvs:
            done = cluster.run(*wrap(argv))
            reported = (done.code, unlike(done.stdout), unlike(done.stderr))
            rows.append((" ".join(argv), *reported))
        jobs = client.call("QueryJobs", [None, ["id", "status", "summary"]])
    known = {row[0] for row in before}
    return rows, [row[1:] for row in jobs if row[0] not in known]


def client_path():
    """Return the directory of the Python modules, for ``PYTHONPATH``."""
    return str(_CLIENTS)

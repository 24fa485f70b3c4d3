"""The systemd units against the program that starts and stops daemons."""

import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).parents[3]
EXAMPLES = TOP / "doc" / "examples"
DAEMON_UTIL = (TOP / "daemons" / "daemon-util.in").read_text()
SERVICES = sorted(EXAMPLES.glob("*.service"))


def test_every_target_that_daemon_util_uses_is_installed():
    used = set(re.findall(r"(ganeti[\w-]*\.target)", DAEMON_UTIL))
    assert used == {path.name for path in EXAMPLES.glob("*.target")}
    makefile = (TOP / "Makefile.am").read_text()
    for name in [*used, *(path.name for path in SERVICES)]:
        assert f"doc/examples/{name}" in makefile


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_a_service_takes_the_arguments_for_one_start(path):
    text, daemon = path.read_text(), path.stem
    assert f"EnvironmentFile=-/var/lib/ganeti/{daemon}.onetime.conf" in text
    assert re.search(
        rf"^ExecStart=/usr/sbin/{daemon} -f .*\$ONETIME_ARGS$", text, re.MULTILINE
    )
    # Its runtime directories are gone after a reboot.
    assert "ExecStartPre=/usr/lib/ganeti/tools/ensure-dirs" in text


def test_the_targets_want_every_service():
    wanted = "".join(path.read_text() for path in EXAMPLES.glob("*.target"))
    for path in SERVICES:
        assert path.name in wanted

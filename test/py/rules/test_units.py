"""The systemd units against the program that starts and stops daemons."""

import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).parents[3]
EXAMPLES = TOP / "doc" / "examples"
DAEMON_UTIL = (TOP / "daemons" / "daemon-util.in").read_text()
SERVICES = sorted(EXAMPLES.glob("*.service.in"))


def test_every_target_that_daemon_util_uses_is_installed():
    used = set(re.findall(r"(ganeti[\w-]*\.target)", DAEMON_UTIL))
    assert used == {path.name for path in EXAMPLES.glob("*.target")}
    makefile = (TOP / "Makefile.am").read_text()
    assert all(f"doc/examples/{name}" in makefile for name in used)
    assert all(f"build/examples/{path.stem}" in makefile for path in SERVICES)


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_service_takes_the_arguments_for_one_start(path):
    text, daemon = path.read_text(), path.name.partition(".")[0]
    state = f"@LOCALSTATEDIR@/lib/ganeti/{daemon}.onetime.conf"
    assert f"EnvironmentFile=-{state}" in text
    assert re.search(
        rf"^ExecStart=@SBINDIR@/{daemon} -f .*\$ONETIME_ARGS$", text, re.MULTILINE
    )
    # Its runtime directories are gone after a reboot.
    assert "ExecStartPre=@TOOLSDIR@/ensure-dirs" in text


def test_the_targets_want_every_service():
    wanted = "".join(path.read_text() for path in EXAMPLES.glob("*.target"))
    for path in SERVICES:
        assert path.stem in wanted

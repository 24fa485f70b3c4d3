"""Units of systemd: one restart reaches every daemon, and no daemon gives up."""

import pathlib
import re
import subprocess

import pytest

from fakes.confinement import unit_of

TOP = pathlib.Path(__file__).resolve().parents[3]


FILES = [
    *(TOP / "doc/examples").glob("*.target"),
    *(TOP / "doc/examples").glob("*.service"),
    *(TOP / "doc/examples").glob("*.service.in"),
]
UNITS = {path.name.removesuffix(".in"): unit_of(path) for path in FILES}
DAEMONS = sorted(name for name in UNITS if "-" in name and name.endswith(".service"))


def stopped_with(name):
    """Return the units that a stop or restart of a unit reaches."""
    reached = [name]
    for above in reached:
        reached += [
            unit
            for unit, parts in UNITS.items()
            if above in parts["Unit"].get("PartOf", []) and unit not in reached
        ]
    return set(reached)


def started_with(name):
    """Return the units that a start of a unit starts."""
    reached = [name]
    for above in reached:
        wanted = UNITS[above]["Unit"].get("Wants", [])
        reached += [unit for unit in wanted if unit in UNITS and unit not in reached]
    return set(reached)


@pytest.mark.parametrize("name", ["ganeti.service", "ganeti.target"])
def test_a_restart_stops_and_starts_every_daemon(name):
    assert stopped_with(name) | {"ganeti.service"} == set(UNITS)
    assert started_with(name) == set(UNITS)


@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_that_fails_is_started_again_without_limit(name):
    assert UNITS[name]["Unit"]["StartLimitIntervalSec"] == ["0"]
    assert UNITS[name]["Service"]["Restart"] == ["on-failure"]
    assert int(UNITS[name]["Service"]["RestartSec"][0]) >= 1


def test_every_unit_is_installed_packaged_and_enabled():
    enabled = {"ganeti.target"}
    for name in list(UNITS) * 2:
        if name in enabled:
            enabled |= set(UNITS[name]["Install"].get("Also", []))
    assert enabled == set(UNITS)
    for place in ("Makefile.am", "autotools/debian/rules", "test/package-check.inside"):
        text = (TOP / place).read_text()
        for name in UNITS:
            assert re.search(rf"\b{re.escape(name)}\b", text), (place, name)


#: Settings of the section Service that are not restrictions.
NOT_RESTRICTIONS = {
    *("Type", "EnvironmentFile", "ExecStart", "ExecStartPre", "ExecStopPost"),
    *("RemainAfterExit",),
    *("Restart", "RestartSec", "RestartPreventExitStatus", "SuccessExitStatus"),
    *("TimeoutStartSec", "KillMode", "OOMPolicy", "TasksMax", "LimitMEMLOCK"),
}


@pytest.mark.parametrize("name", DAEMONS)
def test_each_restriction_of_a_unit_has_its_reason_on_the_security_page(name):
    page = (TOP / "doc/security.rst").read_text()
    table = page.partition("\nRestrictions of the units\n")[2].partition("\nChannels\n")
    for key in set(UNITS[name]["Service"]) - NOT_RESTRICTIONS:
        assert f"``{key}``" in table[0], key


def test_restrictions_of_the_node_daemon_leave_guests_and_scripts_alone():
    service = UNITS["ganeti-noded.service"]["Service"]
    set_ = set(service) - NOT_RESTRICTIONS
    # Anything else would reach guests, OS scripts and hooks.
    assert set_ == {"CapabilityBoundingSet", "RestrictAddressFamilies"}
    for word in (
        "SYS_ADMIN",
        "NET_ADMIN",
        "MKNOD",
        "SYS_BOOT",
        "SYS_CHROOT",
        "IPC_LOCK",
    ):
        assert not any(word in name for name in service["CapabilityBoundingSet"])
    for word in ("AF_UNIX", "AF_INET", "AF_PACKET", "AF_NETLINK", "AF_VSOCK", "AF_ALG"):
        assert word not in [w.strip("~") for w in service["RestrictAddressFamilies"]]


def installed(directory, name):
    """Write a unit with the paths of a plain installation; return its path."""
    path = TOP / f"doc/examples/{name}.in"
    text = path.read_text()
    for word, place in (
        ("SBINDIR", "/bin"),
        ("TOOLSDIR", "/bin"),
        ("SYSCONFDIR", "/etc"),
        ("LOCALSTATEDIR", "/var"),
    ):
        text = text.replace(f"@{word}@", place)
    # The programs need not be installed: only the settings are examined.
    text = re.sub(r"^(Exec\w+=\+?)/bin/\S+", r"\1/bin/true", text, flags=re.MULTILINE)
    text = re.sub(r"(?m)^(After|PartOf)=.*\n", "", text)
    (directory / name).write_text(text)
    return str(directory / name)


def analyze(*words):
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *words],
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("name", DAEMONS)
def test_systemd_understands_every_line(tmp_path, name):
    done = analyze("verify", "--man=no", installed(tmp_path, name))
    complaints = [line for line in done.stderr.splitlines() if name in line]
    assert complaints == [], done.stderr


def test_the_master_daemon_is_little_exposed(tmp_path):
    path = installed(tmp_path, "ganeti-masterd.service")
    # In tenths: without restrictions it had 96.
    done = analyze("security", "--offline=true", "--threshold=30", path)
    assert done.returncode == 0, done.stdout + done.stderr

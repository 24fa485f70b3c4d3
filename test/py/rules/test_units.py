"""Units of systemd: one restart reaches every daemon, and no daemon gives up."""

import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]


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

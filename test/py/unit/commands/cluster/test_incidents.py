"""``gnt-cluster list-incidents``: the table and the JSON form."""

import json

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster

WAITING = {
    "uuid": "6a7dc4f5-3c3b-4b1d-a0b5-0d3f1e2c9a11",
    "node": "u2",
    "original": {"status": "evacuate", "details": {"part": "psu2"}},
    "action": "evacuate",
    "state": "pending",
    "jobs": [900, 901],
    "tag": "maintd:repairready:6a7dc4f5-3c3b-4b1d-a0b5-0d3f1e2c9a11",
    "tag_job": 0,
    "tag_time": 0.0,
    "note": "node2 cannot be emptied now; no node for web1",
    "is_observed": True,
    "ctime": 1_700_000_000.0,
    "mtime": 1_700_000_060.0,
    "serial_no": 3,
}
NEW = WAITING | {"uuid": "i2", "node": "gone", "state": "noted", "jobs": [], "note": ""}


class MaintenanceMaster(FakeMaster):
    """A master daemon with incidents."""

    incidents = ()

    def _QueryMaintenance(self):
        return {"serial_no": 1, "jobs": [], "incidents": list(self.incidents)}


@pytest.fixture
def master():
    fake = MaintenanceMaster()
    fake.objects["node"] = [{"name": "node2.example.com", "uuid": "u2"}]
    return fake


def run(line, master):
    done = commands.run(f"gnt-cluster list-incidents {line}", master)
    assert (done.code, done.err) == (0, "")
    return done.out


def test_the_table_says_what_an_incident_waits_for(master):
    master.incidents = [NEW, WAITING]
    head, new, waiting = run("--separator=|", master).splitlines()
    assert head == "Incident|Node|Action|State|Changed|Jobs|Note"
    assert waiting.split("|")[:4] == [
        WAITING["uuid"],
        "node2.example.com",
        "evacuate",
        "pending",
    ]
    assert waiting.split("|")[5:] == ["900,901", WAITING["note"]]
    # Without a note the report, and without a name the UUID of the node.
    assert new.split("|")[1] == "gone"
    assert new.split("|")[5] == "-"
    assert json.loads(new.split("|")[6]) == WAITING["original"]
    assert len(run("--no-headers", master).splitlines()) == 2


def test_the_json_form_is_that_of_the_status_page(master):
    master.incidents = [WAITING]
    (shown,) = json.loads(run("--json", master))
    assert shown == {
        "id": WAITING["uuid"],
        "uuid": WAITING["uuid"],
        "node": "u2",
        "original": WAITING["original"],
        "action": "evacuate",
        "repair-status": "pending",
        "jobs": [900, 901],
        "tag": WAITING["tag"],
        "note": WAITING["note"],
        "ctime": 1_700_000_000.0,
        "mtime": 1_700_000_060.0,
        "serial_no": 3,
        "node_name": "node2.example.com",
    }


def test_without_incidents(master):
    assert json.loads(run("--json", master)) == []
    assert run("--no-headers", master) == ""
    assert run("", master).startswith("Incident ")


def test_what_a_node_wrote_changes_no_terminal_and_stays_short(master):
    original = {"status": "evacuate", "details": "\x1b[2J\n" + "x" * 9000}
    master.incidents = [NEW | {"original": original}]
    (line,) = run("--no-headers", master).splitlines()
    assert "\x1b" not in line
    assert len(line) < 200


def test_an_answer_of_another_form_is_refused(master):
    master.incidents = [NEW | {"jobs": None}]
    done = commands.run("gnt-cluster list-incidents", master)
    assert done.code == 1
    assert "QueryMaintenance: wanted the state with its incidents" in done.err

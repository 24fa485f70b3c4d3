"""Lines of gnt-instance info that few instances have: states of disks, VNC, marks."""

import pytest

from fakes.client_cluster import master
from ganeti.commands.instance import info as disk_info
from ganeti.commands.instance.info import instance_tree


def disk(kind="plain", **known):
    return {
        "dev_type": kind,
        "size": 1536,
        "spindles": None,
        "mode": "ro",
        "name": None,
        "uuid": "d1",
        "pstatus": None,
        "sstatus": None,
        "children": [],
        "logical_id": [],
    } | known


def status(path="/dev/drbd1", numbers=(147, 1), sync=(None, None), state=(False, 1)):
    return [path, *numbers, *sync, *state]


@pytest.mark.parametrize(
    ("kind", "given", "text"),
    [
        ("drbd", status(), "/dev/drbd1 (147:1) in sync, status ok"),
        (
            "drbd",
            status(sync=(12.346, 90), state=(True, 1)),
            "/dev/drbd1 (147:1) *RECOVERING* 12.35%, ETA 90s, status *DEGRADED*",
        ),
        (
            "drbd",
            status(sync=(5, None), state=(True, 1)),
            "/dev/drbd1 (147:1) *RECOVERING*  5.00%, ETA unknown, status *DEGRADED*",
        ),
        (
            "drbd",
            status(state=(True, 4)),
            "/dev/drbd1 (147:1) in sync, status *DEGRADED* *MISSING DISK*",
        ),
        (
            "drbd",
            status(state=(True, 3)),
            "/dev/drbd1 (147:1) in sync, status *DEGRADED* *UNCERTAIN STATE*",
        ),
        ("plain", status("/dev/x/y", (None, None)), "/dev/x/y (N/A:N/A)"),
        ("plain", status("/dev/x/y", (0, None)), "/dev/x/y (0:N/A)"),
        (
            "plain",
            status("/dev/x/y", (254, 0), state=(True, 4)),
            "/dev/x/y (254:0) *FAILED* (failed drive?)",
        ),
        ("file", status("/srv/f", (None, None), state=(True, 4)), "/srv/f (N/A:N/A)"),
        ("drbd", status(""), "not active"),
    ],
)
def test_the_state_of_a_disk_on_a_node(kind, given, text):
    assert disk_info._device_status(kind, given) == text


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (disk(logical_id=["xenvg", "lv1"]), ("logical_id", "xenvg/lv1")),
        (disk("file", logical_id=["loop", "/f"]), ("logical_id", "['loop', '/f']")),
        (disk(logical_id=["a", "b", "c"]), ("logical_id", "['a', 'b', 'c']")),
    ],
)
def test_the_place_of_a_disk(given, line):
    assert disk_info.disk_tree("disk/0", given)[2] == line


def test_the_lines_of_a_disk_in_their_order():
    info = {
        "primary_node": "n1",
        "primary_minor": 0,
        "secondary_node": "n2",
        "secondary_minor": 5,
        "port": 11000,
        "problem": {"text": "both nodes wrote", "command": "gnt-instance mend"},
    }
    child = disk(size=128, uuid="d2")
    given = disk(
        "drbd",
        spindles=2,
        name="root",
        drbd_info=info,
        pstatus=status(),
        sstatus=status(""),
        children=[child],
    )
    tree = disk_info.disk_tree("disk/0", given)
    assert list(tree) == [
        ("disk/0", "drbd, size 1.5G"),
        ("spindles", 2),
        ("access mode", "ro"),
        ("nodeA", "n1, minor=0"),
        ("nodeB", "n2, minor=5"),
        ("port", 11000),
        ("on primary", "/dev/drbd1 (147:1) in sync, status ok"),
        ("on secondary", "not active"),
        ("mirror", "both nodes wrote"),
        ("to mend it", "gnt-instance mend"),
        ("name", "root"),
        ("UUID", "d1"),
        ("child devices", [disk_info.disk_tree("child 0", child)]),
    ]
    titles = [title for title, _ in disk_info.disk_tree("child 0", child)]
    assert titles == ["child 0", "name", "UUID"]


def test_a_problem_without_a_command_is_one_line():
    problem = {"problem": {"text": "no connection", "command": ""}}
    rows = disk_info._problem(disk("drbd", drbd_info=problem))
    assert rows == [("mirror", "no connection")]
    assert disk_info._problem(disk("drbd", drbd_info={})) == []


def details(**changes):
    (data,) = master().results["OP_INSTANCE_QUERY_DATA"].values()
    return data | changes


def lines(*, static=False, **changes):
    return dict(instance_tree(details(**changes), static=static))


def test_the_run_state_is_left_out_if_it_was_not_asked_for():
    assert lines()["State"] == "configured to be up, actual state is down"
    assert lines(static=True)["State"] == "configured to be up"


def test_a_node_that_does_not_answer_is_named():
    state = lines(silent_node="n1.tst")["State"]
    assert state.endswith("actual state is unknown: node n1.tst does not answer")


def test_an_interrupted_creation_says_so():
    assert "Creation" not in lines()
    expected = "not finished, reinstall or remove the instance"
    assert lines(unfinished=True)["Creation"] == expected


def test_addresses_that_the_guest_reports():
    assert "Addresses reported by the guest" not in lines()
    rows = [
        {"name": "eth0", "mac": "aa:bb", "addresses": ["192.0.2.1/24", "fe80::1/64"]},
        {"name": "wg0", "mac": "", "addresses": []},
    ]
    first, second = lines(guest_addresses=rows)["Addresses reported by the guest"]
    assert dict(first)["addresses"] == "192.0.2.1/24, fe80::1/64"
    assert dict(second) == {"interface": "wg0", "MAC": "-", "addresses": "-"}


def test_lost_parts_of_a_running_guest_come_with_their_command():
    assert "Problems" not in lines()
    rows = [
        {"state": "tpm", "text": "node n1 has lost", "command": None},
        {"state": "shares", "text": "node n1 does not", "command": "gnt-instance x"},
    ]
    first, second = lines(problems=rows)["Problems"]
    assert list(first) == [("problem", "node n1 has lost")]
    assert list(second) == [
        ("problem", "node n1 does not"),
        ("to mend it", "gnt-instance x"),
    ]


def test_the_terms_of_a_reservation():
    assert "Forthcoming" not in lines(owner="ops")
    full = lines(
        forthcoming=True, expires=None, owner="ops", reservation_priority="high"
    )
    bare = lines(forthcoming=True, expires=1_700_000_000, owner="")
    rows = {
        key: (full[key], bare[key])
        for key in ("Reservation owner", "Reservation priority")
    }
    assert full["Forthcoming"] == "resources are reserved, nothing is created yet"
    assert full["Reservation expires"] == "never"
    assert bare["Reservation expires"].startswith("2023-11-1")
    assert rows == {
        "Reservation owner": ("ops", "-"),
        "Reservation priority": ("high", "normal"),
    }


def test_disk_parameters_of_the_group_and_of_the_disk():
    assert "Disk parameters" not in lines(diskparams={})
    actual = lines(diskparams={"ext": {"access": "kernelspace"}, "file": {}})
    assert actual["Disk parameters"] == {"ext": {"access": "default (kernelspace)"}}
    own = {"provider": "shelf", "access": "userspace"}
    tree = dict(disk_info.disk_tree("disk/0", disk("ext", params=own)))
    assert tree["parameters"] == own
    assert "parameters" not in dict(disk_info.disk_tree("disk/0", disk("ext")))


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ({"link": "br1"}, "mode, vlan"),
        ({}, "mode, link, vlan"),
        ({"link": "br1", "mode": "bridged", "vlan": ""}, None),
    ],
)
def test_parameters_that_a_nic_has_from_the_cluster(own, text):
    row = [None, "u1", None, "aa:bb", "bridged", "br1", "", None, None]
    (tree,) = lines(nics=[row], nics_own=[own])["NICs"]
    assert dict(tree).get("from the cluster") == text
    assert list(dict(tree))[:6] == ["nic/0", "MAC", "IP", "mode", "link", "vlan"]


@pytest.mark.parametrize(
    ("address", "port", "text"),
    [
        ("0.0.0.0", 11_004, "vnc to n1.tst:11004 (display 5104)"),
        ("192.0.2.1", 5900, "vnc to 192.0.2.1:5900 (node n1.tst) (display 0)"),
        ("/run/vnc", None, "vnc to n1.tst:/run/vnc"),
        ("192.0.2.1", None, None),
        ("", 11_004, None),
        (None, 11_004, None),
    ],
)
def test_the_vnc_console(address, port, text):
    actual = lines(hv_actual={"vnc_bind_address": address}, network_port=port)
    assert actual.get("console connection") == text

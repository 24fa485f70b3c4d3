"""States of mirrors, and the command that mends each; generations as in the lab."""

from types import SimpleNamespace

import pytest

from ganeti.decisions.verify import mirrors
from ganeti.decisions.verify.mirrors import Age, State

#: Identifiers of data: present, since the other node was lost, and two former ones.
NEW, OLD, OLDER, OTHER = (f"{n}0A1B2C3D4E5F60{n}" for n in (2, 4, 6, 8))
NONE = "0" * 16
BOTH_HAVE = (OLD, NONE, OLDER, NONE)
WROTE = (NEW, OLD, OLDER, NONE)
#: Written to by the other node alone.
WROTE_TOO = (OTHER, OLD, OLDER, NONE)


def row(connection="Connected", ds="UpToDate/UpToDate", role="Primary", **more):
    disk, peer_disk = ds.split("/")
    mirror = {
        "connection": connection,
        "role": role,
        "disk": disk,
        "peer_disk": peer_disk,
        "generations": more.pop("generations", ()),
    }
    return True, {"dev_path": "/dev/drbd0", "mirror": mirror, **more}


def apart(generations, connection="StandAlone", **more):
    return row(connection, "UpToDate/DUnknown", generations=generations, **more)


INACTIVE = (True, {"dev_path": "", "mirror": None})
MISSING = (True, None)
SILENT = (False, "no route to host")
FINE = row()
SYNC = {"sync_percent": 41.2, "estimated_time": 69.0}
ACTIVATE = "gnt-instance activate-disks web1"
SECONDARY = "gnt-instance replace-disks -s --disks=0 web1"
PRIMARY = "gnt-instance replace-disks -p --disks=0 web1"
AWAY = "gnt-instance replace-disks -n NODE web1"
CLEANUP = "gnt-instance migrate --cleanup web1"
FORCED = "gnt-instance failover --ignore-consistency web1"

#: Rows of the primary and the secondary node; state, command, words of the text.
CASES = {
    "syncing": (
        row("SyncSource", "UpToDate/Inconsistent", **SYNC),
        row("SyncTarget", "Inconsistent/UpToDate", **SYNC),
        (State.SYNCING, "", "from node n1 to node n2, 41.2 % done, about 69 s left"),
    ),
    "syncing-back": (
        row("SyncTarget", "Inconsistent/UpToDate", sync_percent=1.0),
        row("SyncSource", "UpToDate/Inconsistent", sync_percent=1.0),
        (State.SYNCING, "", "from node n2 to node n1, 1.0 % done"),
    ),
    "paused": (
        row("PausedSyncS", "UpToDate/Inconsistent"),
        row("PausedSyncT", "Inconsistent/UpToDate"),
        (State.SYNCING, "", "paused"),
    ),
    "inactive": (FINE, INACTIVE, (State.INACTIVE, ACTIVATE, "on node n2")),
    "inactive-both": (INACTIVE, INACTIVE, (State.INACTIVE, ACTIVATE, "n1 and n2")),
    "lost": (FINE, MISSING, (State.LOST, SECONDARY, "missing on node n2")),
    "lost-primary": (
        MISSING,
        apart(BOTH_HAVE, "WFConnection", role="Secondary"),
        (State.LOST, SECONDARY, f"go on with the data of node n2, run {FORCED} first"),
    ),
    "lost-primary-inactive": (
        *(MISSING, INACTIVE),
        (State.LOST, SECONDARY, f"run {FORCED} first; then, to give it a second copy"),
    ),
    "lost-primary-while-copied": (
        MISSING,
        row("WFConnection", "Inconsistent/DUnknown", role="Secondary"),
        (State.LOST, "", "n2 is Inconsistent; a backup is needed"),
    ),
    "lost-both": (
        MISSING,
        MISSING,
        (State.LOST, "gnt-instance recreate-disks --disk=0 web1", "on both nodes"),
    ),
    "diskless": (
        row(ds="UpToDate/Diskless"),
        row(ds="Diskless/UpToDate"),
        (State.DISKLESS, SECONDARY, "node n2 has lost its copy"),
    ),
    "diskless-primary": (
        row(ds="Diskless/UpToDate"),
        row(ds="UpToDate/Diskless"),
        (State.DISKLESS, PRIMARY, "node n1 has lost its copy"),
    ),
    "diskless-primary-apart": (
        row("WFConnection", "Diskless/DUnknown"),
        apart(BOTH_HAVE, role="Secondary"),
        (
            State.DISKLESS,
            ACTIVATE,
            f"may be old; to go on with that data, run {FORCED}",
        ),
    ),
    "diskless-secondary-apart": (
        apart(WROTE, "WFConnection"),
        row("WFConnection", "Diskless/DUnknown", role="Secondary"),
        (State.DISKLESS, SECONDARY, "node n2 has lost its copy"),
    ),
    "diskless-without-another": (
        row("SyncSource", ds="Diskless/Inconsistent"),
        row("Connected", ds="Inconsistent/Diskless", role="Secondary"),
        (State.DISKLESS, "", "and the data of node n2 is Inconsistent"),
    ),
    "diskless-both": (
        row(ds="Diskless/Diskless"),
        row(ds="Failed/Diskless"),
        (State.DISKLESS, "", "a backup is needed"),
    ),
    "inconsistent": (
        row(ds="UpToDate/Inconsistent"),
        row(ds="Inconsistent/UpToDate"),
        (State.INCOMPLETE, ACTIVATE, "node n2 is Inconsistent"),
    ),
    "inconsistent-alone": (
        apart(WROTE),
        row("StandAlone", "Inconsistent/DUnknown", generations=BOTH_HAVE),
        (State.INCOMPLETE, ACTIVATE, "not connected, and the data of node n2"),
    ),
    "split-brain": (
        apart(WROTE),
        apart(WROTE_TOO),
        (State.SPLIT_BRAIN, SECONDARY, f"run {FORCED} first"),
    ),
    "split-brain-waiting": (
        apart(WROTE, "WFConnection"),
        apart(WROTE_TOO),
        (State.SPLIT_BRAIN, SECONDARY, "both nodes were written to alone"),
    ),
    "unrelated": (
        apart((NEW, NONE, NONE, NONE)),
        apart((OTHER, NONE, NONE, NONE)),
        (State.UNRELATED, SECONDARY, "unrelated data"),
    ),
    "old-secondary": (
        apart(WROTE),
        apart(BOTH_HAVE, role="Secondary"),
        (State.OUTDATED, ACTIVATE, "the data of node n2 is old"),
    ),
    "old-secondary-cut": (
        apart(WROTE, "WFConnection"),
        apart(BOTH_HAVE, "WFConnection", role="Secondary"),
        (State.OUTDATED, "", "check the network"),
    ),
    "outdated": (
        apart(WROTE),
        row("StandAlone", "Outdated/DUnknown", generations=BOTH_HAVE),
        (State.OUTDATED, ACTIVATE, "the data of node n2 is old"),
    ),
    "old-primary": (
        apart(BOTH_HAVE),
        apart(WROTE, role="Secondary"),
        (State.OUTDATED, FORCED, "node n1, the primary one, has older data"),
    ),
    "old-primary-unused": (
        apart(BOTH_HAVE, role="Secondary"),
        apart(WROTE, role="Secondary"),
        (State.OUTDATED, FORCED, "node n1, the primary one, has older data"),
    ),
    "standalone": (
        apart(BOTH_HAVE),
        apart(BOTH_HAVE, "WFConnection"),
        (State.STANDALONE, ACTIVATE, "node n1 does not try to connect"),
    ),
    "standalone-both": (
        apart(BOTH_HAVE),
        apart(BOTH_HAVE),
        (State.STANDALONE, ACTIVATE, "nodes n1 and n2 do not try"),
    ),
    "cut": (
        apart(BOTH_HAVE, "WFConnection"),
        apart(BOTH_HAVE, "WFConnection"),
        (State.CONNECTING, "", "check the network"),
    ),
    "without-identifiers": (
        apart(()),
        apart(BOTH_HAVE),
        (State.STANDALONE, ACTIVATE, "do not try to connect"),
    ),
    "in-use-by-the-secondary": (
        INACTIVE,
        apart(WROTE, "WFConnection"),
        (State.INACTIVE, CLEANUP, "node n2, the secondary one, has it in use"),
    ),
    "standalone-in-use-by-the-secondary": (
        apart(BOTH_HAVE, role="Secondary"),
        apart(BOTH_HAVE),
        (State.STANDALONE, CLEANUP, "node n2, the secondary one, has it in use"),
    ),
    "split-brain-in-use-by-the-secondary": (
        apart(WROTE, role="Secondary"),
        apart(WROTE_TOO),
        (State.SPLIT_BRAIN, CLEANUP, "node n2, the secondary one, has it in use"),
    ),
    "offline-secondary": (
        apart((), "WFConnection"),
        None,
        (State.ALONE, AWAY, "node n2 is marked offline; only node n1 has"),
    ),
    "silent-secondary": (
        apart((), "WFConnection"),
        SILENT,
        (State.ALONE, AWAY, "n2 does not report its state (no route to host)"),
    ),
    "silent-primary": (SILENT, FINE, (State.UNKNOWN, "", "node n1 does not report")),
    "offline-with-bad-copy": (
        row("WFConnection", "Inconsistent/DUnknown"),
        None,
        (State.INCOMPLETE, "", "the data of node n1 is Inconsistent"),
    ),
}


def mirrored(*names):
    """Return a mirror of nodes with these names, and a configuration with them."""
    nodes = {
        f"uuid-{name}": SimpleNamespace(uuid=f"uuid-{name}", name=name)
        for name in names
    }
    parts = [SimpleNamespace(logical_id=("xenvg", f"web1.{part}")) for part in "dm"]
    disk = SimpleNamespace(nodes=tuple(nodes), children=parts)
    return SimpleNamespace(nodes=nodes), disk


def problem_of(primary, secondary):
    return mirrors.find("web1", 0, ("n1", primary), ("n2", secondary))


@pytest.mark.parametrize("case", CASES)
def test_a_state_is_named_with_the_command_that_mends_it(case):
    primary, secondary, (state, command, words) = CASES[case]
    problem = problem_of(primary, secondary)
    assert (problem.state, problem.command) == (state, command)
    assert words in problem.text
    assert problem.activates == (command == ACTIVATE)
    is_wrong = command == CLEANUP or (state, command) == (State.OUTDATED, FORCED)
    assert problem.forbids == is_wrong
    assert problem.is_error == (state is not State.SYNCING or "paused" in words)
    assert problem.line().endswith(f"; run {command}" if command else problem.text)


MIGRATE = "gnt-instance migrate web1"
ELSEWHERE = "to give it a second copy on another node, since node {} lacks the volume"
#: Case -> node that lacks the volume group, command, words of the text.
WITHOUT_GROUP = {
    "lost": ("n2", AWAY, ELSEWHERE.format("n2")),
    "lost-primary": ("n1", AWAY, f"run {FORCED} first; then, {ELSEWHERE.format('n1')}"),
    "lost-both": (
        "n2",
        "gnt-instance recreate-disks -n NODE:NODE web1",
        "stop the instance, and create all of its disks on other nodes, since node n2",
    ),
    "diskless": ("n2", AWAY, f"node n1 has it; {ELSEWHERE.format('n2')}"),
    "diskless-primary": (
        *("n1", AWAY),
        f"run {MIGRATE}, and then to give it a second copy on another node",
    ),
}


@pytest.mark.parametrize("case", WITHOUT_GROUP)
def test_volumes_are_not_to_be_made_on_a_node_without_their_group(case):
    lacking, command, words = WITHOUT_GROUP[case]
    snapshot, disk = mirrored("n1", "n2")
    problem = problem_of(*CASES[case][:2])
    asked = []

    def lacks(node, about):
        asked.append((snapshot.nodes[node].name, about))
        return snapshot.nodes[node].name == lacking

    changed = mirrors.with_groups(snapshot, problem, disk, lacks)
    assert changed.command == command
    assert words in changed.text
    assert changed.line().endswith(f" the volume group; run {command}")
    assert (lacking, disk) in asked
    same = mirrors.with_groups(snapshot, problem, disk, mirrors.lacks_nothing)
    assert same == problem


@pytest.mark.parametrize("case", ["syncing", "inactive", "split-brain", "old-primary"])
def test_other_problems_do_not_depend_on_volume_groups(case):
    snapshot, disk = mirrored("n1", "n2")
    problem = problem_of(*CASES[case][:2])
    assert mirrors.with_groups(snapshot, problem, disk, None) == problem


def test_nodes_of_an_older_release_are_not_compared():
    old = True, {"dev_path": "/dev/drbd0", "is_degraded": True}
    assert problem_of(old, CASES["diskless"][1]) is None
    assert problem_of(CASES["diskless"][0], old) is None


def test_a_complete_mirror_has_no_problem():
    assert problem_of(FINE, row(role="Secondary")) is None
    assert problem_of(row("VerifyS"), row("VerifyT")) is None


@pytest.mark.parametrize(
    "change",
    [
        {"connection": "Stand\x1b[2JAlone"},
        {"disk": "x" * 25},
        {"generations": ["0", "1", "2", "3"]},
        {"generations": "ABCD"},
        {"generations": [OLD]},
        {"generations": [OLD] * 5},
        {"role": None},
    ],
)
def test_the_state_of_a_node_that_cannot_be_read_is_unknown(change):
    _known, status = row(role="Secondary")
    bad = status | {"mirror": status["mirror"] | change}
    problem = problem_of(FINE, (True, bad))
    assert problem.text.startswith("node n2 reports a state that cannot be read")
    assert "\x1b" not in problem.text


def test_a_reason_of_a_node_is_short_and_printable():
    problem = problem_of(FINE, (False, "\x1b[2J" + "x" * 100_000))
    assert problem.text.startswith("node n2 does not report its state (?[2Jxxx")
    assert len(problem.text) < 500


@pytest.mark.parametrize("ends", [CASES["split-brain"][:2], CASES["old-secondary"][:2]])
def test_the_bit_of_the_role_does_not_count(ends):
    primary, secondary = ends
    flagged = {**secondary[1]["mirror"]}
    present, *rest = flagged["generations"]
    flagged["generations"] = (f"{int(present, 16) ^ 1:016X}", *rest)
    known, status = secondary
    other = (known, status | {"mirror": flagged})
    assert problem_of(primary, other) == problem_of(primary, secondary)


#: As the users' guide of DRBD lists them.
RELATIONS = [
    ((7, 0, 0, 0), (7, 0, 0, 0), Age.EQUAL),
    ((7, 5, 0, 0), (5, 0, 0, 0), Age.NEWER),
    ((5, 0, 0, 0), (7, 5, 0, 0), Age.OLDER),
    ((7, 0, 6, 5), (5, 0, 0, 0), Age.NEWER),
    ((5, 0, 0, 0), (7, 0, 6, 5), Age.OLDER),
    ((7, 5, 0, 0), (8, 5, 0, 0), Age.SPLIT),
    ((7, 0, 5, 0), (8, 0, 0, 5), Age.SPLIT),
    ((7, 5, 0, 0), (8, 6, 0, 0), Age.UNRELATED),
    ((4, 0, 0, 0), (8, 6, 0, 0), Age.UNKNOWN),
    ((), (8, 6, 0, 0), Age.UNKNOWN),
]


@pytest.mark.parametrize(("own", "other", "age"), RELATIONS)
def test_generations_relate_as_drbd_decides(own, other, age):
    assert mirrors.compare(own, other) is age
    back = {Age.NEWER: Age.OLDER, Age.OLDER: Age.NEWER}
    assert mirrors.compare(other, own) is back.get(age, age)

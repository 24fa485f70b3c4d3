"""OP_OOB_COMMAND, the recorded power state, and where the helper is inherited from."""

import math

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.jobs import FakeCallbacks
from fakes.rpc import failure
from ganeti.base import errors
from ganeti.base.constants.protocols import oob
from ganeti.decisions.repair.node_lives import Death, DeathState, Phase
from ganeti.master.locking import Level
from ganeti.model.objects import params
from ganeti.operations.node import oob as unit
from ganeti.protocols import rpc

N1, N2, N3 = (clusters.node_uuid(n) for n in (1, 2, 3))
NAMES = {n: f"node{n}.example.com" for n in range(1, 60)}
SILENT = failure("no answer", is_silent=True)
OOB = {**clusters.EXAMPLE["cluster"]["ndparams"], "oob_program": "/bin/oob"}


def run(engine, command, *names, **options):
    return engine.run(
        {
            "OP_ID": "OP_OOB_COMMAND",
            "command": command,
            "node_names": list(names),
            **options,
        }
    )


def answers(value):
    """Return a node call that gives each helper the same answer."""
    if isinstance(value, rpc.Result):
        return value
    return lambda _, args: [[True, value] for _helper in args[0]]


def helper(*statuses, off=(True, None)):
    """Return a node call: the answer to power-off, and one power state after the other.

    A status is True, False, None for unknown, or the text of an error. The last one is
    repeated.
    """
    left = list(statuses)

    def call(_node, args):
        helpers, command = args[:2]
        if command != "power-status":
            return [list(off) for _helper in helpers]
        status = left.pop(0) if left[1:] else left[0]
        if isinstance(status, str):
            return [[False, status] for _helper in helpers]
        return [[True, {"powered": status}] for _helper in helpers]

    return call


def engine_of(answer=None, others=(), **node2):
    return Engine(
        clusters.snapshot(
            nodes=1,
            ndparams=OOB,
            extra=[
                clusters.node(2, **node2),
                clusters.node(3, ndparams={"oob_program": "!"}),
                *others,
            ],
        ),
        {
            "run_oob_many": answer if callable(answer) else answers(answer),
            "hooks_runner": [],
            "node_ssh_key_add": [],
            "write_ssconf_files": None,
        },
    )


def many(count, answer=None, **flags):
    """Return an engine with a master and further nodes that are marked offline."""
    flags = {"offline": True, "master_candidate": False} | flags
    others = [clusters.node(n, **flags) for n in range(2, count + 2)]
    return Engine(
        clusters.snapshot(nodes=1, ndparams=OOB, extra=others),
        {"run_oob_many": answer if callable(answer) else answers(answer)},
    )


def calls(engine):
    """Return names, and pause, of each node call that is the only or the first one."""
    return [
        ([name for _, name in args[0]], args[3])
        for _, args in engine.rpc.called("run_oob_many")
        if args[1] == commands(engine)[0]
    ]


def commands(engine):
    return [args[1] for _, args in engine.rpc.called("run_oob_many")]


#: Command, recorded state before, state after: the table of the design.
STATES = [
    ("power-off", False, False),
    ("power-cycle", False, False),
    ("power-on", False, True),
    ("power-off", True, False),
    ("power-cycle", True, True),
    ("power-on", True, True),
    ("power-status", True, True),
    ("power-status", False, False),
]


@pytest.mark.parametrize(("command", "before", "after"), STATES)
def test_the_recorded_state_follows_the_command(command, before, after):
    answer = {"powered": before} if command == "power-status" else None
    call = helper(after) if command == "power-off" else answer
    engine = engine_of(call, offline=True, master_candidate=False, powered=before)
    rows = run(engine, command, "node2")
    assert rows == [[(0, NAMES[2]), (0, answer)]]
    assert engine.rpc.called("run_oob_many")[:1] == [
        (N1, ([["/bin/oob", NAMES[2]]], command, 60, 2.0 * (command == "power-on")))
    ]
    assert engine.snapshot.nodes[N2].powered is after
    logged = f"Node '{NAMES[2]}' is now recorded as powered" in engine.callbacks.text()
    assert logged == (before != after)


@pytest.mark.parametrize(("command", "before", "_after"), STATES)
def test_a_failed_command_changes_no_record(command, before, _after):
    engine = engine_of(
        lambda _, args: [[False, "OOB program execution failed (no route)"]],
        offline=True,
        master_candidate=False,
        powered=before,
    )
    assert run(engine, command, "node2") == [[(0, NAMES[2]), (2, None)]]
    assert engine.snapshot.nodes[N2].powered is before
    assert (
        f"Out-of-band RPC failed on node '{NAMES[2]}': OOB program execution failed"
        " (no route)" in engine.callbacks.text()
    )


def test_nodes_without_a_helper_are_unavailable_and_failures_have_no_data():
    engine = engine_of(failure("timeout"))
    assert run(engine, "power-status") == [
        [(0, NAMES[1]), (2, None)],
        [(0, NAMES[2]), (2, None)],
        [(0, NAMES[3]), (3, None)],
    ]
    assert "timeout" in engine.callbacks.text()


def test_no_helper_at_all_is_no_node_call():
    engine = Engine(clusters.snapshot(nodes=2))
    assert [row[1] for row in run(engine, "health")] == [(3, None)] * 2


def test_the_master_and_online_nodes_are_not_switched_off():
    engine = engine_of()
    with pytest.raises(errors.OpPrereqError, match=r"by hand: /bin/oob power-off"):
        run(engine, "power-off", "node1")
    with pytest.raises(errors.OpPrereqError, match=r"by hand: /bin/oob power-cycle"):
        run(engine, "power-cycle", "node1")
    with pytest.raises(errors.OpPrereqError, match="must be marked offline"):
        run(engine, "power-off", "node2")
    rows = run(engine, "power-cycle")
    assert [row[0][1] for row in rows] == [NAMES[2], NAMES[3]]
    rows = run(engine, "power-off", ignore_status=True)
    assert [row[0][1] for row in rows] == [NAMES[2], NAMES[3]]


@pytest.mark.parametrize(
    ("command", "payload"),
    [
        ("power-on", {"x": 1}),
        ("power-off", ""),
        ("power-status", []),
        ("power-status", None),
        ("power-status", {"powered": "yes"}),
        ("power-status", {"powered": 1}),
        ("health", [["fan", "SAD"]]),
        ("health", [["fan", ["OK"]]]),
        ("health", [["fan"]]),
        ("health", [[7, "OK"]]),
        ("health", [["", "OK"]]),
        ("health", [["x" * 201, "OK"]]),
        ("health", "text"),
        ("health", None),
        ("health", {"fan": "OK"}),
    ],
)
def test_output_of_the_wrong_form_counts_as_no_data(command, payload):
    engine = engine_of(payload, offline=True, master_candidate=False)
    assert run(engine, command, "node2")[0][1] == (2, None)
    assert engine.snapshot.nodes[N2].powered


def test_a_message_about_wrong_output_is_short():
    engine = engine_of(["x" * 60_000])
    run(engine, "health", "node2")
    assert "expected [item, status]" in engine.callbacks.text()
    assert len(engine.callbacks.text()) < 1000


def test_the_power_state_may_be_unknown():
    engine = engine_of({"reason": "no answer"})
    assert run(engine, "power-status", "node2")[0][1] == (0, {"reason": "no answer"})
    assert "does not match" not in engine.callbacks.text()


def test_bad_health_and_a_wrong_record_are_warned_about():
    engine = engine_of([["fan", "CRITICAL"], ["psu", "OK"], ["bay", "WARNING"]])
    run(engine, "health", "node2")
    text = engine.callbacks.text()
    assert f"Item 'fan' on node '{NAMES[2]}' has status 'CRITICAL'" in text
    assert f"Item 'bay' on node '{NAMES[2]}' has status 'WARNING'" in text
    assert "psu" not in text
    engine = engine_of({"powered": False})
    run(engine, "power-status", "node2")
    assert "does not match actual power state" in engine.callbacks.text()


def test_questions_go_to_all_nodes_at_once():
    engine = many(50, {"powered": True})
    run(engine, "power-status", timeout=10)
    assert calls(engine) == [([NAMES[n] for n in range(1, 52)], 0.0)]
    assert engine.rpc.limits["run_oob_many"] == {60 + 2 * 10}


def test_machines_are_switched_off_together_and_recorded_in_parts():
    def crash_in_the_second_call(_, args):
        if args[0][0][1] != NAMES[2]:
            raise KeyboardInterrupt
        if args[1] == "power-status":
            return [[True, {"powered": False}] for _helper in args[0]]
        return [[True, None] for _helper in args[0]]

    engine = many(40, crash_in_the_second_call)
    with pytest.raises(KeyboardInterrupt):
        run(engine, "power-off")
    assert [len(names) for names, _ in calls(engine)] == [32, 8]
    off = [n for n in engine.snapshot.nodes.values() if not n.powered]
    assert sorted(n.name for n in off) == sorted(NAMES[n] for n in range(2, 34))


def test_machines_are_switched_on_with_a_pause_between_two():
    engine = many(10, powered=False)
    before = engine.clock.monotonic()
    run(engine, "power-on", *[NAMES[n] for n in range(2, 12)], power_delay=1.5)
    assert [(len(names), pause) for names, pause in calls(engine)] == [
        (8, 1.5),
        (2, 1.5),
    ]
    assert engine.clock.monotonic() - before == 1.5
    run(engine, "power-on", *[NAMES[n] for n in range(2, 12)], power_delay=0)
    assert [(len(names), pause) for names, pause in calls(engine)] == [(10, 0.0)]


def test_a_machine_that_its_helper_reports_as_on_is_not_recorded_as_off():
    engine = engine_of(helper(True), offline=True, master_candidate=False)
    assert run(engine, "power-off", "node2") == [[(0, NAMES[2]), (2, None)]]
    assert engine.snapshot.nodes[N2].powered
    assert "reports that it is on" in engine.callbacks.text()


# Marked offline
SPARE = {"master_candidate": False}
MARKED = {"mark_offline": True, "auto_promote": True}


def roles(engine, uuid=N2):
    node = engine.snapshot.nodes[uuid]
    return node.offline, node.powered, node.master_candidate


def switching(call, **node2):
    """Return an engine in which node2 is a candidate, and node4 could be one."""
    spare = clusters.node(4, master_candidate=False)
    engine = engine_of(call, others=[spare], **node2)
    engine.rpc.script |= {
        "node_ssh_key_remove": [],
        "node_crypto_tokens": [["ssl", clusters.DIGEST]],
        "version": 3010000,
        "upload_file_single": None,
    }
    return engine


@pytest.mark.parametrize(
    "call",
    [
        helper(False),
        helper(True, False),
        helper(False, off=(False, "it is off already")),
    ],
    ids=["at-once", "later", "already"],
)
def test_a_node_is_marked_offline_when_it_is_off(call):
    engine = switching(call)
    engine.rpc.script["version"] = SILENT
    rows = run(engine, "power-off", "node2", **MARKED)
    assert rows[0][1][0] == 0
    assert roles(engine) == (True, False, False)
    assert engine.snapshot.nodes[clusters.node_uuid(4)].master_candidate
    assert (
        f"Node '{NAMES[2]}' is now recorded as powered off" in engine.callbacks.text()
    )


@pytest.mark.parametrize(
    "call",
    [
        helper(True),
        helper(None),
        helper("no route"),
        helper(True, off=(False, "no route")),
        helper(False, off=(False, oob.OOB_TIMED_OUT)),
        failure("the node daemon does not answer"),
    ],
    ids=["on", "unknown", "silent", "failed", "hung", "no-call"],
)
def test_a_node_that_may_run_keeps_its_flags(call):
    """Its guests would be started elsewhere, too."""
    engine = switching(call)
    rows = run(engine, "power-off", "node2", **MARKED)
    assert rows == [[(0, NAMES[2]), (2, None)]]
    assert roles(engine) == (False, True, True)
    assert f"Node '{NAMES[2]}' is not marked offline" in engine.callbacks.text()


@pytest.mark.parametrize("version", [3010000, failure("busy")])
def test_a_node_that_answers_is_not_off_whatever_its_helper_reports(version):
    """The helper may switch another machine; the guests would run twice."""
    engine = switching(helper(False))
    engine.rpc.script["version"] = version
    rows = run(engine, "power-off", "node2", **MARKED)
    assert rows == [[(0, NAMES[2]), (2, None)]]
    assert roles(engine) == (False, True, True)
    text = engine.callbacks.text()
    assert "its helper says that it is off, but its node daemon answers" in text
    assert f"Node '{NAMES[2]}' is not marked offline" in text


def test_votes_of_nodes_are_not_needed_while_they_are_switched_off():
    seen = []

    def call(_node, args):
        seen.append(roles(engine)[2])
        return helper(False)(_node, args)

    engine = switching(call)
    run(engine, "power-off", "node2", **MARKED)
    assert seen == [False, False]


def test_the_master_is_not_the_only_candidate_while_another_one_is_switched_off():
    seen = []

    def call(_node, args):
        nodes = engine.snapshot.nodes.values()
        seen.append({node.uuid for node in nodes if node.master_candidate})
        return helper(False)(_node, args)

    engine = switching(call)
    with engine.config.edit("test") as edit:
        edit.update(edit.snapshot.nodes[N3].replace(master_candidate=False))
    run(engine, "power-off", "node2", **MARKED)
    assert len(seen) == 2
    for candidates in seen:
        assert N1 in candidates
        assert N2 not in candidates
        assert len(candidates) > 1


def test_a_candidate_that_is_silent_does_not_get_its_vote_back():
    engine = switching(helper(None))
    engine.rpc.script["version"] = SILENT
    run(engine, "power-off", "node2", **MARKED)
    assert roles(engine) == (False, True, False)
    assert "no master candidate any more" in engine.callbacks.text()


def test_an_error_gives_a_candidate_its_role_back():
    def call(_node, _args):
        raise errors.JobLost("no queue")

    engine = switching(call)
    with pytest.raises(errors.JobLost):
        run(engine, "power-off", "node2", **MARKED)
    assert roles(engine) == (False, True, True)


@pytest.mark.parametrize(
    ("report", "is_back"),
    [
        ([True, {"powered": True}], True),
        ([False, "an earlier helper still switches node node2 off"], False),
        (None, False),
    ],
    ids=["ended", "at-work", "silent"],
)
def test_a_call_that_breaks_gives_no_role_back_while_its_helper_may_go_on(
    report, is_back
):
    """The node daemon of the master was killed; the helper outlives it."""

    def call(_node, args):
        if report is None or args[1] == "power-off":
            return failure("connection lost", is_lost=True)
        return [report]

    engine = switching(call)
    run(engine, "power-off", "node2", **MARKED)
    assert roles(engine) == (False, True, is_back)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_node_daemon_that_comes_back_proves_that_a_node_is_off(is_restarted):
    """It was killed with its helper at work, alone or with the master daemon."""
    lost = failure("connection lost", is_lost=True)
    left = [failure("refused"), [[False, "an earlier helper still switches it off"]]]

    def call(_node, args):
        if args[1] == "power-off":
            return lost
        return left.pop(0) if left else [[True, {"powered": False}]]

    engine = switching(call, **SPARE)
    engine.rpc.script["version"] = SILENT
    if is_restarted:
        resumed(engine, N2)
    else:
        run(engine, "power-off", "node2", **MARKED)
    assert roles(engine) == (True, False, False)


def resumed(engine, *nodes, master=N1):
    """Continue an order to switch nodes off that a restart has cut."""
    saved = {"nodes": list(nodes), "candidates": [N2], "master": master}
    op = {"OP_ID": "OP_OOB_COMMAND", "command": "power-off", **MARKED}
    return engine.run(
        op | {"node_names": ["node2"]}, callbacks=FakeCallbacks(resumption=saved)
    )


def test_a_restarted_master_gives_a_candidate_its_role_back():
    """Its helper reports, four times, that it is on."""
    engine = switching(helper(True), **SPARE)
    with pytest.raises(errors.OpExecError, match="run the command again"):
        resumed(engine, N2)
    assert roles(engine) == (False, True, True)
    assert commands(engine) == ["power-status"] * 4


@pytest.mark.parametrize(
    "answer", [failure("no answer"), "an earlier helper still switches node node2 off"]
)
def test_a_cut_order_that_may_go_on_gives_no_role_back(answer):
    """The node answers until the helper reaches its controller."""
    call = helper(answer) if isinstance(answer, str) else answers(answer)
    engine = switching(call, **SPARE)
    with pytest.raises(errors.OpExecError, match="run the command again"):
        resumed(engine, N2)
    assert roles(engine) == (False, True, False)
    assert "may still be switched off, and no master candidate" in (
        engine.callbacks.text()
    )


def test_a_restarted_master_records_which_nodes_are_off():
    engine = switching(helper(False), **SPARE)
    engine.rpc.script["version"] = SILENT
    assert resumed(engine, N2) == [[(0, NAMES[2]), (0, None)]]
    assert roles(engine) == (True, False, False)


def test_another_master_asks_where_the_helpers_run():
    engine = switching(helper(True))
    with pytest.raises(errors.OpExecError, match="run the command again"):
        resumed(engine, N2, master=N3)
    assert {node for node, _ in engine.rpc.called("run_oob_many")} == {N3}


def test_a_candidate_that_is_needed_is_not_switched_off():
    engine = switching(helper(False))
    with pytest.raises(errors.OpPrereqError, match="is needed as master candidate"):
        run(engine, "power-off", "node2", mark_offline=True)
    assert (commands(engine), roles(engine)) == ([], (False, True, True))


def test_only_a_switch_off_can_mark_nodes():
    with pytest.raises(errors.OpPrereqError, match="mark_offline: only with power-off"):
        run(engine_of(), "power-cycle", "node2", mark_offline=True)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": 3601},
        {"power_delay": -0.1},
        {"power_delay": math.inf},
        {"power_delay": math.nan},
    ],
)
def test_impossible_times_are_refused(options):
    with pytest.raises(errors.OpPrereqError, match="wanted"):
        run(engine_of(), "power-status", **options)


# Inheritance
@pytest.mark.parametrize(
    ("cluster", "group", "node", "expected"),
    [
        ("", None, None, ""),
        ("/c", None, None, "/c"),
        ("/c", "/g", None, "/g"),
        ("/c", "/g", "/n", "/n"),
        ("/c", "/g", "!", ""),
        ("/c", "!", None, ""),
        ("/c", "!", "/n", "/n"),
        ("!", None, None, ""),
        ("/c", "/g", "", ""),
    ],
)
def test_the_helper_is_inherited(cluster, group, node, expected):
    ours = {} if node is None else {"oob_program": node}
    theirs = {} if group is None else {"oob_program": group}
    snapshot = clusters.snapshot(
        nodes=1,
        ndparams={**OOB, "oob_program": cluster},
        extra=[
            clusters.group("rack", "g-9", ndparams=theirs),
            clusters.node(2, group="g-9", ndparams=ours),
        ],
    )
    assert params.oob_program(snapshot, snapshot.nodes[N2]) == expected


# The record
def modify(engine, name, **options):
    return engine.run({"OP_ID": "OP_NODE_SET_PARAMS", "node_name": name, **options})


def test_the_record_is_changed_by_hand_where_there_is_a_helper():
    engine = engine_of()
    modify(engine, "node2", powered=False)
    assert not engine.snapshot.nodes[N2].powered
    assert "is now recorded as powered off" in engine.callbacks.text()
    modify(engine, "node2", powered=True)
    assert engine.snapshot.nodes[N2].powered
    with pytest.raises(errors.OpPrereqError, match="no out-of-band helper"):
        modify(engine, "node3", powered=False)
    with pytest.raises(errors.OpPrereqError, match="is the master"):
        modify(engine, "node1", powered=False)


def test_a_node_that_is_off_does_not_go_online():
    off = {"offline": True, "powered": False, "master_candidate": False}
    engine = engine_of(**off, master_capable=False)
    engine.rpc.script["node_demote_from_mc"] = None
    with pytest.raises(errors.OpPrereqError, match="must be powered on before"):
        modify(engine, "node2", offline=False)
    modify(engine, "node2", offline=False, powered=True)
    assert not engine.snapshot.nodes[N2].offline


@pytest.mark.parametrize(
    ("guests", "refusal"),
    [
        (["inst1", "stranger"], "answers and runs inst1 by now, 11 seconds after"),
        (["stranger"], None),
        (failure("no answer", is_silent=True), None),
    ],
    ids=["own", "foreign", "silent"],
)
def test_a_node_whose_guests_came_back_is_not_marked_offline(guests, refusal):
    """Its instances would be started elsewhere, too."""
    engine = engine_of(**SPARE, others=[clusters.instance(1, 2, name="inst1")])
    engine.rpc.script |= {"instance_list": guests, "node_ssh_key_remove": None}
    if refusal is None:
        mark_by_hand(engine, waited_s=11)
    else:
        with pytest.raises(errors.OpPrereqError, match=refusal):
            mark_by_hand(engine, waited_s=11)
    assert engine.snapshot.nodes[N2].offline is (refusal is None)


def mark_by_hand(engine, waited_s):
    asked = int((engine.clock.time() - waited_s) * 1e9)
    reason = [["gnt:opcode:node_set_params", "job=1;index=0", asked]]
    modify(engine, "node2", offline=True, reason=reason)


def test_whoever_marks_a_node_offline_at_once_has_looked_at_it():
    engine = engine_of(**SPARE)
    engine.rpc.script |= {"node_ssh_key_remove": None}
    mark_by_hand(engine, waited_s=9)
    assert engine.snapshot.nodes[N2].offline
    assert not engine.rpc.called("instance_list")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, False),
        ({"offline": True, "master_candidate": False}, True),
        ({"powered": False}, True),
        ({"powered": False, "ndparams": {"oob_program": "!"}}, False),
    ],
)
def test_nobody_talks_to_a_node_that_is_off(flags, expected):
    snapshot = engine_of(**flags).snapshot
    assert params.is_silent(snapshot, snapshot.nodes[N2]) is expected


def test_problems_of_valid_output_are_none():
    assert unit.payload_problem("power-off", None) is None
    assert unit.payload_problem("health", []) is None


POWER_OFF = {"ignore_status": True, "node_death": True}


def dying(version, **more):
    """Return an engine that handles deaths of nodes, and how node2 answers."""
    engine = engine_of(None, **{k: v for k, v in more.items() if k != "cluster"})
    engine.rpc.script |= {"version": version, "node_heartbeats": [None]}
    cluster = {"node_death": True} | more.get("cluster", {})
    with engine.config.edit("test") as edit:
        edit.update(edit.snapshot.cluster.replace(**cluster))
    return engine


def test_a_silent_node_is_switched_off_after_its_death():
    engine = dying(SILENT)
    engine.rpc.script["run_oob_many"] = helper(False)
    rows = run(engine, "power-off", "node2", **POWER_OFF)
    assert rows == [[(0, NAMES[2]), (0, {"powered": False})]]
    assert commands(engine) == ["power-off", "power-status"]
    # The job that marks it records both, on a proof of its own.
    assert engine.snapshot.nodes[N2].powered


@pytest.mark.parametrize(
    ("call", "asked", "text"),
    [
        (helper(True), 5, "has switched it off, but reports that it is on"),
        (helper(None), 2, "does not confirm that it is off"),
        (helper("no route"), 2, r"does not confirm that it is off \(no route\)"),
        (helper(True, off=(False, "no route")), 2, "node2.example.com: no route"),
        # One time limit for each attempt.
        (helper(False, off=(False, oob.OOB_TIMED_OUT)), 1, "timeout exceeded"),
    ],
)
def test_the_job_of_a_death_ends_in_the_error_of_the_helper(call, asked, text):
    engine = dying(SILENT)
    engine.rpc.script["run_oob_many"] = call
    with pytest.raises(errors.OpExecError, match=text):
        run(engine, "power-off", "node2", **POWER_OFF)
    assert len(commands(engine)) == asked


def test_a_controller_that_complains_about_a_machine_that_is_off_proves_a_death():
    engine = dying(SILENT)
    engine.rpc.script["run_oob_many"] = helper(False, off=(False, "is off already"))
    rows = run(engine, "power-off", "node2", **POWER_OFF)
    assert rows[0][1] == (0, {"powered": False})


@pytest.mark.parametrize(
    ("version", "more", "text"),
    [
        (3010000, {}, "its node daemon answers"),
        (failure("busy"), {}, "its node daemon answers"),
        (failure("no", is_silent=True, refused=True), {}, "its node daemon answers"),
        (SILENT, {"drained": True, "master_candidate": False}, "drained by now"),
        (SILENT, {"offline": True, "master_candidate": False}, "offline by now"),
        (SILENT, {"cluster": {"node_death": False}}, "--node-death=yes"),
        (SILENT, {"cluster": {"automation_freeze": {"time": 1.0}}}, "is frozen"),
    ],
)
def test_a_node_that_came_back_while_the_job_waited_is_not_switched_off(
    version, more, text
):
    engine = dying(version, **more)
    with pytest.raises(errors.OpPrereqError, match=text):
        run(engine, "power-off", "node2", **POWER_OFF)
    assert calls(engine) == []


def mark(engine):
    return engine.run(
        {
            "OP_ID": "OP_NODE_SET_PARAMS",
            "node_name": "node2",
            "offline": True,
            "auto_promote": True,
            "node_death": True,
        }
    )


def test_a_node_that_is_off_and_silent_is_marked_after_its_death():
    engine = dying(SILENT)
    off = answers({"powered": False})
    engine.rpc.script |= {"run_oob_many": off, "node_ssh_key_remove": []}
    mark(engine)
    assert engine.snapshot.nodes[N2].offline


@pytest.mark.parametrize(
    ("version", "power"),
    [
        (SILENT, answers({"powered": True})),
        (SILENT, answers({"powered": None})),
        (SILENT, lambda _, _args: [[False, "no route"]]),
        (3010000, answers({"powered": False})),
    ],
)
def test_a_node_that_may_run_is_not_marked_after_its_death(version, power):
    engine = dying(version)
    engine.rpc.script["run_oob_many"] = power
    with pytest.raises(errors.OpPrereqError, match=r"confirm that it is off|answers"):
        mark(engine)
    assert not engine.snapshot.nodes[N2].offline


def marking(*extra, dead=None):
    """Return an engine that marks node2, with further nodes."""
    engine = dying(SILENT, others=extra, **(dead or {}))
    engine.rpc.script |= {
        "run_oob_many": answers({"powered": False}),
        "node_ssh_key_remove": [],
    }
    return engine


def node_locks(engine):
    return engine.locks.modes()[Level.NODE][0]


@pytest.mark.parametrize(
    ("dead", "others"),
    [
        # Every other node is a candidate.
        ({}, ()),
        # It is no candidate, so nobody takes its place.
        ({"master_candidate": False}, (SPARE,)),
        # The others cannot be promoted.
        ({}, (SPARE | {"master_capable": False}, SPARE | {"drained": True})),
        # The master daemon promotes another one.
        ({}, (SPARE,)),
    ],
    ids=["all candidates", "no candidate", "none can be", "later"],
)
def test_a_dead_node_does_not_wait_for_jobs_of_other_nodes(dead, others):
    nodes = [clusters.node(n, **flags) for n, flags in enumerate(others, 4)]
    engine = marking(*nodes, dead=dead)
    mark(engine)
    assert node_locks(engine) == {N2}
    assert engine.snapshot.nodes[N2].offline
    for node in nodes:
        assert not engine.snapshot.nodes[node.uuid].master_candidate


RUN, OTHER_RUN = "a" * 32, "b" * 32


def beating(monkeypatch, *answers_, known=((RUN, 7),)):
    """Return an engine that marks node2, whose heartbeats are answers in turn."""
    engine = marking()
    death = Death(node=N2, name=NAMES[2], phase=Phase.FENCED, heartbeats=known)
    state = DeathState(deaths=(Death(node=N3, name=NAMES[3]), death))
    monkeypatch.setattr(engine.config.node_deaths, "state", lambda: state)
    left = iter(answers_)
    engine.rpc.script["node_heartbeats"] = lambda node, _args: [
        next(left) if node == N1 else None
    ]
    return engine


@pytest.mark.parametrize(
    "seen",
    [
        # Each list has the answer of the master for one look.
        [(RUN, 8)],
        # Its agent was restarted, and goes on.
        [(OTHER_RUN, 1), (OTHER_RUN, 3)],
        # A first question only asks the process that reads.
        [None, (RUN, 9)],
    ],
    ids=["known run", "new run", "nobody had asked"],
)
def test_a_node_whose_heartbeat_goes_on_is_not_marked_after_its_death(
    monkeypatch, seen
):
    engine = beating(monkeypatch, *seen)
    with pytest.raises(errors.OpPrereqError, match="heartbeat on shared storage has"):
        mark(engine)
    assert not engine.snapshot.nodes[N2].offline


@pytest.mark.parametrize(
    "seen",
    [[None, None], [(RUN, 7)], [(RUN, 3)], [(OTHER_RUN, 9), (OTHER_RUN, 9)]],
    ids=["none", "the last one", "an older one", "a copy"],
)
def test_a_heartbeat_that_has_stopped_delays_no_mark(monkeypatch, seen):
    engine = beating(monkeypatch, *seen)
    mark(engine)
    assert engine.snapshot.nodes[N2].offline
    called = engine.rpc.called("node_heartbeats")
    assert called == [(node, ([NAMES[2]],)) for node in (N1, N3)] * len(seen)


def test_a_node_that_never_had_a_heartbeat_is_looked_for_once(monkeypatch):
    engine = beating(monkeypatch, None, known=())
    mark(engine)
    assert engine.snapshot.nodes[N2].offline


def test_without_shared_storage_nobody_is_asked_for_heartbeats():
    engine = marking()
    with engine.config.edit("test") as edit:
        templates = {"enabled_disk_templates": ("plain",)}
        edit.update(edit.snapshot.cluster.replace(**templates))
    mark(engine)
    assert engine.rpc.called("node_heartbeats") == []

"""The rows of the table: offered by nodes, and consistent in themselves."""

import inspect

from ganeti.node import calls as backend
from ganeti.protocols.rpc import Result, calls
from ganeti.protocols.rpc.procedure import LANE_ORDINARY


def test_every_offered_procedure_takes_the_arguments_of_the_table():
    backend.load()
    for name, entry in backend.PROCEDURES.items():
        assert name in calls.PROCEDURES, name
        names = [
            arg.rstrip("_") for arg in inspect.signature(entry.function).parameters
        ]
        assert tuple(names[1:]) == calls.PROCEDURES[name].args, name


def test_a_call_either_reads_or_has_an_answer_for_dry_runs():
    for row in calls.PROCEDURES.values():
        if row.reads:
            acts = (row.reads_if, row.answer, row.answer_from, row.shown)
            assert acts == ("", None, "", ""), row.name


def test_only_arguments_of_the_call_are_shown():
    for row in calls.PROCEDURES.values():
        assert set(row.shown.split()) <= set(row.args), row.name


def test_a_node_that_is_busy_can_be_reset():
    rows = calls.PROCEDURES.values()
    urgent = {row.name for row in rows if row.lane != LANE_ORDINARY}
    assert {"node_powercycle", "version", "store_apply"} <= urgent
    assert not {"instance_start", "blockdev_wipe"} & urgent


def test_a_request_has_its_arguments_in_wire_order():
    request = calls.test_delay(duration=2.5)
    assert (request.procedure.name, request.args) == ("test_delay", (2.5,))
    named = calls.blockdev_wipe({}, size=3, offset=2)
    assert named.args == ({}, 2, 3)


def test_the_answer_of_a_dry_run_has_the_declared_type():
    for row in calls.PROCEDURES.values():
        # No operation makes calls about copies of the store and terms.
        is_planned = not row.name.startswith(("store_", "term_"))
        if is_planned and not (row.reads or row.answer_from):
            answer = row.read(Result(row.name, "n1", row.answer))
            assert not answer.failed, (row.name, answer.fail_msg)

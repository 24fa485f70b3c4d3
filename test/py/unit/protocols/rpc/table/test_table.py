"""The rows of the table: offered by nodes, and consistent in themselves."""

from ganeti.node import calls as backend
from ganeti.protocols.rpc import table
from ganeti.protocols.rpc.table import instance_calls, node_calls, storage_calls


def test_every_offered_procedure_takes_the_arguments_of_the_table():
    backend.load()
    for name, entry in backend.PROCEDURES.items():
        assert name in table.PROCEDURES, name
        assert len(entry.kinds) == len(table.PROCEDURES[name].args), name


def test_a_call_either_reads_or_has_an_answer_for_dry_runs():
    for row in table.PROCEDURES.values():
        if row.reads:
            acts = (row.reads_if, row.answer, row.answer_from, row.shown)
            assert acts == ("", None, "", ()), row.name


def test_only_arguments_of_the_call_are_shown():
    for row in table.PROCEDURES.values():
        assert set(row.shown) <= set(row.args), row.name


def test_a_node_that_is_busy_can_be_reset():
    rows = table.PROCEDURES.values()
    urgent = {row.name for row in rows if row.lane != table.LANE_ORDINARY}
    assert {"node_powercycle", "version", "store_apply"} <= urgent
    assert not {"instance_start", "blockdev_wipe"} & urgent


def test_every_call_is_listed_once():
    rows = (*instance_calls.ROWS, *node_calls.ROWS, *storage_calls.ROWS)
    assert len(rows) == len(table.PROCEDURES)

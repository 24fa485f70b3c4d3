"""Nothing that a client sends to a whole master daemon breaks it."""

import functools
import json
import logging
import os
import pathlib
import socket
import tempfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes import values
from fakes.master import Master
from fakes.rpc import FAILING_NODE
from fakes.seeds import examples
from fakes.simulation import Simulation
from ganeti import store
from ganeti.base import clock, errors
from ganeti.daemons.masterd.methods import calls, jobs
from ganeti.model.qlang import parser as filter_text
from ganeti.model.qlang.parser import check as check_filter

END = b"\x03"
RESOURCES = ["node", "instance", "group", "job", "lock", "os", "cluster", "filter", "x"]
FIELDS = ["name", "status", "pnode", "tags", "mfree", "id", "uuid", "role", "ctime"]
OPERATORS = ["&", "|", "!", "?", "=", "==", "!=", "<", ">", "<=", ">=", "=[]", "=~"]
LEAVES = values.SCALARS | st.sampled_from([*FIELDS, *OPERATORS, "^(a+)+$", "[", "*"])
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        lambda operator, rest: [operator, *rest],
        st.sampled_from(OPERATORS),
        st.lists(inner, max_size=3),
    ),
    max_leaves=10,
)
relaxed = settings(
    max_examples=examples(60),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def master():
    with tempfile.TemporaryDirectory(prefix="gf-", dir="/tmp") as root:
        answers = {"set_watcher_pause": None, "export_list": []}
        script = FAILING_NODE | Simulation().script() | answers
        running = Master(root, script=script).start()
        yield running
        running.stop()


class Wire:
    """A connection that speaks bytes."""

    def __init__(self, master):
        self.path = master.paths.query_socket
        self.sock = None

    def ask(self, data):
        """Send a message and return the answer; None when it was hung up on us."""
        if self.sock is None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(60)
            self.sock.connect(self.path)
        self.sock.sendall(data + END)
        received = b""
        while not received.endswith(END):
            piece = self.sock.recv(1 << 16)
            if not piece:
                self.close()
                return None
            received += piece
        return json.loads(received[:-1])

    def close(self):
        if self.sock is not None:
            self.sock.close()
            self.sock = None


@pytest.fixture
def wire(master):
    connection = Wire(master)
    yield connection
    connection.close()
    with master.client() as client:
        assert client.call("QueryConfigValues", [["cluster_name"]])


def assert_answer(answer, logged):
    assert answer["success"] in (True, False)
    if not answer["success"]:
        actual = answer["result"]
        if isinstance(actual, str):
            assert actual.startswith("Failed to parse request")
        else:
            name, args = actual
            assert issubclass(getattr(errors, name), errors.GenericError)
            assert args
    crashes = [record for record in logged.records if record.exc_info]
    assert not crashes, crashes[0].getMessage()


@pytest.mark.parametrize("name", sorted(set(calls.METHODS) - jobs.WAITING))
def test_methods_take_or_refuse_any_arguments(wire, caplog, name):
    caplog.set_level(logging.WARNING)

    @relaxed
    @given(st.lists(values.JSON | st.lists(values.WORDS, max_size=3), max_size=4))
    def check(args):
        answer = wire.ask(json.dumps({"method": name, "args": args}).encode())
        assert_answer(answer, caplog)
        if isinstance(answer["result"], str) and not answer["success"]:
            wire.close()

    check()


@relaxed
@given(st.binary(max_size=200).filter(lambda data: END not in data))
def test_any_bytes_are_answered_or_hung_up_on(master, data):
    connection = Wire(master)
    try:
        answer = connection.ask(data)
        assert answer is None or answer["success"] is False
    finally:
        connection.close()


def test_any_filter_is_applied_or_refused(wire, caplog):
    @settings(relaxed, max_examples=examples(300))
    @given(st.sampled_from(RESOURCES), FILTERS)
    def check(what, qfilter):
        message = {"method": "Query", "args": [what, FIELDS[:2], qfilter]}
        answer = wire.ask(json.dumps(message).encode())
        assert_answer(answer, caplog)
        if isinstance(answer["result"], str) and not answer["success"]:
            wire.close()

    check()


WORDS = st.sampled_from(
    [*FIELDS, *OPERATORS, "and", "or", "not", "in", "(", ")", '"a"', "'b'", "m/x/i"]
)


@settings(relaxed, max_examples=examples(500))
@given(st.lists(WORDS | st.text(max_size=4), max_size=8).map(" ".join))
def test_any_filter_text_is_parsed_or_refused(text):
    try:
        actual = filter_text.parse(text)
    except errors.QueryFilterParseError:
        return
    check_filter(actual)


@functools.cache
def good_database():
    with tempfile.TemporaryDirectory(prefix="gf-", dir="/tmp") as root:
        running = Master(root).start()
        running.stop()
        return pathlib.Path(running.paths.store_db).read_bytes()


@settings(relaxed, max_examples=int(os.environ.get("FUZZ_EXAMPLES") or examples(40)))
@given(st.integers(0, 2**20), st.none() | st.binary(min_size=1, max_size=64))
def test_a_damaged_database_is_refused_with_a_clear_error(place, junk):
    good = good_database()
    start = place % len(good)
    rest = b"" if junk is None else junk + good[start + len(junk) :]
    with tempfile.TemporaryDirectory(prefix="gf-", dir="/tmp") as root:
        path = pathlib.Path(root) / "store.db"
        path.write_bytes(good[:start] + rest)
        try:
            opened = store.open_master(
                str(path), replicate=None, clock=clock.SystemClock()
            )
        except errors.GenericError as err:
            assert path.name in str(err)  # noqa: PT017 - it may also be opened
            return
        opened.snapshot()
        opened.close()

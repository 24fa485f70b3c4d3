"""The pool of connections, over real sockets."""

import contextlib
import threading

import msgspec
import pytest

from fakes.clocks import FakeClock
from fakes.rapi_master import Browser
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.daemons.rapi import users
from ganeti.daemons.rapi.application import Application
from ganeti.daemons.rapi.authentication import Authenticator
from ganeti.daemons.rapi.pool import Pool
from ganeti.protocols.luxi import Client, client, framing
from ganeti.protocols.luxi.server import Server


def table_of(size):
    """Return the answer of a query whose text on the wire has some bytes."""

    def table(text):
        data = [[[0, "a"]], [[0, text]]]
        return {"fields": [{"name": "name"}], "data": data}

    rest = framing.RESULT_FOLLOWS + framing.RESULT_ENDS
    empty = len(msgspec.json.encode(table(""))) + len(rest)
    return table("x" * (size - empty))


class Master:
    """Answers `Echo` and `Query`; keeps `Never`; counts connections."""

    def __init__(self, path):
        self.path = path
        self.connections = []
        self.arrived = threading.Semaphore(0)
        self.server = None

    def __call__(self, call):
        self.connections.append(call.connection)
        if call.method == "Echo":
            call.succeed(call.args)
        elif call.method == "Query":
            call.succeed(table_of(int(call.args[1][0])))
        elif call.method == "Fail":
            raise errors.OpPrereqError("no", "unknown_entity")
        else:
            self.arrived.release()

    def start(self):
        self.server = Server(self, [self.path], clock=SystemClock())
        self.server.start()

    def stop(self):
        self.server.stop()


@pytest.fixture
def master(tmp_path):
    master = Master(str(tmp_path / "luxi"))
    master.start()
    yield master
    master.stop()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def pool(master, clock):
    def connect():
        return Client(master.path, retries=0, connect_timeout_s=0)

    pool = Pool(connect, clock)
    yield pool
    pool.close()


def test_a_connection_is_used_again(pool, master):
    for _ in range(3):
        assert pool.call("Echo", [1]) == [1]
        with pytest.raises(errors.OpPrereqError):
            pool.call("Fail")
    assert len({id(each) for each in master.connections}) == 1


def test_threads_have_connections_of_their_own(pool, master):
    def call():
        with contextlib.suppress(errors.ProtocolError):
            pool.call("Never")

    threads = [threading.Thread(target=call, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert master.arrived.acquire(timeout=10)
    assert pool.call("Echo", [1]) == [1]
    assert len({id(each) for each in master.connections}) == 4
    master.server.stop()
    for thread in threads:
        thread.join(10)
    master.start()


def test_an_idle_connection_is_replaced(pool, master, clock):
    assert pool.call("Echo", [1]) == [1]
    clock.now += 31
    assert pool.call("Echo", [2]) == [2]
    assert len({id(each) for each in master.connections}) == 2


def test_a_restart_of_the_master_is_not_noticed_by_clients(pool, master):
    assert pool.call("Echo", [1]) == [1]
    master.stop()
    with pytest.raises(errors.ProtocolError):
        pool.call("Echo", [1])
    master.start()
    assert pool.call("Echo", [2]) == [2]


def test_streams_give_their_connection_back(pool, master):
    for _ in range(2):
        assert b"".join(pool.stream("Echo", [1, "x"])) == b'[1,"x"]'
        with pytest.raises(errors.OpPrereqError):
            pool.stream("Fail", [])
    assert len({id(each) for each in master.connections}) == 1


def test_a_stream_that_is_not_read_to_its_end_gives_up_its_connection(pool, master):
    stream = pool.stream("Echo", ["x" * 300_000])
    next(iter(stream))
    stream.close()
    stream.close()
    pool.stream("Echo", ["x" * 300_000]).close()
    assert pool.call("Echo", [1]) == [1]
    assert len({id(each) for each in master.connections}) == 3


def test_two_streams_at_a_time_have_connections_of_their_own(pool, master):
    one, two = (pool.stream("Echo", [word * 200_000]) for word in "ab")
    assert b"".join(two) == b'["' + b"b" * 200_000 + b'"]'
    assert b"".join(one) == b'["' + b"a" * 200_000 + b'"]'
    assert len({id(each) for each in master.connections}) == 2


@pytest.mark.parametrize("more", [-1, 0, 1, 2 << 20])
def test_a_query_has_the_same_answer_on_both_sides_of_the_large_codec(
    pool, clock, more
):
    size = client._LARGE + more
    app = Application(
        pool, Authenticator(clock, users.parse("ann pw read\n")), clock, waiting=None
    )
    status, _headers, value = Browser(app).send(
        "GET", f"/2/query/node?fields={size}", HTTP_AUTHORIZATION="Basic YW5uOnB3"
    )
    assert (status, value) == (200, table_of(size))

"""Every resource that names objects answers the same by name and by UUID."""

import pytest

from fakes import named_objects
from fakes.clocks import FakeClock
from fakes.named_objects import in_words, names_of, plain, with_uuids
from fakes.rapi_master import Browser
from ganeti.daemons.rapi.application import Application
from ganeti.daemons.rapi.pool import Pool
from ganeti.daemons.rapi.resources import resource_table as resources
from ganeti.daemons.rapi.rights import users
from ganeti.daemons.rapi.rights.authentication import Authenticator
from ganeti.daemons.rapi.waits import Waits
from ganeti.protocols.luxi import Client

ALL = sorted(resources.RESOURCES, key=lambda each: (each.path, each.method))
ROWS = [each for each in ALL if named_objects.request_of(each)]


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    made = named_objects.open_master(tmp_path_factory.mktemp("uuids"))
    yield made
    made.stop()


class Planning(Pool):
    """Has jobs planned instead of run, and keeps the plans."""

    def __init__(self, connect, clock):
        super().__init__(connect, clock)
        self.plans = []

    def call(self, method, args=(), *, timeout_s=None):
        if method != "SubmitJob":
            return super().call(method, args, timeout_s=timeout_s)
        [ops] = args
        bare = [{key: op[key] for key in op if key != "reason"} for op in ops]
        self.plans.append(super().call("PlanJob", [bare], timeout_s=timeout_s))
        return 1


def outcome(master, method, uri, body):
    """Return status, answer and plans of a request."""
    path = master.paths.query_socket
    pool = Planning(lambda: Client(path, retries=0, timeout_s=60), FakeClock())
    users_file = users.parse("owner pw write,root")
    authenticator = Authenticator(FakeClock(), users_file)
    app = Application(pool, authenticator, FakeClock(), waiting=Waits(pool))
    head = {"HTTP_AUTHORIZATION": "Basic b3duZXI6cHc="}
    status, _headers, value = Browser(app).send(method, uri, body, **head)
    pool.close()
    return status, value, pool.plans


def test_the_rows_are_of_resources():
    known = {(each.method, each.path) for each in ALL}
    for rows in (named_objects.BODIES, named_objects.QUERIES):
        assert set(rows) <= known
    assert set(named_objects.OTHER_RESOURCES) <= known


@pytest.mark.parametrize(
    "resource", ROWS, ids=[f"{each.method} {each.path}" for each in ROWS]
)
def test_a_resource_does_the_same_by_name_and_by_uuid(master, resource):
    names = names_of(master.store.snapshot())
    uuids = {name: uuid for uuid, name in names.items()}
    uri, body = named_objects.request_of(resource)
    body = with_uuids(body, {"DISK": "data", "NIC": "lan"})
    [by_uuid] = in_words(uri, uuids)
    assert (by_uuid, with_uuids(body, uuids)) != (uri, body)
    first = outcome(master, resource.method, uri, body)
    second = outcome(master, resource.method, by_uuid, with_uuids(body, uuids))
    assert first[0] == second[0]
    assert plain(first, names) == plain(second, names)
    assert first[0] in ({200} if "console" not in uri else {200, 500, 503}), first
    assert (resource.job is not None) == bool(first[2])
    assert "unknown_entity" not in plain(first, names)

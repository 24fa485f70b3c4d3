"""Requests become opcodes by the general rule or by rules of their own."""

import pytest

from fakes import named_objects
from fakes.clocks import FakeClock
from fakes.named_objects import in_words, names_of, plain, with_uuids
from fakes.rapi_master import BODIES, Browser
from ganeti.daemons.rapi import access, problems, requests, users
from ganeti.daemons.rapi.application import Application
from ganeti.daemons.rapi.authentication import Authenticator
from ganeti.daemons.rapi.pool import Pool
from ganeti.daemons.rapi.problems import Refused
from ganeti.daemons.rapi.waits import Waits
from ganeti.model import opcodes
from ganeti.protocols.luxi import Client
from ganeti.protocols.rapi import resource_table as resources
from ganeti.protocols.rapi.model import Body, Request

TABLE = {(each.path, each.method): each for each in resources.RESOURCES}
WEB = {"instance_name": "web1", "node_name": "n1", "group_name": "g1"}
WEB |= {"network_name": "lan", "disk_index": "2"}
#: Arguments that the opcodes require.
QUERY = {"storage_type": "lvm-vg", "name": "vg", "output_fields": ["name"]}
QUERY |= {"mode": "local"}


def job(path, method, body=None, **args):
    resource = TABLE[path, method]
    return requests.job_of(resource, Request(path=WEB, args=args, body=body))


def refused(path, method, body=None, **args):
    with pytest.raises(Refused) as caught:
        job(path, method, body, **args)
    return caught.value.status, caught.value.message


@pytest.mark.parametrize(
    "key", sorted(key for key, each in TABLE.items() if each.job), ids=" ".join
)
def test_each_job_has_valid_opcodes_of_its_resource(key):
    resource = TABLE[key]
    names = {each.name for each in resource.arguments}
    args = {name: value for name, value in QUERY.items() if name in names}
    if not key[0].endswith("export"):
        args.pop("mode", None)
    body = BODIES.get(key[0])
    ops = requests.job_of(resource, Request(path=WEB, args=args, body=body))
    decoded = [opcodes.decode(op) for op in ops]
    assert resource.job.op_id in {op.op_id() for op in decoded}
    for variable in resource.variables:
        values = [
            value
            for op in ops
            for value in op.values()
            if value in (WEB[variable], [WEB[variable]], int(WEB["disk_index"]))
        ]
        assert values, variable


@pytest.mark.parametrize(
    "key",
    sorted(
        key
        for key, each in TABLE.items()
        if each.job and each.body in {Body.PARAMETERS, Body.REQUIRED}
    ),
    ids=" ".join,
)
def test_an_unknown_member_of_a_body_is_refused(key):
    body = {**BODIES.get(key[0], {}), "colour": "red"}
    status, text = refused(*key, body)
    assert status == 400
    assert "colour" in text


def test_a_member_that_the_uri_sets_is_refused():
    path = "/2/instances/[instance_name]/migrate"
    assert refused(path, "PUT", {"instance_name": "web1"}) == (
        400,
        "parameter 'instance_name' is set by the URI, not by the body",
    )
    status, text = refused("/2/groups", "POST", {"name": "g", "dry_run": True})
    assert (status, "dry_run" in text) == (400, True)
    assert refused(path, "PUT", {"OP_ID": "OP_NODE_ADD"})[0] == 400


def test_an_old_and_a_new_name_together_are_refused():
    assert refused("/2/groups", "POST", {"name": "a", "group_name": "a"}) == (
        400,
        "parameters 'name' and 'group_name' are the same; give only one",
    )


def test_wrong_types_name_the_parameter():
    status, text = refused(
        "/2/instances/[instance_name]/disk/[disk_index]/grow", "POST", {"amount": "1"}
    )
    assert status == 400
    assert "amount" in text
    for body in ([], "x", 1, True):
        assert refused("/2/modify", "PUT", body)[0] == 400
    assert refused("/2/instances/[instance_name]/modify", "PUT", None)[0] == 400


def test_a_forbidden_parameter_has_a_status_of_its_own():
    assert refused("/2/modify", "PUT", {"compression_tools": ["sh"]})[0] == 403


def test_an_instance_needs_version_1_of_the_body():
    body = {**BODIES["/2/instances"], "name": "web1"}
    [op] = job("/2/instances", "POST", body, **{"dry-run": True})
    assert op["instance_name"] == "web1"
    assert op["dry_run"] is True
    assert "__version__" not in op
    for version in (0, 2, "1", True, None):
        assert (
            refused("/2/instances", "POST", {**body, "__version__": version})[0] == 400
        )
    del body["__version__"]
    assert refused("/2/instances", "POST", body)[0] == 400
    assert refused("/2/instances", "POST")[0] == 400


def test_spaces_between_usb_devices_become_commas():
    hvparams = {"usb_devices": "a:b c:d", "acpi": True}
    body = {**BODIES["/2/instances"], "hvparams": hvparams}
    assert job("/2/instances", "POST", body)[0]["hvparams"]["usb_devices"] == "a:b,c:d"
    path = "/2/instances/[instance_name]/modify"
    [op] = job(path, "PUT", {"custom_hvparams": hvparams})
    assert op["hvparams"] == {"usb_devices": "a:b,c:d", "acpi": True}


def test_several_instances_are_creations_under_their_new_names():
    child = {"name": "a", "os": "tiny", "mode": "create", "disks": [], "nics": []}
    [op] = job("/2/instances-multi-alloc", "POST", {"instances": [child]})
    assert op["instances"] == [
        {
            "OP_ID": "OP_INSTANCE_CREATE",
            "instance_name": "a",
            "os_type": "tiny",
            "mode": "create",
            "disks": [],
            "nics": [],
        }
    ]
    for bad in ({**child, "x": 1}, "x", {**child, "OP_ID": "OP_NODE_ADD"}):
        status, text = refused("/2/instances-multi-alloc", "POST", {"instances": [bad]})
        assert (status, text.startswith("instances[0]: ")) == (400, True)
    assert refused("/2/instances-multi-alloc", "POST", {})[0] == 400


def ids(ops):
    return [op["OP_ID"].removeprefix("OP_INSTANCE_") for op in ops]


def test_a_reinstallation_stops_and_starts():
    path = "/2/instances/[instance_name]/reinstall"
    assert ids(job(path, "POST")) == ["SHUTDOWN", "REINSTALL", "STARTUP"]
    assert ids(job(path, "POST", os="x", nostartup=True)) == ["SHUTDOWN", "REINSTALL"]
    ops = job(path, "POST", {"os": "x", "start": False, "osparams": {"a": "b"}})
    assert ids(ops) == ["SHUTDOWN", "REINSTALL"]
    assert (ops[1]["os_type"], ops[1]["osparams"]) == ("x", {"a": "b"})
    assert refused(path, "POST", {"os": "x"}, nostartup=True)[0] == 400
    assert refused(path, "POST", {"start": 1})[0] == 400
    assert refused(path, "POST", {"x": 1})[0] == 400
    ops = job(path, "POST", {"depends": [[1, ["success"]]]})
    assert [op.get("depends") for op in ops] == [[[1, ["success"]]], None, None]


def test_disks_to_replace_are_a_list_or_a_text():
    path = "/2/instances/[instance_name]/replace-disks"
    mode = "replace_auto"
    assert job(path, "POST", {"mode": mode, "disks": "0, 1"})[0]["disks"] == [0, 1]
    assert job(path, "POST", {"mode": mode, "disks": [2]})[0]["disks"] == [2]
    [op] = job(path, "POST", mode=mode, disks="3", iallocator="hail")
    assert (op["disks"], op["iallocator"]) == ([3], "hail")
    assert refused(path, "POST", {"mode": mode, "disks": "x"})[0] == 400
    assert "iallocator" not in job(path, "POST", {"mode": mode}, iallocator="a")[0]


def test_old_clients_choose_the_migration_of_a_node_in_the_query():
    path = "/2/nodes/[node_name]/migrate"
    assert job(path, "POST", live=True)[0]["mode"] == "live"
    assert job(path, "POST", live=False)[0]["mode"] == "non-live"
    assert job(path, "POST", {"target_node": "n2"}, mode="live")[0] == {
        "OP_ID": "OP_NODE_MIGRATE",
        "node_name": "n1",
        "mode": "live",
    }
    assert job(path, "POST", {"target_node": "n2"})[0]["target_node"] == "n2"
    assert refused(path, "POST", live=True, mode="live")[0] == 400


@pytest.mark.parametrize(
    ("role", "flags"),
    [
        ("regular", {"master_candidate": False, "offline": False, "drained": False}),
        ("master-candidate", {"master_candidate": True}),
        ("drained", {"drained": True}),
        ("offline", {"offline": True}),
    ],
)
def test_a_role_sets_its_flags(role, flags):
    path = "/2/nodes/[node_name]/role"
    [op] = job(path, "PUT", role, **{"auto-promote": True})
    assert op == {
        "OP_ID": "OP_NODE_SET_PARAMS",
        "node_name": "n1",
        "force": False,
        "auto_promote": True,
        **flags,
    }


@pytest.mark.parametrize("role", ["master", "", None, 1, {}, ["drained"]])
def test_other_roles_are_refused(role):
    assert refused("/2/nodes/[node_name]/role", "PUT", role)[0] == 400


def test_tags_come_from_the_query_and_may_be_missing():
    path = "/2/instances/[instance_name]/tags"
    [op] = job(path, "PUT", {"tags": ["no"]}, tag=["a", "b"])
    assert op == {
        "OP_ID": "OP_TAGS_SET",
        "kind": "instance",
        "name": "web1",
        "tags": ["a", "b"],
        "dry_run": False,
    }
    assert job("/2/tags", "DELETE")[0]["tags"] == []
    assert job("/2/tags", "DELETE")[0]["name"] is None


def test_dependencies_are_honoured_where_the_body_is_ignored():
    path = "/2/instances/[instance_name]/startup"
    body = {"depends": [[-1, ["success"]]], "other": 1}
    assert job(path, "PUT", body)[0]["depends"] == [[-1, ["success"]]]
    assert refused(path, "PUT", {"depends": 1})[0] == 400
    assert "depends" not in job(path, "PUT", [1])[0]


def test_reasons_of_the_system_cannot_be_forged():
    path = "/2/instances/[instance_name]/migrate"
    mine = [["me", "text", 5]]
    assert job(path, "PUT", {"reason": mine})[0]["reason"] == mine
    status, text = refused(path, "PUT", {"reason": [["gnt:user", "text", 5]]})
    assert (status, "reserved" in text) == (400, True)
    for bad in (5, ["gnt:user"], [5], [["me", 1, 5]]):
        assert refused(path, "PUT", {"reason": bad})[0] == 400


def test_the_trail_has_the_user_and_the_library():
    resource = TABLE["/2/instances/[instance_name]/reboot", "POST"]
    request = Request(path=WEB, args={"reason": "why"})
    assert requests.reasons(resource, request, requester="user jack", now_ns=7) == [
        ["gnt:user", "why", 7],
        ["gnt:daemon:rapi", "user jack", 7],
        ["gnt:library:rlib2:instances_name_reboot", "", 7],
    ]
    resource = TABLE["/2/instances/[instance_name]/reinstall", "POST"]
    request = Request(path=WEB, args={})
    assert requests.reasons(resource, request, requester="x", now_ns=7) == [
        ["gnt:daemon:rapi", "x", 7]
    ]


def arguments(path, method, **given):
    given = {name.replace("_x_", "-"): texts for name, texts in given.items()}
    return requests.arguments(TABLE[path, method], given)


def test_arguments_have_their_documented_forms():
    path = "/2/instances/[instance_name]/startup"
    assert arguments(path, "PUT", force=["1", "0"], dry_x_run=["0"], other=["x"]) == {
        "force": True,
        "dry-run": False,
    }
    assert arguments("/2/tags", "PUT", tag=["a", "b"]) == {"tag": ["a", "b"]}
    assert arguments("/2/query/[resource]", "GET", fields=["name, os"]) == {
        "fields": ["name", "os"]
    }
    for bad in ("x", "1.5", "true", "9" * 5000):
        with pytest.raises(Refused, match="force"):
            arguments(path, "PUT", force=[bad])
    with pytest.raises(Refused, match="'fields'"):
        arguments("/2/query/[resource]", "GET")


# Requests name objects by name or UUID; requests about reservations.

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


POST = TABLE["/2/instances", "POST"]
COMMIT = TABLE["/2/instances/[instance_name]/create", "POST"]
UUID = "3f1d0b9a-2c8e-4b43-9d4e-0f5b6f3c8a11"


def op_of(resource, body, **path):
    (wire,) = requests.job_of(resource, Request(path=path, args={}, body=body))
    return opcodes.decode(wire)


def test_a_reservation_needs_no_parameter():
    op = op_of(POST, {"__version__": 1, "forthcoming": True})
    assert (op.instance_name, op.disks, op.nics, op.mode) == ("", [], [], "create")


@pytest.mark.parametrize(
    "body",
    [
        {"__version__": 1},
        {"__version__": 1, "forthcoming": False},
        {"forthcoming": True},
        {"__version__": 1, "forthcoming": True, "expires": -1},
        {"__version__": 1, "forthcoming": True, "reservation_priority": "urgent"},
        {"__version__": 1, "forthcoming": True, "request_key": "a b"},
    ],
)
def test_other_bodies_are_refused(body):
    with pytest.raises(problems.Refused) as caught:
        op_of(POST, body)
    assert caught.value.status == 400


@pytest.mark.parametrize("body", [None, {}, {"__version__": 1, "os": "tiny"}])
def test_the_creation_takes_the_name_of_the_path(body):
    op = op_of(COMMIT, body, instance_name=UUID)
    assert (op.commit, op.instance_name) == (True, UUID)
    assert op.os_type == (body or {}).get("os")


def test_the_right_for_a_pattern_of_names_does_not_cover_a_nameless_one():
    wire = {"OP_ID": "OP_INSTANCE_CREATE", "forthcoming": True}
    assert access.paths_of("/2/instances", [wire]) == ["/2/instances/"]

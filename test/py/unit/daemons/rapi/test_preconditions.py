"""Conditional requests: tags of objects, If-Match, If-None-Match."""

import pytest

from fakes.clocks import FakeClock
from fakes.rapi_master import BODIES, Browser, RapiMaster
from ganeti.daemons.rapi import openapi, preconditions, users
from ganeti.daemons.rapi.application import Application
from ganeti.daemons.rapi.authentication import Authenticator
from ganeti.daemons.rapi.waits import Waits
from ganeti.protocols.rapi.resource_table import RESOURCES

UUIDS = {
    kind: f"3f1d0b9a-2c8e-4b43-9d4e-0f5b6f3c8a{number:02}"
    for number, kind in enumerate(("instance", "node", "group", "network", "cluster"))
}
NAMES = {"instance": "web1", "node": "n1", "group": "default", "network": "lan"}
OWNER = {"HTTP_AUTHORIZATION": "Basic b3duZXI6cHc="}
TARGETED = sorted((r for r in RESOURCES if r.target), key=lambda r: (r.path, r.method))
#: Arguments without which a resource answers 400.
QUERIES = {
    "/2/nodes/[node_name]/storage/modify": "?name=x&storage_type=lvm-vg",
    "/2/nodes/[node_name]/storage/repair": "?name=x&storage_type=lvm-vg",
    "/2/instances/[instance_name]/prepare-export": "?mode=local",
}


@pytest.fixture
def master():
    made = RapiMaster()
    for kind, name in NAMES.items():
        [row] = [row for row in made.objects[kind] if row["name"] == name]
        row |= {"uuid": UUIDS[kind], "serial_no": 7}
    made.objects["instance"][0] |= {"hvparams": {"acpi": True, "boot_order": "disk"}}
    made.cluster |= {"uuid": UUIDS["cluster"], "serial_no": 7}
    return made


@pytest.fixture
def browser(master):
    authenticator = Authenticator(FakeClock(), users.parse("owner pw write,root"))
    app = Application(master, authenticator, FakeClock(), waiting=Waits(master))
    return Browser(app)


def uri_of(resource):
    uri = resource.path
    for kind, name in NAMES.items():
        uri = uri.replace(f"[{kind}_name]", name)
    for variable in (
        "disk_index",
        "filter_uuid",
        "incident_uuid",
        "job_id",
        "session_id",
    ):
        uri = uri.replace(f"[{variable}]", "0")
    return uri + QUERIES.get(resource.path, "")


def change(browser, resource, tag):
    return browser.send(
        resource.method,
        uri_of(resource),
        BODIES.get(resource.path),
        HTTP_IF_MATCH=tag,
        **OWNER,
    )


def tag(kind, serial=7, more=""):
    return f'"{UUIDS[kind]}:{serial}{more}"'


@pytest.mark.parametrize("resource", TARGETED, ids=openapi.operation_id)
def test_the_first_opcode_of_a_change_has_the_serial(browser, master, resource):
    status, _headers, value = change(browser, resource, tag(resource.target))
    assert (status, value) == (200, 1)
    conditions = [op.if_serial for op in master.jobs[1]]
    state = {UUIDS[resource.target]: 7}
    assert conditions == [state, *[None] * (len(conditions) - 1)]
    # Any state: the job finds out itself whether the object is there.
    assert change(browser, resource, " * ")[2] == 2
    assert [op.if_serial for op in master.jobs[2]] == [None] * len(conditions)


@pytest.mark.parametrize("resource", TARGETED, ids=openapi.operation_id)
def test_a_change_of_another_state_is_refused_with_both_serials(
    browser, master, resource
):
    kind = resource.target
    other = "network" if kind == "instance" else "instance"
    subject = f"{kind} {NAMES.get(kind, 'c')}"
    for wanted, serials, text in (
        (tag(kind, 6), [6], "was changed since it was read: wanted serial 6, found 7"),
        (
            f"{tag(kind, 6)}, {tag(kind, 8)}",
            [6, 8],
            "was changed since it was read: wanted serial 6 or 8, found 7",
        ),
        (
            tag(other),
            [],
            f"If-Match has no state of this object, which is {UUIDS[kind]}:7",
        ),
    ):
        status, _headers, value = change(browser, resource, wanted)
        assert (status, value["message"]) == (409, f"{subject}: {text}")
        conflict = value["conflict"]
        assert (conflict["uuid"], conflict["serial"]) == (UUIDS[kind], 7)
        assert conflict["wanted"] == serials
    assert master.jobs == {}


OTHERS = [r for r in RESOURCES if r.changes and not r.target]


@pytest.mark.parametrize("resource", OTHERS, ids=openapi.operation_id)
def test_a_condition_that_cannot_be_checked_is_refused(browser, master, resource):
    for header in ("*", tag("instance")):
        status, _headers, value = change(browser, resource, header)
        assert status == 400
        assert "changes no single object that has a serial" in value["message"]
    assert master.calls == []


@pytest.mark.parametrize(
    "header",
    [
        *("", " ", ",", "7", UUIDS["instance"], f"{UUIDS['instance']}:7", "**", "*, *"),
        *('"', '"a', 'a"', '"a" "b"', '"a"b', 'w/"a"', 'W/ "a"', '"a b"', '"a"\t"b"'),
        *('"\x00"', '"\x7f"', "'a'", '"a",*', '*,"a"', '""x', "W/", '"a"; "b"'),
    ],
)
def test_a_malformed_condition_is_refused(browser, master, header):
    [modify] = [r for r in TARGETED if r.path.endswith("[instance_name]/modify")]
    status, _headers, value = change(browser, modify, header)
    assert status == 400
    assert value["message"].startswith("If-Match: wanted tags as in the header ETag")
    assert master.jobs == {}


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (tag("instance"), 200),
        (tag("instance", more=":0123abcd"), 200),
        (f'"x", {tag("instance")}', 200),
        (f",, {tag('instance')} ,", 200),
        (f"{tag('instance', 3)},{tag('instance')}", 200),
        (f'"\xe4:7",{tag("instance")}', 200),
        # Weak tags are no state; and these are other ones.
        ("W/" + tag("instance"), 409),
        ('""', 409),
        ('"7"', 409),
        (tag("instance").upper(), 409),
        (tag("instance", "07"), 200),
        (tag("instance", "7" * 5000), 409),
        (tag("instance", -7), 409),
        (tag("instance", more=":x"), 409),
        (tag("instance", "\xb2"), 409),
    ],
)
def test_conditions_have_the_form_of_the_standard(browser, header, status):
    [modify] = [r for r in TARGETED if r.path.endswith("[instance_name]/modify")]
    assert change(browser, modify, header)[0] == status


def test_a_long_list_takes_little_time():
    text = ", " * 30_000 + '"a"' + " " * 30_000 + "x"
    with pytest.raises(preconditions.Refused):
        preconditions._states(text)


def test_the_difference_is_that_of_what_the_request_gives(browser):
    def present(path, method, body):
        headers = {"HTTP_IF_MATCH": tag(path.split("/")[2].removesuffix("s"), 6)}
        return browser.send(method, path, body, **headers, **OWNER)[2]["conflict"][
            "present"
        ]

    body = {"hvparams": {"boot_order": "network", "none": 1}, "os_name": "new"}
    assert present("/2/instances/web1/modify", "PUT", body) == {
        "hvparams": {"boot_order": "disk", "none": None},
        "os": None,
    }
    assert present("/2/instances/web1/rename", "PUT", {"new_name": "x"}) == {
        "name": "web1"
    }
    assert present("/2/nodes/n1/role", "PUT", "drained") == {"drained": None}
    assert present("/2/groups/default/tags?tag=a", "PUT", None) == {"tags": []}


def test_a_condition_and_a_plan(browser, master):
    uri = "/2/instances/web1/tags?tag=a&plan=1"
    send = browser.send
    assert send("PUT", uri, HTTP_IF_MATCH=tag("instance", 6), **OWNER)[0] == 409
    assert send("PUT", uri, HTTP_IF_MATCH=tag("instance"), **OWNER)[0] == 200
    [[op]] = [args[0] for method, args in master.calls if method == "PlanJob"]
    assert op["if_serial"] == {UUIDS["instance"]: 7}


def test_a_condition_in_header_and_body_is_refused(browser, master):
    body = {"if_serial": {UUIDS["instance"]: 7}}
    uri = "/2/instances/web1/modify"
    status, _headers, value = browser.send(
        "PUT", uri, body, HTTP_IF_MATCH=tag("instance"), **OWNER
    )
    assert status == 400
    assert "not both" in value["message"]
    assert browser.send("PUT", uri, body, **OWNER)[0] == 200
    assert master.jobs[1][0].if_serial == body["if_serial"]


def test_an_unknown_object_is_not_found(browser, master):
    for header in ("*", tag("instance")):
        uri = "/2/instances/none/startup"
        assert browser.send("PUT", uri, HTTP_IF_MATCH=header, **OWNER)[0] == 404
    assert master.jobs == {}


GETS = [
    ("/2/instances/web1", "instance"),
    ("/2/nodes/n1", "node"),
    ("/2/groups/default", "group"),
    ("/2/networks/lan", "network"),
    ("/2/info", "cluster"),
]


@pytest.mark.parametrize(("path", "kind"), GETS)
def test_a_single_object_has_a_tag_that_changes_with_its_answer(
    browser, master, path, kind
):
    status, headers, value = browser.send("GET", path)
    first = headers["ETag"]
    assert (status, value["serial_no"]) == (200, 7)
    assert first.startswith(f'"{UUIDS[kind]}:7:')
    assert browser.send("GET", path)[1]["ETag"] == first
    for known in (first, f"W/{first}", f'"x", {first}', "*"):
        again = browser.send("GET", path, HTTP_IF_NONE_MATCH=known)
        assert (again[0], again[2]) == (304, None)
        assert again[1]["ETag"] == first
        assert "Content-Length" not in again[1]
    # A live value has no serial, but the answer is another one.
    row = master.cluster if kind == "cluster" else None
    row = row or next(r for r in master.objects[kind] if r["uuid"] == UUIDS[kind])
    row["tags"] = ["live"]
    for unknown in (first, tag(kind), "", '"', "x"):
        again = browser.send("GET", path, HTTP_IF_NONE_MATCH=unknown)
        assert (again[0], again[2]["tags"]) == (200, ["live"])
        assert again[1]["ETag"] != first
    # The state is the same.
    [row] = [r for r in TARGETED if r.target == kind and r.path.endswith("/tags")][:1]
    assert change(browser, row, first)[0] == 200


def test_lists_and_other_answers_have_no_tag(browser):
    for path in ("/2/instances", "/2/nodes/n1/role", "/version", "/2/jobs/1"):
        status, headers, _value = browser.send("GET", path, HTTP_IF_NONE_MATCH="*")
        assert (status, "ETag" in headers) == (200, False)

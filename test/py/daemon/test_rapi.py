"""The remote API of a virtual cluster, driven by the client of Debian's package."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import urllib.parse

import pytest
from OpenSSL import SSL

from fakes import peers, rapi_requests
from fakes.patience import until
from ganeti.base.constants import exitcodes

TOP = pathlib.Path(__file__).resolve().parents[3]
PEERS = TOP / "build" / "peers"
DRIVER = TOP / "test/py/fakes/debian_rapi_client.py"
USERS = """\
jack {HA1}ce9ed419740789a9a91375eda3722642 write
web secret write:/2/instances/web*
"""
JACK = {"Authorization": "Basic amFjazpleGFtcGxl"}


@pytest.fixture(scope="module")
def cluster(cluster_of):
    cluster = cluster_of(2)
    path = pathlib.Path(cluster.paths().data("rapi/users"))
    path.write_text(USERS)
    path.chmod(0o640)
    until("users are read", lambda: ask(cluster, "GET", "/2/info", JACK)[0] == 200)
    return cluster


def ask(cluster, method, path, headers=None, body=None):
    """Return status and decoded body of one request, by default of the user jack."""
    headers = JACK if headers is None else headers
    return rapi_requests.ask(cluster, method, path, headers, body)


def answer_of(cluster, method, path, headers=None, body=None):
    """Return the answer to a request, and its decoded body, None for an empty one."""
    headers = JACK if headers is None else headers
    return rapi_requests.answer_of(cluster, method, path, headers, body)


def pid_of(cluster):
    return int(pathlib.Path(cluster.paths().pid_file("ganeti-rapi")).read_text())


@pytest.mark.sampled
def test_the_client_of_debian_drives_the_cluster(cluster, tmp_path):
    peers.require()
    names = [cluster.node(name).name for name in ("node1", "node2")]
    words = [str(PEERS), cluster.node("node1").address, *names]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(DRIVER), *words],
        check=False,
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [
        *("read", "create", "modify", "power", "move", "nodes", "remove")
    ]


def test_the_job_names_its_user_and_request(cluster):
    status, job = ask(cluster, "PUT", "/2/tags?tag=one&reason=why", JACK)
    assert status == 200

    def ended():
        return ask(cluster, "GET", f"/2/jobs/{job}")[1]["status"] == "success"

    until("the job has ended", ended)
    [op] = ask(cluster, "GET", f"/2/jobs/{job}")[1]["ops"]
    entries = {source: text for source, text, _time in op["reason"]}
    assert entries["gnt:user"] == "why"
    assert entries["gnt:library:rlib2:tags"] == ""
    # Other users see the request alone, the administrator its user, too.
    request = entries["gnt:daemon:rapi"]
    assert re.fullmatch("request [0-9a-f]{12}", request)
    bulk = ask(cluster, "GET", "/2/jobs?bulk=1")[1]
    query = ask(cluster, "GET", "/2/query/job?fields=id,ops")[1]
    for shown in map(json.dumps, (bulk, query)):
        assert request in shown
        assert "user jack" not in shown
    info = cluster.check("gnt-job", "info", str(job))
    whole = re.search(f"user jack, address 127[0-9.]+, {request}", info)
    assert whole is not None
    log = pathlib.Path(cluster.paths().log_dir, "rapi-daemon.log").read_text()
    assert f"{whole.group()}: PUT /2/tags: 200" in log


def stable(plan):
    """Return a plan without what an operation generates, and without reasons."""
    text = json.dumps(plan, sort_keys=True)
    for value in [value for op in plan["opcodes"] for value in op["generated"]]:
        text = text.replace(value, "GENERATED")
    text = re.sub(r'"reason": \[\[.*?\]\]', '"reason": []', text)
    return json.loads(re.sub(r"\b\d{10}\.\d+", '"TIME"', text))


def test_plans_equal_those_of_the_commands(cluster):
    # Debian's client has left both nodes as candidates or not: each plan decides.
    node1, node2 = (cluster.node(name).name for name in ("node1", "node2"))
    body = {"__version__": 1, "name": "web7", "mode": "create", "nics": [{}]}
    body |= {"disk_template": "sharedfile", "disks": [{"size": 64}], "pnode": node1}
    body |= {"os": "tiny+default", "hypervisor": "fake", "start": False}
    add = ["gnt-instance", "add", "-t", "sharedfile", "-s", "64M", "-n", node1]
    add += ["-o", "tiny+default", "-H", "fake", "--no-start", "--net", "0:", "web7"]
    pairs = [
        ("POST", "/2/instances?plan=1", body, add),
        ("PUT", "/2/tags?tag=z&plan=1", None, ["gnt-cluster", "add-tags", "z"]),
        (
            *("POST", f"/2/nodes/{node2}/modify?plan=1", {"drained": True}),
            ["gnt-node", "modify", "-D", "yes", node2],
        ),
        (
            *("PUT", "/2/groups/default/rename?plan=1", {"new_name": "row"}),
            ["gnt-group", "rename", "default", "row"],
        ),
        (
            *("DELETE", "/2/groups/default?plan=1", None),
            ["gnt-group", "remove", "default"],
        ),
    ]
    with contextlib.closing(cluster.luxi()) as luxi:
        before = luxi.call("QueryJobs", [None, ["id"]])
        for method, path, content, (program, command, *words) in pairs:
            done = cluster.run(program, command, "--plan", "--json", *words)
            status, planned = ask(cluster, method, path, JACK, content)
            assert status == 200, planned
            wanted = json.loads(done.stdout)
            assert [*map(stable, planned["jobs"])] == [*map(stable, wanted["jobs"])]
        assert luxi.call("QueryJobs", [None, ["id"]]) == before
    assert planned["jobs"][0]["opcodes"][0]["error"][0] == "OpPrereqError"
    assert ask(cluster, "PUT", "/2/maintenance/freeze?plan=1", JACK)[0] == 400
    assert ask(cluster, "GET", "/2/instances/web7")[0] == 404


def ended(cluster, job):
    """Return status and result of a job, which has ended."""
    path = f"/2/jobs/{job}"
    until("the job has ended", lambda: ask(cluster, "GET", path)[1]["end_ts"])
    row = ask(cluster, "GET", path)[1]
    return row["status"], row["opresult"][0]


def test_of_two_writers_the_second_has_the_conflict(cluster):
    path, change = "/2/groups/default", "/2/groups/default/modify"
    answer, group = answer_of(cluster, "GET", path)
    tag = answer.getheader("ETag")
    assert tag.startswith(f'"{group["uuid"]}:{group["serial_no"]}:')
    answer, value = answer_of(cluster, "GET", path, JACK | {"If-None-Match": tag})
    assert (answer.status, value) == (304, None)
    condition = JACK | {"If-Match": tag}
    body = {"alloc_policy": "last_resort"}
    status, job = ask(cluster, "PUT", change, condition, body)
    assert (status, ended(cluster, job)[0]) == (200, "success")
    other = {"alloc_policy": "unallocable"}
    status, value = ask(cluster, "PUT", change, condition, other)
    serial = group["serial_no"]
    assert status == 409
    assert value["message"] == (
        f"group default: was changed since it was read: wanted serial {serial},"
        f" found {serial + 1}"
    )
    present = {"alloc_policy": "last_resort"}
    assert value["conflict"]["present"] == present
    # With the present state it is a change again.
    tag = f'"{group["uuid"]}:{serial + 1}"'
    back = {"alloc_policy": group["alloc_policy"]}
    status, job = ask(cluster, "PUT", change, JACK | {"If-Match": tag}, back)
    assert (status, ended(cluster, job)[0]) == (200, "success")
    assert ask(cluster, "GET", path)[1]["alloc_policy"] == group["alloc_policy"]


def test_of_writers_at_the_same_time_one_succeeds(cluster):
    """The cluster has no lock of its own: the commit decides."""
    answer, info = answer_of(cluster, "GET", "/2/info")
    headers = JACK | {"If-Match": answer.getheader("ETag")}
    sizes = [info["candidate_pool_size"] + number for number in range(1, 9)]

    def write(size):
        body = {"candidate_pool_size": size}
        return ask(cluster, "PUT", "/2/modify", headers, body)

    with concurrent.futures.ThreadPoolExecutor(len(sizes)) as writers:
        answers = list(writers.map(write, sizes))
    assert {status for status, _value in answers} <= {200, 409}
    jobs = {
        size: job for size, (s, job) in zip(sizes, answers, strict=True) if s == 200
    }
    outcomes = {size: ended(cluster, job) for size, job in jobs.items()}
    [size] = [size for size, (status, _) in outcomes.items() if status == "success"]
    for status, result in outcomes.values():
        if status != "success":
            assert result[0] == "OpPrereqError"
            assert "was changed since it was read: wanted serial" in result[1][0]
    assert ask(cluster, "GET", "/2/info")[1]["candidate_pool_size"] == size
    # Jobs of one list, which the remote API cannot refuse.
    now = ask(cluster, "GET", "/2/info")[1]
    op = {
        "OP_ID": "OP_CLUSTER_SET_PARAMS",
        "if_serial": {now["uuid"]: now["serial_no"]},
    }
    with contextlib.closing(cluster.luxi()) as luxi:
        rows = luxi.call(
            "SubmitManyJobs",
            [[[op | {"candidate_pool_size": size}] for size in sizes]],
        )
    statuses = [ended(cluster, job)[0] for _ok, job in rows]
    assert sorted(statuses) == ["error"] * 7 + ["success"]
    cluster.check(
        *("gnt-cluster", "modify", "-C", str(info["candidate_pool_size"])),
    )


NOBODY = {}


def test_reading_needs_credentials_unless_the_cluster_says_otherwise(cluster):
    def statuses():
        paths = ("/", "/2", "/version", "/2/info", "/2/instances", "/nothing")
        return [ask(cluster, "GET", path, NOBODY)[0] for path in paths]

    def has_become(wanted):
        def check():
            return statuses() == wanted

        return check

    assert statuses() == [401] * 6
    # The remote API cannot open itself.
    body = {"rapi_require_authentication": False}
    assert ask(cluster, "PUT", "/2/modify", JACK, body)[0] == 403
    cluster.check("gnt-cluster", "modify", "--require-authentication=no")
    until("anybody may read", has_become([200] * 5 + [404]))
    assert ask(cluster, "PUT", "/2/tags?tag=x", NOBODY)[0] == 401
    cluster.check("gnt-cluster", "modify", "--require-authentication=yes")
    until("nobody may read", has_become([401] * 6))


def test_roles_reach_their_instances_alone(cluster):
    web = {"Authorization": "Basic d2ViOnNlY3JldA=="}
    body = {"__version__": 1, "name": "db1", "mode": "create", "disks": [], "nics": []}
    body |= {"disk_template": "diskless", "os": "tiny+default", "no_install": True}
    body |= {"hypervisor": "fake", "pnode": cluster.node("node1").name}
    assert ask(cluster, "POST", "/2/instances?dry-run=1", web, body)[0] == 403
    body["name"] = "web1"
    assert ask(cluster, "POST", "/2/instances?dry-run=1", web, body)[0] == 200
    body["hvparams"] = {"kvm_path": "/bin/sh"}
    status, value = ask(cluster, "POST", "/2/instances?dry-run=1", web, body)
    assert (status, "kvm_path" in value["message"]) == (403, True)


NAMES = ("page1.vc.test", "page2.vc.test", "page10.vc.test")
WEB = {"Authorization": "Basic d2ViOnNlY3JldA=="}


def test_pages_and_search_are_those_of_the_commands(cluster):
    model = ("-t", "diskless", "--no-nics", "--no-install", "--no-start", "-H", "fake")
    for name in NAMES:
        words = ("-o", "tiny+default", "-n", "node1", name)
        cluster.check("gnt-instance", "add", *model, *words)
    cluster.check("gnt-instance", "add-tags", NAMES[1], "owner:shop")
    try:
        check_pages(cluster)
        check_search(cluster)
    finally:
        for name in NAMES:
            cluster.check("gnt-instance", "remove", "-f", name)


def check_pages(cluster):
    def page(headers=JACK, **args):
        path = f"/2/instances?{urllib.parse.urlencode(args)}"
        return ask(cluster, "GET", path, headers)

    whole = ask(cluster, "GET", "/2/instances?bulk=1")[1]
    args = {"limit": 2, "filter": 'name =* "page*"', "count": 1}
    status, first = page(**args)
    assert (status, first["count"]) == (200, 3)
    last = page(cursor=first["next"], **args)[1]
    assert last["next"] is None
    items = [*first["items"], *last["items"]]
    assert items == [each for each in whole if each["name"] in NAMES]
    fewer = page(fields="name,oper_state", sort="-name", **args)[1]["items"]
    assert fewer[0] == {"name": NAMES[2], "oper_state": False}
    # A cursor of another order, a field that the user may not see, a wrong filter.
    assert page(cursor=first["next"], sort="-name", **args)[0] == 400
    assert page(WEB, fields="name,snodes.group")[0] == 403
    assert page(filter="name ==")[0] == 400
    jobs = ask(cluster, "GET", "/2/jobs?limit=1&sort=-id&fields=id,status")[1]
    assert jobs["items"][0]["status"] == "success"
    listed = ("gnt-instance", "list", "--no-headers", "-o", "name")
    names = cluster.check(*listed, "--sort=-name", "--limit", "2").split()
    assert names == [NAMES[2], NAMES[1]]
    assert "user jack" not in json.dumps(ask(cluster, "GET", "/2/jobs?limit=1000")[1])


def check_search(cluster):
    status, rows = ask(cluster, "GET", "/2/search?q=owner:sh", WEB)
    wanted = {"kind": "instance", "name": NAMES[1], "match": "prefix"}
    wanted |= {"field": "tag", "value": "owner:shop"}
    assert (status, rows) == (200, [wanted])
    text = cluster.check("gnt-cluster", "search", "--json", "PAGE")
    assert [row["name"] for row in json.loads(text)] == list(NAMES)
    address = cluster.node("node2").address
    [line] = cluster.check(
        "gnt-cluster", "search", "--no-headers", address
    ).splitlines()
    assert line.split()[:4] == ["node", cluster.node("node2").name, "exact", "ip"]
    assert cluster.run("gnt-cluster", "search", "page99").code == 1


def test_a_token_of_the_command_counts_at_once_until_it_is_removed(cluster):
    # Its rights are for one path, and a copy reaches the other candidate, which Debian's
    # client has demoted.
    node2 = cluster.node("node2").name
    cluster.check("gnt-node", "modify", "-f", "-C", "yes", node2)
    words = ["add", "--rights", "get:/2/jobs", "--expires", "1h", "ci"]
    token = cluster.check("gnt-rapi-token", *words).strip()
    bearer = {"Authorization": f"Bearer {token}"}
    path = "/2/instances/none/console"

    def status(where):
        return ask(cluster, "GET", where, bearer)[0]

    until("the token is read", lambda: status("/2/jobs") == 200)
    assert status(path) == 403
    copies = [
        pathlib.Path(cluster.paths(name).data("rapi/users"))
        for name in ("node1", "node2")
    ]
    assert len({copy.read_text() for copy in copies}) == 1
    assert token not in copies[0].read_text()
    cluster.check("gnt-rapi-token", "add", "--replace", "--rights", "read", "ci")
    until("the old token is over", lambda: status("/2/jobs") == 401)
    cluster.check("gnt-rapi-token", "remove", "ci")
    assert "ci" not in cluster.check("gnt-rapi-token", "list", "--no-headers")
    done = cluster.run("gnt-rapi-token", "list", node="node2")
    assert done.failed
    assert "please connect to" in done.stderr


HOST = "Host: x\r\n"
BODY = f"{HOST}Authorization: {JACK['Authorization']}\r\nContent-Type: application/json\r\n"
CHUNKED = f"{BODY}Transfer-Encoding: chunked\r\n\r\n"
#: First words of an answer of HTTP, after a request: its first line, and all after it.
DOUBTFUL = {
    "two lengths": (400, f"{HOST}Content-Length: 0\r\nContent-Length: 5\r\n\r\n"),
    "signed length": (400, f"{HOST}Content-Length: +2\r\n\r\n{{}}"),
    "length and chunks": (400, f"Content-Length: 2\r\n{CHUNKED}0\r\n\r\n"),
    "underscore": (400, f"{HOST}Content_Length: 2\r\n\r\n{{}}"),
    "folded header": (400, f"{HOST}X-A: a\r\n b\r\n\r\n"),
    "control character": (400, f"{HOST}X-A: a\0b\r\n\r\n"),
    "bare line feed": (400, "Host: x\n\n"),
    "no host": (400, "\r\n"),
    "two users": (400, f"{BODY}Authorization: Basic YTph\r\n\r\n"),
    "signed chunk": (400, f"{CHUNKED}+2\r\n{{}}\r\n0\r\n\r\n"),
    "chunk that goes on": (400, f"{CHUNKED}2\r\n{{}}{{}}\r\n0\r\n\r\n"),
    "truncated body": (400, f"{BODY}Content-Length: 9\r\n\r\n{{"),
    "large chunk": (413, f"{CHUNKED}{20 << 20:x}\r\n"),
    "large body": (413, f"{BODY}Content-Length: {(20 << 20) + 1}\r\n\r\n"),
    "large headers": (413, f"{HOST}X-A: {'a' * (65 << 10)}\r\n\r\n"),
}
PATHS = {
    "//2/tags": 400,
    "https://x/2/tags": 400,
    "/2/../2/tags": 404,
    "/2/%2e%2e/2/tags": 404,
    "/2%2ftags": 404,
    "/2/tags/": 404,
    "/2/tags%00": 404,
    "/2/tags%0a": 404,
    "/2/instances/%ff/tags": 404,
}


def raw_status(cluster, data):
    """Return the status of the answer to raw bytes over TLS, after which nothing comes."""
    with socket.create_connection((cluster.node("node1").address, 5080)) as sock:
        session = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), sock)
        session.set_connect_state()
        session.do_handshake()
        session.sendall(data.encode("latin-1"))
        # It ends this direction alone.
        session.shutdown()
        return int(session.recv(100).split()[1])


def test_doubtful_requests_do_nothing(cluster):
    def tags():
        return ask(cluster, "GET", "/2/tags")[1], pid_of(cluster)

    before = tags()
    actual = {
        name: raw_status(cluster, f"PUT /2/tags?tag=bad HTTP/1.1\r\n{rest}")
        for name, (_status, rest) in DOUBTFUL.items()
    }
    assert actual == {name: status for name, (status, _rest) in DOUBTFUL.items()}
    actual = {
        path: raw_status(cluster, f"PUT {path}?tag=bad HTTP/1.1\r\n{BODY}\r\n")
        for path in PATHS
    }
    assert actual == PATHS
    assert raw_status(cluster, f"CONNECT x:80 HTTP/1.1\r\n{HOST}\r\n") == 501
    with socket.create_connection((cluster.node("node1").address, 5080), 60) as sock:
        # Without TLS there is no answer at all.
        sock.sendall(b"PUT /2/tags?tag=bad HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert not sock.recv(100).startswith(b"HTTP")
    assert tags() == before


def test_operations_that_are_not_offered_are_refused(cluster):
    body = {"name": "lan", "network": "192.0.2.0/24"}
    status, value = ask(cluster, "POST", "/2/networks", JACK, body)
    assert status in {200, 500}
    assert status == 200 or "NETWORK" in value["message"]


def test_a_restart_of_the_master_daemon_ends_no_daemon(cluster):
    before = pid_of(cluster)
    cluster.check("daemon-util", "stop", "ganeti-masterd")
    status, value = ask(cluster, "GET", "/2/info")
    assert (status, value["message"]) == (502, "Master daemon is not reachable")
    assert ask(cluster, "GET", "/version") == (200, 2)
    cluster.check("daemon-util", "start", "ganeti-masterd")
    assert ask(cluster, "GET", "/2/info")[0] == 200
    assert pid_of(cluster) == before


def test_other_nodes_do_not_run_it(cluster):
    done = cluster.run("ganeti-rapi", "-f", node="node2")
    assert done.code == exitcodes.EXIT_NOTMASTER
    cluster.check("daemon-util", "start-master", node="node1")


def test_a_readable_key_keeps_it_from_starting(cluster):
    key = pathlib.Path(cluster.paths().data("rapi.pem"))
    cluster.check("daemon-util", "stop", "ganeti-rapi")
    key.chmod(0o444)
    try:
        done = cluster.run("ganeti-rapi", "-f", "-p", "5999")
        assert done.code == exitcodes.EXIT_FAILURE
        assert "has mode 0444" in done.output
    finally:
        key.chmod(0o440)
        cluster.check("daemon-util", "start", "ganeti-rapi")
    assert ask(cluster, "GET", "/version") == (200, 2)


def test_an_idle_daemon_is_small(cluster):
    cluster.check("daemon-util", "stop", "ganeti-rapi")
    cluster.check("daemon-util", "start", "ganeti-rapi")
    assert ask(cluster, "GET", "/2/nodes?bulk=1")[0] == 200
    status = pathlib.Path(f"/proc/{pid_of(cluster)}/status").read_text()
    kib = int(status.partition("VmRSS:")[2].split()[0])
    assert kib <= 45 * 1024

"""The audit log: what is recorded, without secrets, and on full disks."""

import json
import os
import socket
import stat
import types

import msgspec
import pytest

from fakes.master import Master
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.filesystem import files
from ganeti.base.text import audit_chain
from ganeti.daemons.masterd import audit
from ganeti.daemons.masterd.methods import jobs
from ganeti.daemons.masterd.methods.calls import METHODS
from ganeti.decisions.jobs import transitions
from ganeti.decisions.jobs.records import Status
from ganeti.model import opcodes
from ganeti.protocols.luxi.client import ORIGIN

#: Methods that change nothing, or whose changes are jobs, rounds and their state.
NOT_RECORDED = ("Query", "Search", "WaitFor", "Plan", "Submit")
OWN_STATE = {"PickupJob", "RecordRound", "ChangeMaintenance", "ChangeNodeDeaths"}
OWN_STATE |= {"UseSession"}
LOCAL = audit.Caller(7, 0, {"sudo_user": "ann"}, False)
SECRET = "hidden-4711"


class Place:
    """The files of an audit log."""

    def __init__(self, root):
        self.path, self.head = str(root / "audit.log"), str(root / "audit-head")
        self.sent = []

    def log(self):
        sent = self.sent.append
        return audit.Log(self.path, self.head, SystemClock(), syslog=sent)

    def lines(self):
        return files.read_file(self.path).splitlines()

    def records(self):
        return [json.loads(line) for line in self.lines()]

    def problems(self):
        verifier = audit_chain.Verifier(audit_chain.head_of(files.read_file(self.head)))
        texts = [text for line in self.lines() for text in verifier.check(line)]
        return [*texts, *verifier.end()]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def call(method="SetDrainFlag", args=(True,)):
    return types.SimpleNamespace(method=method, args=list(args))


def job(number, *ops):
    return transitions.new_job(number, [opcodes.decode(op) for op in ops], (1, 0))


TAGS = {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "name": None, "tags": ["a"]}


def test_every_method_is_recorded_or_is_known_to_change_nothing():
    others = {name for name in METHODS if name not in audit.CHANGES | OWN_STATE}
    assert [name for name in others if not name.startswith(NOT_RECORDED)] == []
    assert set(METHODS) >= audit.CHANGES


def test_lines_are_chained_over_restarts_and_rotations(place):
    for turn in range(3):
        log = place.log()
        log.started("node1", f"{turn} of x")
        log.called(LOCAL, call(), True)
        log.stop()
    assert stat.S_IMODE(os.stat(place.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(place.head).st_mode) == 0o600
    assert place.problems() == []
    assert [each["n"] for each in place.records()] == list(range(1, 7))
    assert place.sent == place.lines()
    os.rename(place.path, f"{place.path}.1")
    log = place.log()
    log.started("node1", "4 of x")
    log.stop()
    [line] = place.records()
    assert (line["n"], line["prev"]) == (7, audit_chain.digest(place.sent[5]))


def test_the_caller_is_known_by_the_kernel_or_by_the_remote_api(place):
    log = place.log()
    claims = {"user": "bob", "address": "192.0.2.1", "request": "0f", "sudo_user": "x"}
    log.called(LOCAL, call(), True)
    log.called(audit.Caller(7, 0, claims, True), call(), errors.OpPrereqError("no"))
    log.stop()
    local, remote = place.records()
    who = {"via": "local", "uid": 0, "user": "root", "pid": 7}
    assert local["who"] == {**who, "claimed_sudo_user": "ann"}
    who = {"via": "rapi", "user": "bob", "address": "192.0.2.1", "request": "0f"}
    assert remote["who"] == who
    assert (local["result"], remote["result"]) == ("success", "no")


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        ((True, "job 1 canceled"), "success"),
        ((False, "job 1 has ended"), "job 1 has ended"),
        (False, "nothing changed"),
        (None, "success"),
        (errors.OpPrereqError("unknown", "x"), "unknown"),
    ],
)
def test_a_call_has_its_result(place, outcome, result):
    log = place.log()
    log.called(LOCAL, call("CancelJob", [1]), outcome)
    log.stop()
    assert [each["result"] for each in place.records()] == [result]


def test_jobs_are_recorded_when_they_are_durable_and_readers_never(place):
    log = place.log()
    with audit.asked_by(LOCAL):
        note = log.submitted([job(1, TAGS), job(2, {"OP_ID": "OP_CLUSTER_VERIFY"})])
        log.submitted([job(3, TAGS)])
    note()
    log.submitted([job(4, TAGS)])()
    log.ended(job(2, {"OP_ID": "OP_CLUSTER_VERIFY"}))
    log.ended(job(1, TAGS))
    log.stop()
    first, inner, end = place.records()
    assert (first["job"], first["who"]["via"]) == (1, "local")
    assert first["ops"][0]["tags"] == ["a"]
    assert (inner["job"], inner["who"]) == (4, {"via": "masterd"})
    assert (end["event"], end["job"], end["result"]) == ("end", 1, "queued")


def test_a_failed_job_has_its_error(place):
    log = place.log()
    [op] = job(1, TAGS).ops
    failed = msgspec.structs.replace(
        op,
        status=Status.ERROR,
        result=msgspec.Raw(
            msgspec.json.encode(errors.encode(errors.OpPrereqError("no\n", "x")))
        ),
    )
    log.ended(msgspec.structs.replace(job(1, TAGS), ops=(failed,)))
    log.stop()
    [line] = place.records()
    assert (line["result"], line["error"]) == ("error", "no\\n")


def test_secrets_are_not_recorded(place):
    op = {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "web1", "force": False}
    hidden = {"osparams_private": {"a": SECRET}, "hvparams": {"x_password": SECRET}}
    osparams = {"root_pw": SECRET, "api_token": SECRET, "size": 3}
    log = place.log()
    log.submitted([job(1, {**op, **hidden, "osparams": osparams})])()
    log.stop()
    assert SECRET.encode() not in files.read_file(place.path)
    assert SECRET.encode() not in b"".join(place.sent)
    [line] = place.records()
    assert line["ops"][0]["osparams"]["size"] == 3


@pytest.mark.parametrize(
    ("name", "is_hidden"),
    [
        *[
            (n, True)
            for n in (
                *("password", "cdrom_passphrase", "ssh_key", "x509_key_name"),
                *("admin_pass", "api-key", "rootpwd", "apikey", "tls.key", "Key"),
            )
        ],
        *[(n, False) for n in ("vnc_password_file", "keymap", "ssh_key_type", "name")],
    ],
)
def test_values_with_names_of_secrets_are_hidden(name, is_hidden):
    shown = audit.without_secrets([{"deep": {name: "value"}}])
    assert (shown == [{"deep": {name: "value"}}]) is not is_hidden


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://h/i?X-Amz-Signature=4711", "https://h/i?..."),
        ("ftp://u:4711@h/i", "ftp://h/i"),
        ("proxy=https://u:4711@h http://v:4711@i", "proxy=https://h http://i"),
        ("https://u:47/11@h" + "/i" * 9000, "https://u..."),
        ("x=1?a@b:c", "x=1?a@b:c"),
        ("a" * 200_000, f"{'a' * 1000}..."),
    ],
)
def test_urls_lose_what_may_be_secret(text, shown):
    assert audit.without_secrets([{"os-image": text}]) == [{"os-image": shown}]


def test_a_long_line_loses_its_arguments(place):
    log = place.log()
    log.submitted([job(1, {**TAGS, "tags": [f"t{n:0100}" for n in range(2000)]})])()
    log.called(LOCAL, call("ReplaceFilter", ["x"] * 40_000), None)
    log.stop()
    assert place.problems() == []
    assert max(map(len, place.lines())) < audit_chain.MAX_LINE
    assert place.records()[0]["ops"] == ["OP_TAGS_SET"]


def test_a_full_disk_stops_nothing_and_the_log_shows_what_is_lost(
    place, monkeypatch, caplog
):
    def full(fd, data):
        os.write(fd, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(audit, "_MAX_WAITING", 2)
    monkeypatch.setattr(audit, "_write", full)
    log = place.log()
    monkeypatch.setattr(log, "_thread", types.SimpleNamespace(join=lambda _s: None))
    for _ in range(5):
        log.called(LOCAL, call(), True)
    assert not log._write_some()
    assert "not recorded now" in caplog.text
    assert files.read_file(place.path) == b""
    log.called(LOCAL, call(), True)
    monkeypatch.undo()
    assert log._write_some()
    assert log._write_some()
    assert len(place.lines()) == 3
    assert place.problems() == ["line 1: 3 changes before it were not recorded"]
    assert len(place.sent) == 3


def test_waiting_changes_take_a_limited_memory(place, monkeypatch):
    def long(number):
        return job(number, {**TAGS, "tags": [f"t{number:0400}"]})

    monkeypatch.setattr(audit, "_MAX_WAITING_BYTES", 1000)
    log = place.log()
    monkeypatch.setattr(log, "_thread", types.SimpleNamespace(join=lambda _s: None))
    log.submitted([job(1, *[{**TAGS, "tags": ["t" * 400]}] * 5)])()
    log.ended(long(2))
    log.called(LOCAL, call("ReplaceFilter", ["x" * 400]), None)
    assert log._write_some()
    log.ended(long(3))
    log.called(LOCAL, call("ReplaceFilter", ["x" * 400]), None)
    log.ended(long(4))
    assert log._write_some()
    assert [line.get("job") for line in place.records()] == [1, 3, None]
    assert [line.get("lost") for line in place.records()] == [2, 1, None]
    assert log._waiting_bytes == 0


def test_syslog_gets_lines_and_its_absence_stops_nothing(place, monkeypatch):
    path = f"{os.path.dirname(place.path)}/log"
    monkeypatch.setattr(audit, "SYSLOG_SOCKET", path)
    log = audit.Log(place.path, place.head, SystemClock())
    log.started("node1", "1")
    log.stop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        log = audit.Log(place.path, place.head, SystemClock())
        log.started("node1", "2")
        log.stop()
        listener.settimeout(10)
        text = listener.recv(65536)
    assert text == b"<86>ganeti-audit: " + place.lines()[1]


def test_a_restarted_syslog_gets_the_next_line(tmp_path, monkeypatch):
    path = str(tmp_path / "log")
    monkeypatch.setattr(audit, "SYSLOG_SOCKET", path)
    syslog = audit.Syslog()
    for line in (b"1", b"2"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(path)
            for _ in range(2):
                syslog.send(line)
                assert listener.recv(99) == b"<86>ganeti-audit: " + line
        os.unlink(path)
    with pytest.raises(OSError):
        syslog.send(b"3")
    syslog.close()


def test_a_line_that_a_power_failure_tore_goes(place):
    log = place.log()
    log.started("node1", "1")
    log.stop()
    with open(place.path, "ab") as stream:
        stream.write(b'{"n":2,"ev')
    log = place.log()
    log.started("node1", "2")
    log.stop()
    assert place.problems() == []


def test_a_cut_before_the_start_is_seen_after_it(place):
    log = place.log()
    for _ in range(3):
        log.started("node1", "1")
    log.stop()
    with open(place.path, "r+b") as stream:
        stream.truncate(len(place.lines()[0]) + 1)
    log = place.log()
    log.started("node1", "2")
    log.stop()
    assert place.problems() == ["lines 2 to 3 are missing"]


def test_an_edited_last_line_is_seen_after_a_start(place):
    for turn in range(8):  # half of the digests come after the true one as text
        log = place.log()
        log.started("node1", "1")
        log.stop()
        data = files.read_file(place.path)
        with open(place.path, "wb") as stream:
            stream.write(data.replace(b'"term":"1"', b'"term":"%d"' % (turn + 2)))
        log = place.log()
        log.started("node1", "9")
        log.stop()
        assert len(place.problems()) == 1
        os.unlink(place.path)
        os.unlink(place.head)


def wait(client, number):
    seen = None
    while seen != ["success"]:
        args = [number, ["status"], seen, None, 60.0]
        seen, _log = client.call("WaitForJobChange", args)


def test_a_service_records_clients_of_its_sockets(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "_MANY", 0)
    master = Master(tmp_path).start()
    with master.client() as client:
        client.call("SetDrainFlag", [True])
        number = client.call("SubmitJobToDrainedQueue", [[TAGS]])
        client.call("QueryJobs", [[number], ["status"]])
        reset = ORIGIN.set({"sudo_user": "ann"})
        client.call("SetDrainFlag", [False])
        # In another thread of the daemon.
        client.call("SubmitManyJobs", [[[TAGS]]])
        ORIGIN.reset(reset)
        wait(client, number)
    with master.client(master.paths.rapi_socket) as client:
        reset = ORIGIN.set({"user": "bob", "address": "::1", "request": "0f"})
        client.call("FreezeAutomation", ["why"])
        client.call("SubmitJob", [[{**TAGS, "reason": [["gnt:daemon:rapi", "", 1]]}]])
        ORIGIN.reset(reset)
    master.stop()
    text = files.read_file(f"{master.paths.log_dir}/audit.log")
    records = [json.loads(line) for line in text.splitlines()]
    assert records[0]["event"] == "start"
    assert records[0]["master"] == "node1.example.com"
    asked = [each for each in records if "who" in each]
    names = [each.get("method", "job") for each in asked]
    assert names[:4] == ["SetDrainFlag", "job", "SetDrainFlag", "job"]
    assert names[4:] == ["FreezeAutomation", "job"]
    own = {"uid": os.geteuid(), "pid": os.getpid(), "via": "local"}
    assert own.items() <= asked[0]["who"].items()
    assert own.items() <= asked[1]["who"].items()
    assert asked[1]["job"] == number
    for each in asked[2:4]:
        assert each["who"]["claimed_sudo_user"] == "ann"
    for each in asked[4:]:
        assert (each["who"]["user"], each["who"]["via"]) == ("bob", "rapi")
    assert any(each["event"] == "end" and each["job"] == number for each in records)

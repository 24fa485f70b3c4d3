"""Moves between two clusters that answer as their remote APIs would."""

import types

import pytest

from ganeti.migration.move_instance import main, settings
from ganeti.protocols.rapi import api as rapi

NAME = "web1.example.com"
PLACE = {"disks": [["192.0.2.9", 4711, "m", "h", "s"]], "x509_ca": "SIGNED2"}
PREPARED = {
    "handshake": [0, "h", "s"],
    "x509_key_name": ["key", "h", "s"],
    "x509_ca": "SIGNED1",
}
INFO = {
    "name": NAME,
    "config_state": "up",
    "run_state": "up",
    "os": "tiny+default",
    "hypervisor": "kvm",
    "hv_instance": {"boot_order": "disk"},
    "be_actual": {"minmem": 128, "maxmem": 256, "vcpus": 2},
    "os_instance": {"dhcp": "no"},
    "disk_template": "plain",
    "disks": [{"size": 1024, "mode": "rw", "name": None}],
    "nics": [
        [
            "eth",
            "uuid",
            "192.0.2.5",
            "aa:00:00:00:00:01",
            "routed",
            "100",
            "",
            None,
            None,
        ],
        [None, "uuid", None, "aa:00:00:00:00:02", "bridged", "br0", "", "lan", {}],
    ],
}


class FakeCluster:
    """A remote API: each method makes a job, whose end the test decides.

    ``fails`` maps method names to the opcode results of their failures, in order.
    """

    def __init__(self, calls, where, fails=(), info=INFO):
        self.calls = calls
        self.where = where
        self.fails = {name: list(results) for name, results in dict(fails).items()}
        self.info = info
        self.made = []
        #: Jobs that run until they are killed.
        self.endless = set()
        self.tools = ["gzip"]

    def GetInfo(self):
        return {"compression_tools": self.tools}

    def _new(self, method, result, *entries):
        self.calls.append(f"{self.where} {method}")
        failures = self.fails.get(method)
        failure = failures.pop(0) if failures else None
        if isinstance(failure, Exception):
            raise failure
        self.made.append((result if failure is None else failure, failure, entries))
        return len(self.made)

    def GetInstanceInfo(self, name, static=None):
        return self._new("info", {name: self.info})

    def GetInstanceTags(self, _name):
        return ["blue"]

    def PrepareExport(self, _name, mode):
        assert mode == "remote"
        return self._new("prepare", PREPARED)

    def CreateInstance(self, **request):
        self.request = request
        self.messages = [
            (1, 0, "message", "adding"),
            (2, 0, "message", " - WARNING: x"),
        ]
        entry = (3, 0, "remote-import", PLACE)
        is_late = self.fails.get("create", [{}])[:1] == ["late"]
        if is_late:
            self.fails["create"][0] = ["OpExecError", ["disk/0: did not connect"]]
        failing = self.fails.get("create") and not is_late
        return self._new(
            "create", ["node1"], *self.messages, *(() if failing else (entry,))
        )

    def ShutdownInstance(self, _name):
        return self._new("stop", None)

    def StartupInstance(self, _name):
        return self._new("start", None)

    def ExportInstance(self, _name, mode, destination, **more):
        if destination == []:
            assert more == {"x509_key_name": PREPARED["x509_key_name"]}
            return self._new("discard", [True, []])
        assert (mode, destination) == ("remote", PLACE["disks"])
        self.exported = more
        return self._new("export", [True, [True]])

    def DeleteInstance(self, _name):
        return self._new("remove", None)

    # Jobs
    def KillJob(self, job_id):
        self.calls.append(f"{self.where} kill")
        self.made[job_id - 1] = (["OpExecError", ["killed on request"]], True, ())
        self.endless.discard(job_id)
        return [True, "will end"]

    def _end(self, job_id):
        if job_id in self.endless:
            return "running"
        _result, failure, _entries = self.made[job_id - 1]
        return "success" if failure is None else "error"

    def WaitForJobChange(self, job_id, _fields, known, serial):
        entries = self.made[job_id - 1][2] if serial is None else ()
        status = self._end(job_id)
        if entries and known is None:
            status = "running"
        return {"job_info": [status], "log_entries": list(entries)}

    def GetJobStatus(self, job_id):
        return {"status": self._end(job_id), "opresult": [self.made[job_id - 1][0]]}


def options(**changes):
    one, two = (settings.Cluster(name, 5080, "/ca") for name in ("one", "two"))
    target = changes.pop("target", settings.Target())
    values = {"instances": (NAME,), "target": target, "compress": "none"} | changes
    return settings.Settings(source=one, destination=two, **values)


@pytest.fixture
def clusters():
    """Return a function that makes two clusters with a common list of calls."""

    def make(source=(), destination=(), info=INFO):
        calls = []
        pair = types.SimpleNamespace(
            source=FakeCluster(calls, "source", source, info),
            destination=FakeCluster(calls, "destination", destination),
            calls=calls,
            waits=[],
        )

        def move(**changes):
            wanted = options(**changes)
            main.Mover(NAME, wanted, pair, calls.append, wait=pair.waits.append).run()

        pair.move = move
        return pair

    return make


def jobs_of(pair):
    """Return the jobs of both clusters in order, without the printed lines."""
    return [
        call
        for call in pair.calls
        if call.split()[0] in ("source", "destination") and ":" not in call
    ]


WHOLE = [
    "source info",
    "source prepare",
    "destination create",
    "source stop",
    "source export",
    "destination start",
    "source remove",
]


def test_the_old_instance_is_removed_when_the_new_one_runs(clusters):
    pair = clusters()
    pair.move(compress="gzip")
    assert jobs_of(pair) == WHOLE
    assert pair.source.exported == {
        "shutdown": True,
        "x509_key_name": PREPARED["x509_key_name"],
        "destination_x509_ca": "SIGNED2",
        "compress": "gzip",
    }
    request = pair.destination.request
    assert request["mode"] == "remote-import"
    assert request["start"] is False
    assert request["tags"] == ["blue"]
    assert request["source_handshake"] == PREPARED["handshake"]


def test_warnings_of_jobs_are_printed_and_other_messages_on_request(clusters):
    pair = clusters()
    pair.move()
    assert "destination job 1:  - WARNING: x" in pair.calls
    assert "destination job 1: adding" not in pair.calls
    pair = clusters()
    pair.move(verbose=True)
    assert "destination job 1: adding" in pair.calls


def test_a_stopped_instance_stays_stopped(clusters):
    pair = clusters(info=INFO | {"config_state": "down", "run_state": "down"})
    pair.move()
    assert jobs_of(pair) == [
        name for name in WHOLE if name not in ("source stop", "destination start")
    ]


def test_a_source_that_is_kept_runs_again_and_the_copy_does_not(clusters):
    pair = clusters()
    pair.move(keeps=True)
    assert jobs_of(pair) == [*WHOLE[:5], "source start"]


def test_a_source_that_does_not_run_again_is_named(clusters):
    pair = clusters(source={"start": [LOST]})
    with pytest.raises(main.MoveError, match=r"^source job 5: disk/0: connection lost"):
        pair.move(keeps=True)
    # Once is enough: what it needs is a person.
    assert jobs_of(pair) == [*WHOLE[:5], "source start"]
    text = "job 4: disk/0: .*; source job 5: disk/0: .* lost; start it with gnt-"
    pair = clusters(source={"export": [LOST], "start": [LOST]})
    with pytest.raises(main.MoveError, match=text):
        pair.move()


def test_the_source_is_asked_by_the_name_that_it_knows(clusters, monkeypatch):
    pair = clusters(info=INFO | {"name": "web1.lan"})
    asked = []
    names = ("GetInstanceTags", "PrepareExport", "ShutdownInstance", "DeleteInstance")
    for name in names:
        real = getattr(pair.source, name)

        def note(instance, *more, real=real):
            asked.append(instance)
            return real(instance, *more)

        monkeypatch.setattr(pair.source, name, note)
    pair.move()
    assert asked == ["web1.lan"] * len(names)


def test_an_instance_without_a_description_is_not_moved(clusters, monkeypatch):
    pair = clusters()
    info = pair.source._new
    monkeypatch.setattr(
        pair.source, "GetInstanceInfo", lambda _name, static: info("info", {})
    )
    with pytest.raises(main.MoveError, match=f"{NAME}: has no description"):
        pair.move()


def test_a_mirror_without_a_second_node_is_refused_before_anything_is_made(clusters):
    """The template of the source is that of the new instance, unless one is given."""
    pair = clusters(info=INFO | {"disk_template": "drbd"})
    with pytest.raises(main.MoveError, match="drbd needs --dest-secondary-node"):
        pair.move(target=settings.Target(primary="node1"))
    assert jobs_of(pair) == ["source info"]
    pair = clusters(info=INFO | {"disk_template": "drbd"})
    pair.move(target=settings.Target(primary="node1", template="plain"))
    assert jobs_of(pair) == WHOLE


LOST = ["OpExecError", ["disk/0: connection lost"]]


def test_a_broken_copy_has_the_words_of_both_and_the_source_runs_again(clusters):
    pair = clusters(source={"export": [LOST]}, destination={"create": ["late"]})
    text = "source job 4: disk/0: connection lost; destination job 1: disk/0: did not c"
    with pytest.raises(main.MoveError, match=text):
        pair.move()
    assert jobs_of(pair) == [*WHOLE[:5], "source start"]


def test_a_receiver_whose_sender_never_came_does_not_wait_for_it(clusters):
    """The destination's job would wait for minutes, so it is killed after a moment."""
    pair = clusters(source={"export": [LOST]})
    pair.destination.endless.add(1)
    text = "source job 4: disk/0: connection lost; destination job 1: killed on request"
    with pytest.raises(main.MoveError, match=text):
        pair.move()
    assert jobs_of(pair) == [*WHOLE[:5], "destination kill", "source start"]
    assert sum(pair.waits) == main._NOTICE_S


def test_a_destination_that_refuses_to_kill_a_job_is_waited_for(clusters, monkeypatch):
    """Ganeti's remote API does not know how to."""
    pair = clusters(source={"export": [LOST]})
    pair.destination.endless.add(1)

    def refused(_job_id):
        pair.destination.endless.clear()
        raise rapi.GanetiApiError("400 wrong", code=400)

    monkeypatch.setattr(pair.destination, "KillJob", refused)
    with pytest.raises(main.MoveError, match="so both clusters have the instance"):
        pair.move()


def test_content_that_the_destination_lost_leaves_the_source(clusters):
    pair = clusters(destination={"create": ["late"]})
    with pytest.raises(main.MoveError, match="destination job 1: disk/0"):
        pair.move()
    assert jobs_of(pair) == [*WHOLE[:5], "source start"]


def test_a_failed_export_whose_content_arrived_is_reported(clusters):
    pair = clusters(source={"export": [LOST]})
    with pytest.raises(main.MoveError, match="both clusters have the instance"):
        pair.move()
    assert "source remove" not in pair.calls
    assert "destination start" not in pair.calls


def test_a_new_instance_that_does_not_start_leaves_the_old_one_stopped(clusters):
    """The new one may run all the same, so the old one is not started."""
    pair = clusters(destination={"start": [LOST]})
    with pytest.raises(main.MoveError, match="is still in the source cluster"):
        pair.move()
    assert jobs_of(pair) == WHOLE[:-1]


def test_an_old_instance_that_cannot_be_removed_is_not_started(clusters):
    pair = clusters(source={"remove": [LOST]})
    with pytest.raises(main.MoveError, match="remove the old one by hand"):
        pair.move()
    assert jobs_of(pair) == WHOLE


def test_a_refused_request_changes_nothing(clusters):
    refused = rapi.GanetiApiError("403 forbidden", code=403)
    pair = clusters(destination={"create": [refused]})
    with pytest.raises(main.MoveError, match="403 forbidden"):
        pair.move()
    assert jobs_of(pair) == [*WHOLE[:3], "source discard"]


REFUSED = ["OpPrereqError", ["its primary node is marked offline", "wrong_state"]]


@pytest.mark.parametrize(
    ("source", "destination", "is_left"),
    [
        ({"prepare": [REFUSED]}, {}, False),
        ({}, {"create": [REFUSED]}, True),
        ({"stop": [LOST]}, {"create": ["late"]}, True),
        ({"export": [REFUSED]}, {"create": ["late"]}, True),
        ({"export": [rapi.GanetiApiError("no")]}, {"create": ["late"]}, True),
        # It has removed the key itself.
        ({"export": [LOST]}, {"create": ["late"]}, False),
        ({}, {"create": ["late"]}, False),
        ({"remove": [LOST]}, {}, False),
    ],
)
def test_a_prepared_key_that_no_export_removes_is_discarded(
    clusters, source, destination, is_left
):
    pair = clusters(source=source, destination=destination)
    with pytest.raises(main.MoveError):
        pair.move()
    assert jobs_of(pair).count("source discard") == is_left


def test_a_canceled_export_has_not_removed_the_key(clusters, monkeypatch):
    pair = clusters(source={"export": [LOST]}, destination={"create": ["late"]})
    end = pair.source._end
    monkeypatch.setattr(
        pair.source, "_end", lambda job: end(job).replace("error", "canceled")
    )
    with pytest.raises(main.MoveError, match="was canceled"):
        pair.move()
    assert jobs_of(pair).count("source discard") == 1


def test_a_source_that_cannot_discard_a_key_does_not_hide_the_failure(clusters):
    refused = rapi.GanetiApiError("400 no receivers", code=400)
    pair = clusters(source={"discard": [refused]}, destination={"create": [REFUSED]})
    with pytest.raises(main.MoveError, match="is marked offline"):
        pair.move()


def test_a_move_that_is_ended_by_the_user_discards_its_key(
    clusters, capsys, monkeypatch
):
    pair = clusters()

    def interrupted(**_request):
        raise KeyboardInterrupt

    monkeypatch.setattr(pair.destination, "CreateInstance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main.run(options(), pair)
    assert jobs_of(pair)[1:] == ["source prepare", "source discard"]
    assert "ended by the user" in capsys.readouterr().err


FULL = ["OpPrereqError", ["no free node", "temp_insufficient_resources"]]


def test_free_nodes_are_tried_first(clusters):
    pair = clusters(destination={"create": [FULL, FULL]})
    pair.move(tries=2, delay_s=7)
    assert jobs_of(pair).count("destination create") == 3
    assert pair.waits == [7, 7]
    assert "opportunistic_locking" not in pair.destination.request


def test_another_failure_of_a_try_is_final(clusters):
    wrong = ["OpPrereqError", ["instance exists", "already_exists"]]
    pair = clusters(destination={"create": [wrong]})
    with pytest.raises(main.MoveError, match="instance exists"):
        pair.move(tries=2)
    assert pair.destination.request["opportunistic_locking"] is True
    assert pair.waits == []


def test_an_instance_without_disks_is_refused(clusters):
    pair = clusters(info=INFO | {"disks": []})
    with pytest.raises(main.MoveError, match="has no disks"):
        pair.move()
    assert jobs_of(pair) == ["source info"]


# The request
def test_properties_of_the_instance_are_kept():
    request = main.creation_request(INFO, PREPARED, settings.Target(), "none")
    assert request["hvparams"] == {"boot_order": "disk"}
    assert request["beparams"] == {"minmem": 128, "maxmem": 256, "vcpus": 2}
    assert request["osparams"] == {"dhcp": "no"}
    assert request["disks"] == [{"size": 1024, "mode": "rw"}]
    assert request["nics"] == [
        {
            "name": "eth",
            "ip": "192.0.2.5",
            "mac": "aa:00:00:00:00:01",
            "mode": "routed",
            "link": "100",
        },
        {"mac": "aa:00:00:00:00:02", "network": "lan"},
    ]
    assert not {"pnode", "snode", "iallocator"} & set(request)


def test_options_change_properties():
    target = settings.Target(
        name="new",
        template="file",
        primary="n1",
        secondary="n2",
        beparams={"memory": "512"},
        hypervisor="fake",
        osparams={"dhcp": "yes"},
        nics={0: {"network": "dmz"}, 1: {"mode": "bridged", "link": "br1"}, 3: {}},
    )
    request = main.creation_request(INFO, PREPARED, target, "none")
    assert request["hvparams"] == {}
    assert request["beparams"] == {"vcpus": 2, "memory": "512"}
    assert request["osparams"] == {"dhcp": "yes"}
    assert (request["name"], request["disk_template"]) == ("new", "file")
    assert (request["pnode"], request["snode"]) == ("n1", "n2")
    first, second, third, fourth = request["nics"]
    assert first["network"] == "dmz"
    assert not {"mode", "link"} & set(first)
    assert second == {"mac": "aa:00:00:00:00:02", "mode": "bridged", "link": "br1"}
    assert (third, fourth) == ({}, {})


# The program
def test_each_instance_has_a_line_at_the_end(clusters, capsys, monkeypatch):
    outcomes = {"a": None, "b": main.MoveError("lost\x1b[2J")}

    class FakeMover:
        def __init__(self, name, *_args, **_more):
            self.name = name

        def run(self):
            if outcomes[self.name]:
                raise outcomes[self.name]

    monkeypatch.setattr(main, "Mover", FakeMover)
    wanted = options(instances=("a", "b"), parallel=2)
    assert main.run(wanted, clusters()) == 1
    assert capsys.readouterr().out == "a: Success\nb: Failed: lost\\x1b[2J\n"
    assert main.run(options(instances=("a",)), clusters()) == 0


def test_a_tool_that_one_cluster_does_not_allow_is_refused_at_once(clusters):
    pair = clusters()
    pair.destination.tools = ["lzop"]
    text = "--compress: wanted one of none, lzop for cluster two, found gzip"
    with pytest.raises(main.MoveError, match=text):
        main.run(options(compress="gzip"), pair)
    assert pair.calls == []


def test_a_guest_that_runs_although_it_is_marked_down_is_not_moved(clusters):
    info = {**INFO, "config_state": "down", "run_state": "up"}
    pair = clusters(info=info)
    with pytest.raises(main.MoveError, match="is marked down, but runs"):
        pair.move()
    assert pair.calls == ["source info"]


@pytest.mark.parametrize("code", [None, 502, 503])
@pytest.mark.parametrize("method", ["WaitForJobChange", "GetJobStatus"])
def test_a_move_waits_for_a_master_that_is_away(clusters, monkeypatch, method, code):
    """Its jobs go on when it is back."""
    pair = clusters()
    answer = getattr(pair.source, method)
    failures = [rapi.GanetiApiError("away", code=code)] * 5

    def patient(*args):
        if failures:
            raise failures.pop()
        return answer(*args)

    monkeypatch.setattr(pair.source, method, patient)
    pair.move()
    assert failures == []
    assert pair.waits == [3.0] * 5
    assert jobs_of(pair) == WHOLE


def test_a_move_does_not_wait_for_a_master_without_end(clusters, monkeypatch):
    pair = clusters()

    def away(*_args):
        raise rapi.GanetiApiError("502 away", code=502)

    monkeypatch.setattr(pair.source, "WaitForJobChange", away)
    with pytest.raises(main.MoveError, match="502 away"):
        pair.move()
    assert len(pair.waits) == 19


def test_a_cluster_that_cannot_be_reached_is_named_before_anything_begins(
    clusters, monkeypatch
):
    pair = clusters()

    def refused():
        raise rapi.GanetiApiError("401 Unauthorized", code=401)

    monkeypatch.setattr(pair.destination, "GetInfo", refused)
    with pytest.raises(main.MoveError, match=r"^cluster two: 401 Unauthorized"):
        main.run(options(), pair)
    assert pair.calls == []

"""The service of the master in parts: order of start and end, and what waits for commits."""

import os
import threading
import types

import msgspec
import pytest

from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.daemons.masterd import service
from ganeti.daemons.masterd.methods import automatons, balancing, calls, settings


class Part:
    """A part of the service that notes what is asked of it, with its arguments."""

    def __init__(self, name, steps, results=()):
        self._name, self._steps, self._results = name, steps, dict(results)

    def __getattr__(self, method):
        def call(*args, **options):
            self._steps.append((f"{self._name}.{method}", *args, *options.items()))
            return self._results.get(method)

        return call


@pytest.fixture
def steps():
    return []


@pytest.fixture
def made(steps):
    """Return a service whose parts note what they do."""
    actual = object.__new__(service.Service)
    parts = (
        "quick",
        "slow",
        "reporting",
        "planning",
        "store",
        "address",
        "term_resets",
        "events",
        "audit",
    )
    deps = types.SimpleNamespace(
        **{name: Part(name, steps) for name in parts},
        queue=Part("queue", steps, {"stop": False}),
    )
    actual.deps = deps
    for name in ("distributor", "server", "leftovers", "rights"):
        setattr(actual, f"_{name}", Part(name, steps))
    actual._is_stopped = threading.Event()
    return actual


def test_clients_are_served_when_everything_else_runs(made, steps):
    made.start()
    assert steps == [
        ("queue.start",),
        ("distributor.start",),
        ("leftovers.start",),
        ("rights.start",),
        ("term_resets.start",),
        ("server.start",),
    ]


def test_the_end_refuses_clients_first_and_closes_the_store_last_but_one(made, steps):
    assert made.stop() is False
    cancel = ("cancel_futures", True)
    assert steps == [
        ("server.stop_accepting",),
        ("leftovers.stop",),
        ("rights.stop",),
        ("address.stop",),
        ("term_resets.stop",),
        ("events.stop",),
        ("queue.stop", 10.0),
        ("server.stop",),
        ("quick.shutdown", ("wait", True), cancel),
        # A slow query may wait for a node; nobody waits for it.
        ("slow.shutdown", ("wait", False), cancel),
        ("reporting.shutdown", ("wait", False), cancel),
        ("planning.shutdown", ("wait", False), cancel),
        ("store.close",),
        ("distributor.stop",),
        ("audit.stop",),
    ]
    steps.clear()
    assert made.stop() is True
    assert steps == []


def test_opcodes_get_the_time_that_the_caller_has(made, steps):
    made.stop(2.5)
    assert ("queue.stop", 2.5) in steps


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (None, True),
        (types.SimpleNamespace(is_final=True), True),
        (types.SimpleNamespace(is_final=False), False),
    ],
)
def test_a_job_that_is_not_known_any_more_has_ended(made, job, expected):
    made.deps.queue = Part("queue", [], {"job": job})
    assert made._has_ended(7) is expected


@pytest.mark.parametrize("user", [None, types.SimpleNamespace(uid=901, gid=902)])
def test_the_socket_of_the_remote_api_belongs_to_its_daemon(
    made, tmp_path, monkeypatch, user
):
    paths = Paths(root=str(tmp_path / "n1"), hostname="n1")
    made.deps.paths = paths
    asked = []
    monkeypatch.setattr(
        service.daemon_users, "identity", lambda *args: asked.append(args) or user
    )
    umask = os.umask(0)
    try:
        for _again in range(2):
            restricted = made._remote_socket()
    finally:
        os.umask(umask)
    assert asked[0] == ("ganeti-rapi", paths)
    assert os.stat(paths.rapi_socket_dir).st_mode & 0o777 == 0o750
    owner = (os.geteuid(), -1) if user is None else (901, 902)
    assert restricted[:3] == (paths.rapi_socket, *owner)
    assert restricted[3] == made._answer_remote


def test_jobs_are_recovered_before_anything_else_looks_at_them(steps, monkeypatch):
    deps = types.SimpleNamespace(
        queue=Part("queue", steps),
        audit=Part("audit", steps),
        sessions=Part("sessions", steps),
        paths=Paths(root="/x", hostname="n1"),
        store=types.SimpleNamespace(snapshot=lambda: "snapshot", term="term"),
        rpc="rpc",
        clock="clock",
        config=types.SimpleNamespace(),
    )
    monkeypatch.setattr(
        service, "mark_creations", lambda config: steps.append(("mark", config))
    )
    monkeypatch.setattr(service, "restore_access", lambda *args: steps.append(args))
    distributors = []
    part = Part("distributor", steps)
    part.write_again = "again"

    def distributor(*args, **options):
        distributors.append((args, options))
        return part

    monkeypatch.setattr(service, "Distributor", distributor)
    monkeypatch.setattr(service, "Service", lambda *args: args)
    assert service.build(deps) == (deps, part)
    assert deps.config.on_ssconf == "again"
    assert steps[0] == ("audit.started", "n1", "term")
    first = [("queue.recover",), ("sessions.load",), ("mark", deps.config)]
    assert steps[1:4] == first
    (((opened, nodes, values), options),) = distributors
    assert (opened, nodes, options["clock"]) == (deps.store, "rpc", "clock")
    assert values.__name__ == "all"
    options["wake_queue"]()
    options["on_refusal"](["n1"])
    assert steps[4:] == [("queue.poke",), ("rpc", "snapshot", "term", ["n1"])]


# Requests
def test_balancing_has_the_documented_defaults():
    assert msgspec.to_builtins(balancing.BalanceRequest()) == {
        "group": None,
        "max_moves": 100,
        "min_gain": 0.01,
        "min_gain_limit": 0.1,
        "evacuate": False,
        "disk_moves": True,
        "instance_moves": True,
        "restricted": False,
        "ignore_soft_errors": False,
        "search": False,
        "static_memory": 4096,
        "explain": False,
        "allocator": None,
        "nodes": None,
        "fixed": [],
        "first_set": False,
        "loads": None,
        "domain_loads": None,
        "skip_silent": False,
    }
    assert msgspec.to_builtins(balancing.CapacityRequest()) == {
        "disk_template": None,
        "memory": None,
        "disk": None,
        "vcpus": None,
        "tiered": False,
        "groups": (),
        "limit": None,
        "allocator": None,
    }


#: Methods whose result is a commit, and the subject of the answer in a stall.
COMMITTING = {
    "ReplaceFilter": "The change of the job filters",
    "DeleteFilter": "The change of the job filters",
    "ChangeMaintenance": "The change of the maintenance state",
    "CancelIncident": "The change of the maintenance state",
    "RemoveIncident": "The change of the maintenance state",
}
FILTER = {
    "key": None,
    "priority": 0,
    "predicates": [],
    "action": "ACCEPT",
    "reason": [],
}


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (settings.replace_filter, FILTER, "ReplaceFilter"),
        (settings.delete_filter, {"key": "x"}, "DeleteFilter"),
        (
            automatons.change_maintenance,
            {"serial": 1, "state": None, "jobs": []},
            "ChangeMaintenance",
        ),
        (automatons.cancel_incident, {"uuid": "u"}, "CancelIncident"),
        (automatons.remove_incident, {"uuid": "u"}, "RemoveIncident"),
        (settings.set_watcher_pause, {"until": None}, None),
        (automatons.query_maintenance, {}, None),
    ],
)
def test_a_request_that_waits_for_a_commit_names_its_change(
    steps, function, arguments, name
):
    deps = types.SimpleNamespace(
        slow=Part("slow", steps, {"submit": "future"}),
        queue=types.SimpleNamespace(last_id=41),
        clock=SystemClock(),
        maintenance=types.SimpleNamespace(change="change", edit="edit", state="state"),
    )
    later = function(deps, **arguments)
    assert isinstance(later, calls.Later)
    assert later.future == "future"
    assert later.committing == COMMITTING.get(name, "")
    # A change goes on when its client leaves.
    assert later.can_cancel is False
    ((method, *submitted),) = steps
    assert method == "slow.submit"
    if name in ("CancelIncident", "RemoveIncident"):
        cancels = ("cancel", name == "CancelIncident")
        assert submitted == ["edit", deps.queue, "u", cancels]
    if name == "ReplaceFilter":
        rule = submitted[2]
        assert (rule.watermark, rule.priority, rule.action) == (41, 0, "ACCEPT")
        assert rule.reason_trail[-1][:2] == ("gnt:daemon:luxid", "")
        assert abs(rule.reason_trail[-1][2] / 1e9 - deps.clock.time()) < 3600

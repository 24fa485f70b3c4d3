"""One object of dependencies, and the views that parts of the master have of it."""

import dataclasses
import threading

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.master import Master
from ganeti.base import errors
from ganeti.operations import base, mcpu

OWN = {
    "log": "log",
    "locks": "held",
    "owner": "7/0",
    "pause": str,
    "resumption": None,
    "save_resumption": print,
}


def test_a_view_has_the_members_by_name_and_its_own():
    deps = Engine().deps()
    context = base.view(base.Context, deps, **OWN)
    shared = {field.name for field in dataclasses.fields(base.UnitDeps)}
    for name in shared:
        assert getattr(context, name) is getattr(deps, name), name
    assert {name: getattr(context, name) for name in OWN} == OWN


def test_a_view_may_replace_members():
    deps = Engine().deps()
    narrow = base.view(mcpu.EngineDeps, deps, clock="virtual")
    assert narrow.clock == "virtual"
    assert narrow.locks is deps.locks


def test_a_view_needs_every_member():
    with pytest.raises(AttributeError, match="log"):
        base.view(base.Context, Engine().deps(), locks="held", owner="7/0")


def test_the_master_has_one_of_each_and_locks_for_its_objects(tmp_path):
    master = Master(tmp_path).start()
    try:
        deps = master.service.deps
        assert deps.queue is deps.queue
        assert deps.planner is deps.planner
        snapshot = deps.config.snapshot()
        assert deps.query_sources().snapshot.revision == snapshot.revision
        for level, names in mcpu.members(snapshot).items():
            assert deps.locks.names(level) == set(names)
    finally:
        master.stop()


def test_the_duty_of_the_address_gets_a_removal_before_it_is_made(tmp_path):
    master = Master(tmp_path / "node1.example.com").start()
    try:
        deps, wanted = master.service.deps, []
        name = "node_deactivate_master_ip"
        master.rpc.script[name] = lambda *_: wanted.append(deps.address._is_wanted)
        deps.rpc.call(name, [clusters.node_uuid(1)], ({}, False))
        assert wanted == [False]
    finally:
        master.stop()


def test_a_commit_refused_for_its_term_deposes_the_master(tmp_path):
    master = Master(tmp_path).start()
    try:
        on_failure = master.service.deps.queue._core.settings.on_failure
        on_failure(errors.StorageError("disk full"))
        assert not master.deposed.is_set()
        on_failure(errors.TermError("a later term"))
        assert master.deposed.is_set()
    finally:
        master.stop()


def test_a_stop_does_not_wait_for_plans_and_queries_of_nodes(tmp_path):
    master = Master(tmp_path).start()
    begun, may_end = threading.Semaphore(0), threading.Event()

    def work():
        begun.release()
        may_end.wait(120)

    deps = master.service.deps
    running = [pool.submit(work) for pool in (deps.planning, deps.slow)]
    waiting = [deps.planning.submit(work) for _ in range(9)]
    try:
        for _ in running:
            assert begun.acquire(timeout=60)
        assert master.service.stop()
        assert not any(future.done() for future in running)
        assert any(future.cancelled() for future in waiting)
        # A second signal changes nothing.
        assert master.service.stop()
    finally:
        may_end.set()

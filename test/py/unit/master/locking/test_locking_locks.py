"""SharedLock, LockSet and LockManager with real threads."""

import os
import random
import threading

import pytest

from fakes.clocks import FakeClock
from fakes.jobs_run import WAIT_S, until
from ganeti.base import clock, errors
from ganeti.master.locking import BGL, Level, LockManager, LockSet, Request, SharedLock


class Person:
    """A thread that runs given functions one after another."""

    def __init__(self, name):
        self._todo = threading.Semaphore(0)
        self._calls = []
        self.results = []
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self):
        while True:
            self._todo.acquire()
            call, done = self._calls.pop(0)
            if call is None:
                return
            try:
                done.append(call())
            except Exception as err:  # noqa: BLE001
                done.append(err)

    def begin(self, call):
        """Have it done; returns the list that will hold the result."""
        done = []
        self._calls.append((call, done))
        self._todo.release()
        return done

    def do(self, call):
        done = self.begin(call)
        until(lambda: done)
        if isinstance(done[0], Exception):
            raise done[0]
        return done[0]

    def leave(self):
        self.begin(None)
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()


@pytest.fixture
def people():
    made = []

    def make(*names):
        made.extend(Person(name) for name in names)
        return made[-len(names) :]

    yield make
    for person in made:
        person.leave()


# SharedLock
def test_shared_holders_share_and_an_exclusive_one_is_alone(people):
    a, b, c = people("a", "b", "c")
    lock = SharedLock("node/n1")
    assert a.do(lambda: lock.acquire(shared=1))
    assert b.do(lambda: lock.acquire(1))
    assert lock.info()[:4] == ("node/n1", "shared", ("a", "b"), ())
    assert c.do(lambda: lock.acquire(timeout=0)) is False
    assert c.do(lambda: lock.acquire(timeout=-1)) is False
    waiting = c.begin(lock.acquire)
    until(lambda: lock.info().pending == (("exclusive", ("c",)),))
    a.do(lock.release)
    b.do(lock.release)
    until(lambda: waiting)
    assert waiting == [True]
    assert c.do(lambda: (lock.is_owned(), lock.is_owned(0), lock.is_owned(1))) == (
        True, True, False,
    )  # fmt: skip
    assert lock.info().mode == "exclusive"
    assert not lock.is_owned()
    c.do(lock.release)


def test_a_timeout_gives_up_and_lets_those_behind_pass(people):
    a, b, c = people("a", "b", "c")
    lock = SharedLock("l")
    a.do(lambda: lock.acquire(shared=1))
    impatient = b.begin(lambda: lock.acquire(timeout=0.05))
    # On a busy machine its patience may be at an end before anybody looks.
    until(lambda: lock.info().pending or impatient)
    behind = c.begin(lambda: lock.acquire(shared=1))
    until(lambda: behind)
    assert (impatient, behind) == ([False], [True])
    assert lock.info().pending == ()


def test_priorities_order_waiters(people):
    holder, low, high = people("holder", "low", "high")
    lock = SharedLock("l")
    holder.do(lock.acquire)
    got_low = low.begin(lambda: lock.acquire(priority=10))
    until(lambda: len(lock.info().pending) == 1)
    got_high = high.begin(lambda: lock.acquire(shared=1, priority=-10))
    until(lambda: len(lock.info().pending) == 2)
    assert lock.info().pending == (("shared", ("high",)), ("exclusive", ("low",)))
    holder.do(lock.release)
    until(lambda: got_high)
    assert not got_low
    high.do(lock.release)
    until(lambda: got_low)


def test_downgrade_lets_shared_waiters_in(people):
    a, b = people("a", "b")
    lock = SharedLock("l")
    a.do(lock.acquire)
    got = b.begin(lambda: lock.acquire(shared=1))
    until(lambda: lock.info().pending)
    assert a.do(lock.downgrade) is True
    until(lambda: got)
    assert a.do(lambda: lock.is_owned(1))
    assert a.do(lock.downgrade) is True


def test_delete_fails_those_who_wait_and_those_who_come_later(people):
    a, b, c = people("a", "b", "c")
    lock = SharedLock("l")
    a.do(lock.acquire)
    waiting = b.begin(lock.acquire)
    until(lambda: lock.info().pending)
    assert c.do(lambda: lock.delete(timeout=0)) is False
    assert a.do(lock.delete) is True
    until(lambda: waiting)
    assert isinstance(waiting[0], errors.LockError)
    for late in (lambda: lock.acquire(timeout=0), lock.delete):
        with pytest.raises(errors.LockError):
            c.do(late)
    assert lock.info().mode == "deleted"
    assert lock.is_deleted


def test_misuse_of_a_lock_is_a_programming_error(people):
    [a] = people("a")
    lock = SharedLock("l")
    a.do(lambda: lock.acquire(shared=1))
    for step in (lock.acquire, lock.delete):
        with pytest.raises(errors.ProgrammerError):
            a.do(step)
    a.do(lock.release)
    for step in (lock.release, lock.downgrade):
        with pytest.raises(errors.ProgrammerError):
            a.do(step)


# LockSet
def make_set(*members):
    return LockSet("node", members, clk=clock.SystemClock())


def test_named_and_all_forms_give_the_names_taken(people):
    a, b = people("a", "b")
    locks = make_set("n1", "n2", "n3")
    assert a.do(lambda: locks.acquire(["n2", "n1"])) == {"n1", "n2"}
    assert b.do(lambda: locks.acquire(None, 0)) is None
    assert b.do(locks.is_owned) is False
    assert a.do(lambda: locks.owns(["n1", "n2"], shared=0))
    a.do(locks.release)
    assert b.do(lambda: locks.acquire(None, shared=1)) == {"n1", "n2", "n3"}
    assert b.do(locks.owns_all)
    b.do(locks.release)
    assert a.do(lambda: make_set().acquire(None)) == set()


def test_a_missing_member_is_an_error_and_gives_everything_back(people):
    [a] = people("a")
    locks = make_set("n1", "n3")
    with pytest.raises(errors.LockError, match="n2"):
        a.do(lambda: locks.acquire(["n1", "n2", "n3"]))
    assert [row.mode for row in locks.info()] == [None, None, None]


def test_a_member_deleted_while_waited_for_is_an_error_by_name_and_skipped_in_all(
    people,
):
    a, b, c = people("a", "b", "c")
    locks = make_set("n1", "n2")
    a.do(lambda: locks.acquire(["n2"]))
    by_name = b.begin(lambda: locks.acquire(["n2"]))
    every = c.begin(lambda: locks.acquire(None))
    until(lambda: sum(len(row.pending) for row in locks.info()) == 2)
    assert a.do(lambda: locks.remove(["n2"])) == {"n2"}
    until(lambda: by_name and every)
    assert isinstance(by_name[0], errors.LockError)
    assert every == [{"n1"}]


def test_the_timeout_spans_the_whole_set(people):
    clk = FakeClock()
    [a] = people("a")
    locks = LockSet("node", ["n1", "n2"], clk=clk)
    asked = []
    for lock in locks._members.values():
        taken = lock.acquire

        def acquire(shared, timeout, priority, interrupted, taken=taken):
            asked.append(timeout)
            clk.now += 4
            return taken(shared, timeout, priority, interrupted)

        lock.acquire = acquire
    assert a.do(lambda: locks.acquire(["n1", "n2"], 10)) == {"n1", "n2"}
    assert asked == [10, 6]


def test_adding_needs_the_whole_set_or_nothing(people):
    a, b = people("a", "b")
    locks = make_set("n1")
    a.do(lambda: locks.acquire(None, shared=1))
    with pytest.raises(errors.ProgrammerError):
        a.do(lambda: locks.add(["n2"]))
    assert b.do(lambda: locks.add(["n2"], timeout=0)) is False
    a.do(locks.release)
    a.do(lambda: locks.acquire(["n1"]))
    with pytest.raises(errors.ProgrammerError):
        a.do(lambda: locks.add(["n2"]))
    assert b.do(lambda: locks.add(["n2"], acquired=True)) is True
    assert b.do(lambda: locks.owns(["n2"], shared=0))
    with pytest.raises(errors.LockError, match="n1"):
        b.do(lambda: (locks.release(), locks.add(["n3", "n1"])))
    assert locks.names() == {"n1", "n2"}
    a.do(locks.release)
    a.do(lambda: locks.acquire(None))
    a.do(lambda: locks.add(["n4"], acquired=True, shared=1))
    assert a.do(lambda: locks.owns(["n4"], shared=1))


def test_release_gives_the_set_lock_back_first(people):
    a, b = people("a", "b")
    locks = make_set("n1", "n2")
    a.do(lambda: locks.acquire(None))
    a.do(lambda: locks.release(["n1"]))
    assert a.do(locks.owned) == {"n2"}
    assert not a.do(locks.owns_all)
    assert b.do(lambda: locks.add(["n3"], timeout=0))
    with pytest.raises(errors.ProgrammerError):
        a.do(lambda: locks.release(["n1"]))


def test_a_wrong_release_gives_nothing_back(people):
    [a] = people("a")
    locks = make_set("n1", "n2")
    a.do(lambda: locks.acquire(None))
    with pytest.raises(errors.ProgrammerError, match="n9"):
        a.do(lambda: locks.release(["n1", "n9"]))
    assert a.do(locks.owns_all)
    assert a.do(locks.owned) == {"n1", "n2"}


def test_of_several_removers_one_wins(people):
    crowd = people(*(f"p{i}" for i in range(5)))
    locks = make_set("n1", "n2")
    with pytest.raises(errors.ProgrammerError):
        crowd[0].do(lambda: (locks.acquire(["n1"]), locks.remove(["n2"])))
    crowd[0].do(locks.release)
    results = [person.begin(lambda: locks.remove(["n1"])) for person in crowd]
    until(lambda: all(results))
    assert sorted((len(r[0]) for r in results), reverse=True) == [1, 0, 0, 0, 0]
    assert locks.names() == {"n2"}


def test_downgrading_the_last_exclusive_member_downgrades_the_set(people):
    a, b = people("a", "b")
    locks = make_set("n1", "n2")
    a.do(lambda: locks.acquire(None))
    a.do(lambda: locks.downgrade(["n1"]))
    assert b.do(lambda: locks.acquire(["n1"], 0, shared=1)) == {"n1"}
    b.do(locks.release)
    assert b.do(lambda: locks.acquire(None, 0, shared=1)) is None
    a.do(locks.downgrade)
    assert b.do(lambda: locks.acquire(None, 0, shared=1)) == {"n1", "n2"}


def test_opportunistic_takes_what_is_free_even_nothing(people):
    a, b = people("a", "b")
    locks = make_set("n1", "n2", "n3")
    a.do(lambda: locks.acquire(["n1", "n3"]))
    assert b.do(lambda: locks.acquire(None, 5, opportunistic=True)) == {"n2"}
    b.do(locks.release)
    assert b.do(lambda: locks.acquire(["n1"], opportunistic=True)) == set()
    with pytest.raises(errors.ProgrammerError):
        b.do(lambda: locks.acquire(["n1"], 5, opportunistic=True))


def test_asking_twice_is_a_programming_error(people):
    [a] = people("a")
    locks = make_set("n1", "n2")
    a.do(lambda: locks.acquire(["n1"]))
    with pytest.raises(errors.ProgrammerError, match="second request"):
        a.do(lambda: locks.acquire(["n2"]))


# LockManager
def make_manager(clk=None):
    return LockManager(
        clk or clock.SystemClock(),
        {Level.INSTANCE: ["web1", "web2"], Level.NODE: ["n1", "n2"]},
    )


def take(manager, level, names=None, timeout=None, **rest):
    return manager.acquire(Request(level, names, **rest), timeout)


def test_levels_are_taken_upwards_after_the_big_lock(people):
    [a] = people("a")
    manager = make_manager()
    with pytest.raises(errors.ProgrammerError, match="big lock"):
        a.do(lambda: take(manager, Level.NODE))
    assert a.do(lambda: take(manager, Level.CLUSTER, [BGL], shared=True)) == {BGL}
    assert a.do(lambda: take(manager, Level.NODE, ["n1"])) == {"n1"}
    for level in (Level.INSTANCE, Level.NODE, Level.CLUSTER):
        with pytest.raises(errors.ProgrammerError):
            a.do(lambda level=level: take(manager, level, []))
    with pytest.raises(errors.ProgrammerError, match="last"):
        a.do(lambda: manager.release(Level.CLUSTER))
    assert a.do(lambda: take(manager, Level.NODE_RES)) == {"n1", "n2"}
    a.do(manager.release_all)
    assert manager.lock_info() == []


def test_lock_lists_show_used_locks_by_name(people):
    a, b = people("Jq3/Job812/I_STARTUP", "b")
    manager = make_manager()
    for person in (a, b):
        person.do(lambda: take(manager, Level.CLUSTER, [BGL], shared=True))
    a.do(lambda: take(manager, Level.INSTANCE, ["web1"]))
    waiting = b.begin(lambda: take(manager, Level.INSTANCE, None, priority=3))
    until(lambda: any(row.pending for row in manager.lock_info()))
    assert [row[:4] for row in manager.lock_info()] == [
        ("cluster/BGL", "shared", ("Jq3/Job812/I_STARTUP", "b"), ()),
        ("instance/[lockset]", "exclusive", ("b",), ()),
        (
            "instance/web1",
            "exclusive",
            ("Jq3/Job812/I_STARTUP",),
            (("exclusive", ("b",)),),
        ),
    ]
    everything = manager.lock_info(used_only=False)
    assert [row.name for row in everything] == sorted(row.name for row in everything)
    assert "node-res/n2" in {row.name for row in everything}
    a.do(manager.release_all)
    until(lambda: waiting)


def test_nodes_have_their_resource_locks(people):
    [a] = people("a")
    manager = make_manager()
    a.do(lambda: take(manager, Level.CLUSTER, [BGL]))
    a.do(lambda: manager.add(Level.NODE, ["n3"]))
    assert manager.names(Level.NODE) == manager.names(Level.NODE_RES)
    assert a.do(lambda: manager.remove(Level.NODE, ["n1"])) == {"n1"}
    assert manager.names(Level.NODE) == manager.names(Level.NODE_RES) == {"n2", "n3"}
    with pytest.raises(errors.ProgrammerError):
        manager.add(Level.CLUSTER, ["x"])


def test_new_names_are_held_with_the_ones_asked_for(people):
    a, b = people("a", "b")
    manager = make_manager()
    for person in (a, b):
        person.do(lambda: take(manager, Level.CLUSTER, [BGL], shared=True))
    got = a.do(lambda: take(manager, Level.INSTANCE, ["web1"], adding=["web9"]))
    assert got == {"web1", "web9"}
    assert not a.do(lambda: manager.owns_all(Level.INSTANCE))
    assert b.do(lambda: take(manager, Level.INSTANCE, ["web9"], 0)) is None
    with pytest.raises(errors.LockError, match="web9"):
        b.do(lambda: take(manager, Level.INSTANCE, [], adding=["web9"]))
    assert not b.do(lambda: manager.is_owned(Level.INSTANCE))


def test_a_count_of_opportunistic_locks_is_tried_for_until_the_time_is_over(people):
    clk = FakeClock()
    a, b = people("a", "b")
    manager = make_manager(clk)
    for person in (a, b):
        person.do(lambda: take(manager, Level.CLUSTER, [BGL], shared=True))
    a.do(lambda: take(manager, Level.NODE, ["n1"]))
    start = clk.now
    request = {"opportunistic": True, "count": 2}
    assert b.do(lambda: take(manager, Level.NODE, None, 5, **request)) is None
    assert clk.now - start == 5
    assert b.do(lambda: manager.owned(Level.NODE)) == frozenset()
    request["count"] = 1
    assert b.do(lambda: take(manager, Level.NODE, None, 5, **request)) == {"n2"}
    b.do(lambda: manager.release(Level.NODE))
    # Without a limit the count is ignored: it waits for all.
    every = b.begin(lambda: take(manager, Level.NODE, None, None, **request))
    until(lambda: any(row.pending for row in manager.lock_info()))
    a.do(lambda: manager.release(Level.NODE))
    until(lambda: every)
    assert every == [{"n1", "n2"}]


def test_an_interrupted_thread_waits_no_more_until_it_resumes(people):
    a, b, c, d = people("a", "b", "c", "d")
    manager = make_manager()
    for person in (a, b, c, d):
        person.do(lambda: take(manager, Level.CLUSTER, [BGL], shared=True))
    a.do(lambda: take(manager, Level.NODE, ["n1"]))
    alone = b.begin(lambda: take(manager, Level.NODE, ["n1"]))
    until(lambda: len(manager.lock_info()[-1].pending) == 1)
    group = [
        p.begin(lambda: take(manager, Level.NODE, ["n1"], 10 * WAIT_S, shared=True))
        for p in (c, d)
    ]
    until(lambda: len(manager.lock_info()[-1].pending[-1][1]) == 2)
    for person in (b, c):
        manager.interrupt(person.thread)
    until(lambda: alone and group[0])
    assert (alone[0], group[0][0]) == (None, None)
    # Who waited on the same condition goes on waiting.
    assert manager.lock_info()[-1].pending == (("shared", ("d",)),)
    # Free locks can be acquired, waiting is still over, locks can be created.
    assert b.do(lambda: take(manager, Level.NODE, ["n1"])) is None
    assert b.do(lambda: take(manager, Level.NODE, ["n2"])) == {"n2"}
    b.do(lambda: manager.release(Level.NODE))
    b.do(manager.resume)
    again = b.begin(lambda: take(manager, Level.NODE, ["n1"]))
    a.do(lambda: manager.release(Level.NODE))
    until(lambda: group[1])
    d.do(lambda: manager.release(Level.NODE))
    until(lambda: again)
    assert (group[1][0], again[0]) == ({"n1"}, {"n1"})


# Stress
def test_many_threads_keep_exclusion_and_all_get_their_turn():
    """Record who held what; check the record; nothing may be left behind."""
    before = len(os.listdir("/proc/self/fd"))
    locks = make_set("n1", "n2", "n3")
    shared_now = dict.fromkeys(locks.names(), 0)
    alone_now = dict.fromkeys(locks.names())
    guard, problems, rounds = threading.Lock(), [], [0] * 8

    def enter(name, me, shared):
        with guard:
            if alone_now[name] is not None or (not shared and shared_now[name]):
                problems.append((name, me))
            if shared:
                shared_now[name] += 1
            else:
                alone_now[name] = me

    def leave(name, shared):
        with guard:
            if shared:
                shared_now[name] -= 1
            else:
                alone_now[name] = None

    def work(me):
        chance = random.Random(me)
        for _ in range(60):
            shared = chance.random() < 0.5
            wanted = chance.choice([None, ["n1"], ["n1", "n3"], ["n2", "n3"]])
            got = locks.acquire(
                wanted,
                chance.choice([None, 0, 0.001]),
                shared=shared,
                priority=chance.choice([-5, 0]),
            )
            for name in got or ():
                enter(name, me, shared)
            os.sched_yield()
            for name in got or ():
                leave(name, shared)
            locks.release()
            rounds[me] += 1

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not problems
    assert rounds == [60] * 8  # nobody was forgotten
    assert all(row.mode is None and not row.pending for row in locks.info())
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_exclusive_request_is_not_starved_by_a_stream_of_shared_ones():
    lock = SharedLock("l")
    stop = threading.Event()

    def reader():
        while not stop.is_set():
            lock.acquire(shared=1)
            os.sched_yield()
            lock.release()

    readers = [threading.Thread(target=reader, daemon=True) for _ in range(4)]
    for thread in readers:
        thread.start()
    try:
        for _ in range(20):
            assert lock.acquire(timeout=WAIT_S)
            lock.release()
    finally:
        stop.set()
        for thread in readers:
            thread.join(WAIT_S)


def test_a_lock_knows_how_long_each_owner_has_held_it(people):
    clk = FakeClock()
    lock = SharedLock("node/a", clk=clk)
    ann, bob = people("ann", "bob")
    ann.do(lambda: lock.acquire(shared=1))
    clk.now += 5
    bob.do(lambda: lock.acquire(shared=1))
    clk.now += 2
    row = lock.info()
    assert (row.owners, row.held_s) == (("ann", "bob"), (7.0, 2.0))
    ann.do(lock.release)
    bob.do(lock.release)
    assert lock.info().held_s == ()

"""PipeCondition: each documented behaviour."""

import os
import signal
import threading
import time

import pytest

from ganeti.master.locking import PipeCondition


def descriptors():
    return set(os.listdir("/proc/self/fd"))


def waiter(condition, results, timeout=None, ready=None):
    def run():
        with condition:
            if ready is not None:
                ready.release()
            results.append(condition.wait(timeout))

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def wait_for_waiters(condition, lock, count):
    while True:
        with lock:
            if len(condition.get_waiting()) >= count:
                return
        time.sleep(0)


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_waiting_and_notifying_need_the_mutex(make):
    condition = PipeCondition(make())
    with pytest.raises(RuntimeError, match="wait"):
        condition.wait(0)
    with pytest.raises(RuntimeError, match="notify"):
        condition.notify_all()


def test_wait_gives_the_mutex_away_while_sleeping_and_has_it_afterwards():
    lock = threading.Lock()
    condition = PipeCondition(lock)
    held = []

    def run():
        with condition:
            condition.wait()
            held.append(lock.locked())

    thread = threading.Thread(target=run)
    thread.start()
    wait_for_waiters(condition, lock, 1)
    with lock:  # could not be had otherwise
        condition.notify_all()
    thread.join()
    assert held == [True]


def test_all_present_waiters_wake():
    lock = threading.Lock()
    condition, results = PipeCondition(lock), []
    threads = [waiter(condition, results) for _ in range(5)]
    wait_for_waiters(condition, lock, 5)
    with condition:
        condition.notify_all()
    for thread in threads:
        thread.join()
    assert results == [True] * 5


def test_who_waits_later_is_not_woken_by_an_old_notification():
    condition = PipeCondition(threading.Lock())
    with condition:
        condition.notify_all()
        assert condition.wait(0) is False


def test_a_timeout_is_reported_and_not_short():
    condition = PipeCondition(threading.Lock())
    start = time.monotonic()
    with condition:
        assert condition.wait(0.02) is False
        assert condition.wait(-1) is False
    assert time.monotonic() - start >= 0.02


def test_an_interrupted_wait_goes_on_with_the_rest():
    condition = PipeCondition(threading.Lock())
    old = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        start = time.monotonic()
        with condition:
            assert condition.wait(0.03) is False
        assert time.monotonic() - start >= 0.03
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_descriptors_come_with_the_first_waiter_and_go_with_the_last():
    before = descriptors()
    lock = threading.Lock()
    condition, results = PipeCondition(lock), []
    assert descriptors() == before
    assert not condition.has_waiting()
    threads = [waiter(condition, results) for _ in range(3)]
    wait_for_waiters(condition, lock, 3)
    assert len(descriptors() - before) == 2
    assert condition.has_waiting()
    assert set(condition.get_waiting()) == set(threads)
    with condition:
        condition.notify_all()
        assert condition.get_waiting() == ()
        condition.wait(0)  # a new pipe beside the old one, which is still in use
    for thread in threads:
        thread.join()
    assert descriptors() == before


def test_no_descriptor_is_left_after_timeouts():
    before = descriptors()
    condition = PipeCondition(threading.RLock())
    with condition:
        for _ in range(50):
            condition.wait(0)
    assert descriptors() == before
    assert not condition.has_waiting()

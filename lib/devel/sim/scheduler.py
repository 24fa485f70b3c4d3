"""Virtual time: tasks that run one at a time, in an order that nothing real decides.

A task is a thread, because the owners of locks are threads; but only the one that has
the turn runs. It gives the turn away in `Scheduler.sleep` alone. So the order depends
on virtual times and on the order of requests, and two runs are equal. A function that
is scheduled with `Scheduler.at` runs in the thread of `Scheduler.run` and must not
sleep.
"""

import heapq
import itertools
import threading
from collections.abc import Callable
from typing import Final

from ganeti.base import errors

#: Real seconds that a task may compute before the simulation is given up: it waits for
#: something that no virtual time brings.
_PATIENCE_S: Final = 120.0
#: Seconds of the shortest sleep: the time must go on, whatever a loop computes.
_SHORTEST_S: Final = 0.001
#: Virtual seconds between two looks at a condition, first and at most.
_FIRST_LOOK_S: Final = 0.05
_LONGEST_LOOK_S: Final = 1.0


def _closed() -> threading.Lock:
    """Return a lock that waits for its first release; faster than a semaphore."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class TaskEnded(BaseException):
    """Unwinds a task whose process was killed; not an error of anything."""


class Task:
    """One activity, such as a worker of the job queue or a daemon's loop.

    Attributes:
        is_over: it has ended.
        is_killed: it ends at its next turn.
    """

    def __init__(self, owner: "Scheduler", name: str, work: Callable[[], None]) -> None:
        self._owner = owner
        self._work = work
        self._turn = _closed()
        self.is_over = False
        self.is_killed = False
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def resume(self) -> None:
        """Give the turn to the task, until it sleeps or ends."""
        if self.is_over:
            return
        # A thread begins with the first turn, so a task that is never due has none.
        if self.thread.ident is None:
            self.thread.start()
        else:
            self._turn.release()
        self._owner.wait_for_turn()

    def pause(self) -> None:
        """Give the turn back, and wait for it."""
        self._owner.give_turn_back()
        self._turn.acquire()
        if self.is_killed:
            raise TaskEnded

    def _run(self) -> None:
        self._owner.tasks[self.thread] = self
        try:
            if not self.is_killed:
                self._work()
        except TaskEnded:
            pass
        except BaseException as err:  # noqa: BLE001 - raised again by `Scheduler.run`
            self._owner.failure = err
        finally:
            self.is_over = True
            self._owner.tasks.pop(self.thread, None)
            self._owner.give_turn_back()


class Scheduler:
    """The time, and everything that is due at a time. It is the clock, too.

    Attributes:
        now: seconds since 1970.
        tasks: those that have begun and not ended, by their threads.
        failure: error of a task, which ends the simulation.
        skew_s: by how much the wall clock is wrong.
    """

    def __init__(self, now: float) -> None:
        self.now = now
        self.tasks: dict[threading.Thread, Task] = {}
        self.failure: BaseException | None = None
        self.skew_s = 0.0
        self._began = self._until = now
        self._count = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._turn = _closed()

    # The clock
    def time(self) -> float:
        """Return seconds since 1970, as the machine of the master believes."""
        return self.now + self.skew_s

    def monotonic(self) -> float:
        """Return seconds since the begin of the simulation."""
        return self.now - self._began

    def wait(self, event: threading.Event, timeout_s: float | None) -> bool:
        """Sleep; return whether the event is set then.

        Raises:
            ProgrammerError: the wait would never end.
        """
        if event.is_set():
            return True
        if timeout_s is None:
            raise errors.ProgrammerError("simulation: a wait without limit")
        self.sleep(timeout_s)
        return event.is_set()

    # Tasks
    def spawn(self, name: str, work: Callable[[], None], delay_s: float = 0.0) -> Task:
        """Begin a task, now or later."""
        task = Task(self, name, work)
        self.at(delay_s, task.resume)
        return task

    def at(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run an action after some seconds."""
        when = self.now + max(0.0, delay_s)
        # The count keeps the order of requests for one time.
        heapq.heappush(self._due, (when, next(self._count), action))

    def sleep(self, seconds: float) -> None:
        """Let others have the turn for some seconds; only in a task.

        Raises:
            ProgrammerError: the thread is no task; `run` raises it, too, because
                automatons go on after errors.
        """
        task = self.tasks.get(threading.current_thread())
        if task is None:
            self.failure = errors.ProgrammerError("simulation: a wait outside of tasks")
            raise self.failure
        if task.is_killed:
            raise TaskEnded
        when = self.now + max(_SHORTEST_S, seconds)
        if when <= self._until and not (self._due and self._due[0][0] <= when):
            # Nobody else has anything to do until then.
            self.now = when
            return
        self.at(max(_SHORTEST_S, seconds), task.resume)
        task.pause()

    def sleep_until(self, is_true: Callable[[], bool], limit_s: float) -> bool:
        """Sleep until a condition holds; return whether it does at the end."""
        end = self.now + limit_s
        step_s = _FIRST_LOOK_S
        while not is_true():
            left_s = end - self.now
            if left_s <= 0:
                return False
            self.sleep(min(step_s, left_s))
            step_s = min(_LONGEST_LOOK_S, step_s * 2)
        return True

    def run(self, until: float) -> None:
        """Let everything happen that is due until a time.

        Raises:
            BaseException: that of a task that failed.
        """
        self._until = until
        while self._due and self._due[0][0] <= until:
            when, _number, action = heapq.heappop(self._due)
            self.now = max(self.now, when)
            action()
            if self.failure is not None:
                raise self.failure
        self.now = max(self.now, until)

    def close(self) -> None:
        """End all tasks; nothing runs afterwards."""
        self._due.clear()
        for task in list(self.tasks.values()):
            task.is_killed = True
            # Code that unwinds may sleep, which ends it once more.
            while not task.is_over:
                task.resume()

    # For tasks
    def wait_for_turn(self) -> None:
        """Wait until the task that has the turn gives it back.

        Raises:
            ProgrammerError: it does not.
        """
        if not self._turn.acquire(timeout=_PATIENCE_S):
            raise errors.ProgrammerError(
                "simulation: a task waits for something outside of the simulation"
            )

    def give_turn_back(self) -> None:
        """Give the turn to the thread of `run`."""
        self._turn.release()

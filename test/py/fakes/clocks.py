"""Clocks of tests, by which nobody waits in vain."""

from ganeti.base.clock import SystemClock


class FakeClock:
    """Wall and monotonic time in seconds; waiting takes no real time."""

    def __init__(self, now=1_700_000_000.0):
        self.now = now

    def time(self):
        return self.now

    def monotonic(self):
        return self.now

    def wait(self, event, timeout_s):
        if not event.is_set() and timeout_s:
            self.now += timeout_s
        return event.is_set()


class ImpatientClock(SystemClock):
    """The machine's clock, but the first wait ends at once, after all time limits."""

    def __init__(self):
        self._ahead_s = 0.0

    def monotonic(self):
        return super().monotonic() + self._ahead_s

    def wait(self, event, timeout_s):
        if self._ahead_s:
            return super().wait(event, timeout_s)
        self._ahead_s = 1e6
        return event.is_set()


class PushedClock(SystemClock):
    """The machine's clock, which a test can push forward."""

    def __init__(self):
        self.ahead = 0.0

    def monotonic(self):
        return super().monotonic() + self.ahead

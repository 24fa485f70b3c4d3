"""A clock that only moves when somebody waits."""


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

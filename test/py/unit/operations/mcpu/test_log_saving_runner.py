"""The log is stored before calls that act, and before no others."""

from ganeti.operations.mcpu import log_saving_runner


class Calls:
    """A runner and a log that note the order of events."""

    def __init__(self):
        self.events = []

    def save_log(self):
        self.events.append("save")

    def call(self, procedure, nodes, _args=(), *, timeout_s=None):
        self.events.append(procedure)
        return dict.fromkeys(nodes)


def test_acts_wait_for_the_log_and_questions_do_not():
    calls = Calls()
    runner = log_saving_runner.LogSavingRunner(calls, calls.save_log)
    runner.call("instance_list", ["n1"], (["fake"], {}))
    runner.call("instance_start", ["n1"], lambda _node: ())
    runner.call_one("instance_info", "n1", "web1", "fake", {})
    runner.call_one("blockdev_remove", "n1", {})
    log_saving_runner.at(lambda _targets: calls, calls.save_log)([]).call(
        "version", ["n2"]
    )
    log_saving_runner.at(lambda _targets: calls, calls.save_log)([]).call(
        "unknown", ["n2"]
    )
    assert calls.events == [
        "instance_list",
        *("save", "instance_start"),
        "instance_info",
        *("save", "blockdev_remove"),
        "version",
        *("save", "unknown"),
    ]

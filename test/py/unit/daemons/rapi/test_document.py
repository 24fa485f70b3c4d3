"""The OpenAPI document that a process of its own makes."""

from ganeti.base.process import RunResult, SystemRunner
from ganeti.daemons.rapi import document, openapi


class Counting:
    """The real runner, or one whose commands fail; counts them."""

    def __init__(self):
        self.count = 0
        self.fails = False

    def run_bounded(self, argv, **limits):
        self.count += 1
        if self.fails:
            return RunResult(tuple(argv), 1, None, "", "why")
        return SystemRunner().run_bounded(argv, **limits)


def test_another_process_makes_the_text_once():
    runner = Counting()
    made = document.Document(lambda: runner)
    assert made() == openapi.encoded()
    assert made() == openapi.encoded()
    assert runner.count == 1


def test_without_that_process_the_daemon_makes_it(monkeypatch, caplog):
    runner = Counting()
    runner.fails = True
    assert document.Document(lambda: runner)() == openapi.encoded()
    assert "costs memory: exited with code 1: why" in caplog.text
    monkeypatch.setattr(document.sys, "executable", "/none")
    assert document.Document(SystemRunner)() == openapi.encoded()
    assert "/none" in caplog.text

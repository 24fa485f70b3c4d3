"""The settings of the cluster that the remote API follows."""

import pytest

from fakes.clocks import FakeClock
from ganeti.base import errors
from ganeti.daemons.rapi.settings import Settings


class Master:
    """Answers `QueryClusterInfo`, or raises ``down``."""

    def __init__(self):
        self.info, self.down, self.calls = {}, None, 0

    def call(self, method, args=(), *, timeout_s=None):
        assert (method, args) == ("QueryClusterInfo", ())
        assert timeout_s == 5
        self.calls += 1
        if self.down is not None:
            raise self.down
        return self.info


@pytest.fixture
def master():
    return Master()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def settings(master, clock):
    return Settings(master, clock)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_setting_of_the_cluster_counts_within_seconds(
    settings, master, clock, wanted
):
    master.info["rapi_require_authentication"] = wanted
    assert settings.requires_authentication() is wanted
    master.info["rapi_require_authentication"] = not wanted
    assert settings.requires_authentication() is wanted
    assert master.calls == 1
    clock.now += 5
    assert settings.requires_authentication() is not wanted


def test_a_master_daemon_of_an_earlier_release_goes_on_as_it_was(settings):
    assert settings.requires_authentication() is False


def test_nothing_is_open_before_the_master_daemon_has_answered(settings, master, clock):
    master.down = errors.NoMasterError("/socket")
    assert settings.requires_authentication() is True
    master.down = None
    assert settings.requires_authentication() is True
    clock.now += 5
    assert settings.requires_authentication() is False
    master.down = errors.LuxiTimeoutError("no answer")
    clock.now += 5
    assert settings.requires_authentication() is False

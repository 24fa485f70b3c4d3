"""Users that emulators run as: who is known, and who comes from the pool."""

import os
import pathlib
import pwd

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.node import hypervisor
from ganeti.node.hypervisor.kvm import launch
from ganeti.node.hypervisor.kvm.files import Files

NOBODY = pwd.getpwnam("nobody")
POOL = {"security_model": "pool"}


@pytest.fixture
def effects(tmp_path):
    paths = Paths(str(tmp_path / "n1"), "n1")
    os.makedirs(paths.data_dir)
    pathlib.Path(paths.data("ssconf_uid_pool")).write_text(f"{NOBODY.pw_uid}\n")
    # Nobody runs under any user.
    return hypervisor.NodeEffects(paths, FakeRunner(pgrep=(1, "", "")), SystemClock())


@pytest.fixture
def guest(effects):
    made = Files(effects.paths, "web1")
    os.makedirs(os.path.dirname(made.uid))
    return made


def taken(effects):
    return os.listdir(f"{effects.paths.run_dir}/uid-pool")


def test_a_user_of_the_pool_is_the_guests_until_it_is_given_back(effects, guest):
    with launch.emulator_user(effects, guest, POOL) as name:
        assert name == NOBODY.pw_name
    assert pathlib.Path(guest.uid).read_text() == str(NOBODY.pw_uid)
    assert taken(effects) == [str(NOBODY.pw_uid)]
    launch.release_user(guest)
    assert taken(effects) == []
    assert not os.path.exists(guest.uid)
    launch.release_user(guest)


def test_a_start_that_fails_gives_the_user_back(effects, guest):
    with pytest.raises(ZeroDivisionError), launch.emulator_user(effects, guest, POOL):
        raise ZeroDivisionError
    assert taken(effects) == []
    assert not os.path.exists(guest.uid)


def test_an_empty_pool_is_reported_with_the_guests_name(effects, guest):
    pathlib.Path(effects.paths.data("ssconf_uid_pool")).write_text("")
    with (
        pytest.raises(
            errors.HypervisorError, match="web1: cannot get a user of the pool"
        ),
        launch.emulator_user(effects, guest, POOL),
    ):
        pass


def test_given_users_and_none(effects, guest):
    with launch.emulator_user(
        effects, guest, {"security_model": "user", "security_domain": "nobody"}
    ) as name:
        assert name == "nobody"
    with launch.emulator_user(effects, guest, {"security_model": "none"}) as name:
        assert name is None
    with (
        pytest.raises(
            errors.HypervisorError, match="user 'nosuchuser' of the emulator"
        ),
        launch.emulator_user(
            effects, guest, {"security_model": "user", "security_domain": "nosuchuser"}
        ),
    ):
        pass

"""Users that emulators run as: who is known, and who comes from the pool."""

import os
import pathlib
import pwd

import pytest

from fakes.processes import FakeRunner
from ganeti import errors, hypervisor
from ganeti.clock import SystemClock
from ganeti.hypervisor.kvm import security
from ganeti.hypervisor.kvm.files import Files
from ganeti.pathutils import Paths

NOBODY = pwd.getpwnam("nobody")
POOL = {"security_model": "pool"}


@pytest.fixture
def doors(tmp_path):
    paths = Paths(str(tmp_path / "n1"), "n1")
    os.makedirs(paths.data_dir)
    pathlib.Path(paths.data("ssconf_uid_pool")).write_text(f"{NOBODY.pw_uid}\n")
    # Nobody runs under any user.
    return hypervisor.Doors(paths, FakeRunner(pgrep=(1, "", "")), SystemClock())


@pytest.fixture
def guest(doors):
    made = Files(doors.paths, "web1")
    os.makedirs(os.path.dirname(made.uid))
    return made


def taken(doors):
    return os.listdir(f"{doors.paths.run_dir}/uid-pool")


def test_a_user_of_the_pool_is_the_guests_until_it_is_given_back(doors, guest):
    with security.user(doors, guest, POOL) as name:
        assert name == NOBODY.pw_name
    assert pathlib.Path(guest.uid).read_text() == str(NOBODY.pw_uid)
    assert taken(doors) == [str(NOBODY.pw_uid)]
    security.release(guest)
    assert taken(doors) == []
    assert not os.path.exists(guest.uid)
    security.release(guest)


def test_a_start_that_fails_gives_the_user_back(doors, guest):
    with pytest.raises(ZeroDivisionError), security.user(doors, guest, POOL):
        raise ZeroDivisionError
    assert taken(doors) == []
    assert not os.path.exists(guest.uid)


def test_an_empty_pool_is_told_with_the_guests_name(doors, guest):
    pathlib.Path(doors.paths.data("ssconf_uid_pool")).write_text("")
    with (
        pytest.raises(errors.HypervisorError, match="web1: no user of the pool"),
        security.user(doors, guest, POOL),
    ):
        pass


def test_given_users_and_none(doors, guest):
    with security.user(
        doors, guest, {"security_model": "user", "security_domain": "nobody"}
    ) as name:
        assert name == "nobody"
    with security.user(doors, guest, {"security_model": "none"}) as name:
        assert name is None
    with (
        pytest.raises(errors.HypervisorError, match="no user 'nosuchuser'"),
        security.user(
            doors, guest, {"security_model": "user", "security_domain": "nosuchuser"}
        ),
    ):
        pass

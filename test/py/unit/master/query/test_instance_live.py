"""The displayed status of an instance, over the whole table."""

import itertools

import pytest

from ganeti.base.constants import instance as c
from ganeti.master.query import instance_status
from ganeti.master.query.instance_live import ObservedState

ADMIN = ("up", "down", "offline")
FLAGS = (False, True)


def status(seen, admin, *, user=False, enabled=False, guest=False, **more):
    return instance_status(
        seen,
        admin,
        is_user_source=user,
        user_shutdown=enabled,
        guest_may_shut_down=guest,
        **more,
    )


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (ObservedState.NODE_OFFLINE, "ERROR_nodeoffline"),
        (ObservedState.NODE_DOWN, "ERROR_nodedown"),
        (ObservedState.ELSEWHERE, "ERROR_wrongnode"),
    ],
)
def test_where_it_is_beats_what_is_wanted(seen, word):
    for admin, user, enabled, guest in itertools.product(ADMIN, FLAGS, FLAGS, FLAGS):
        actual = status(seen, admin, user=user, enabled=enabled, guest=guest)
        assert actual == word


@pytest.mark.parametrize(
    ("seen", "admin", "user", "enabled", "guest", "word"),
    [
        (ObservedState.RUNNING, "up", None, None, None, "running"),
        (ObservedState.RUNNING, "down", None, None, None, "ERROR_up"),
        (ObservedState.RUNNING, "offline", None, None, None, "ERROR_up"),
        (ObservedState.SHUTDOWN, "up", None, True, True, "USER_down"),
        (ObservedState.SHUTDOWN, "up", None, False, None, "ERROR_down"),
        (ObservedState.SHUTDOWN, "up", None, None, False, "ERROR_down"),
        (ObservedState.SHUTDOWN, "down", None, None, None, "ADMIN_down"),
        (ObservedState.SHUTDOWN, "offline", None, None, None, "ADMIN_down"),
        (ObservedState.ABSENT, "up", None, None, None, "ERROR_down"),
        (ObservedState.ABSENT, "down", True, True, None, "USER_down"),
        (ObservedState.ABSENT, "down", False, None, None, "ADMIN_down"),
        (ObservedState.ABSENT, "down", None, False, None, "ADMIN_down"),
        (ObservedState.ABSENT, "offline", None, None, None, "ADMIN_offline"),
    ],
)
def test_table(seen, admin, user, enabled, guest, word):
    choices = [
        (value,) if value is not None else FLAGS for value in (user, enabled, guest)
    ]
    for one, two, three in itertools.product(*choices):
        assert status(seen, admin, user=one, enabled=two, guest=three) == word


def test_every_word_can_be_reached():
    actual = {
        status(seen, admin, user=a, enabled=b, guest=g)
        for seen, admin, a, b, g in itertools.product(
            ObservedState, ADMIN, FLAGS, FLAGS, FLAGS
        )
    }
    assert actual == {
        value for name, value in vars(c).items() if name.startswith("INSTST_")
    }


def test_an_instance_with_an_unfinished_creation_is_not_just_stopped():
    assert status(ObservedState.ABSENT, "down", is_unfinished=True) == "ERROR_down"
    assert status(ObservedState.ABSENT, "up", is_unfinished=True) == "ERROR_down"
    assert status(ObservedState.RUNNING, "up", is_unfinished=True) == "running"

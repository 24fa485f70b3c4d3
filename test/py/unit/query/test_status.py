"""The displayed status of an instance, over the whole table."""

import itertools

import pytest

from ganeti.constants import instance as c
from ganeti.query import instance_status
from ganeti.query.status import Seen

ADMIN = ("up", "down", "offline")
FLAGS = (False, True)


def status(seen, admin, *, user=False, enabled=False, guest=False):
    return instance_status(
        seen,
        admin,
        is_user_source=user,
        user_shutdown=enabled,
        guest_may_shut_down=guest,
    )


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (Seen.NODE_OFFLINE, "ERROR_nodeoffline"),
        (Seen.NODE_DOWN, "ERROR_nodedown"),
        (Seen.ELSEWHERE, "ERROR_wrongnode"),
    ],
)
def test_where_it_is_beats_what_is_wanted(seen, word):
    for admin, user, enabled, guest in itertools.product(ADMIN, FLAGS, FLAGS, FLAGS):
        found = status(seen, admin, user=user, enabled=enabled, guest=guest)
        assert found == word


@pytest.mark.parametrize(
    ("seen", "admin", "user", "enabled", "guest", "word"),
    [
        (Seen.RUNNING, "up", None, None, None, "running"),
        (Seen.RUNNING, "down", None, None, None, "ERROR_up"),
        (Seen.RUNNING, "offline", None, None, None, "ERROR_up"),
        (Seen.SHUTDOWN, "up", None, True, True, "USER_down"),
        (Seen.SHUTDOWN, "up", None, False, None, "ERROR_down"),
        (Seen.SHUTDOWN, "up", None, None, False, "ERROR_down"),
        (Seen.SHUTDOWN, "down", None, None, None, "ADMIN_down"),
        (Seen.SHUTDOWN, "offline", None, None, None, "ADMIN_down"),
        (Seen.ABSENT, "up", None, None, None, "ERROR_down"),
        (Seen.ABSENT, "down", True, True, None, "USER_down"),
        (Seen.ABSENT, "down", False, None, None, "ADMIN_down"),
        (Seen.ABSENT, "down", None, False, None, "ADMIN_down"),
        (Seen.ABSENT, "offline", None, None, None, "ADMIN_offline"),
    ],
)
def test_table(seen, admin, user, enabled, guest, word):
    choices = [
        (value,) if value is not None else FLAGS for value in (user, enabled, guest)
    ]
    for one, two, three in itertools.product(*choices):
        assert status(seen, admin, user=one, enabled=two, guest=three) == word


def test_every_word_can_be_reached():
    found = {
        status(seen, admin, user=a, enabled=b, guest=g)
        for seen, admin, a, b, g in itertools.product(Seen, ADMIN, FLAGS, FLAGS, FLAGS)
    }
    assert found == set(c.INSTST_ALL)

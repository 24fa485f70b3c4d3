"""Credentials of requests, and the limits of wrong ones."""

import base64

import pytest

from fakes.clocks import FakeClock
from ganeti.daemons.rapi import authentication, users
from ganeti.daemons.rapi.problems import Refused

TEXT = f"ann secret write\nbob {users.format_scrypt('other', bytes(16))}\n"
TEXT += f"ci {users.format_token('t' * 40)} read\nold {users.format_token('u' * 40, 1_700_000_100)}\n"
A, B = "192.0.2.1", "192.0.2.2"


def basic(name, password):
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def authenticator(clock):
    return authentication.Authenticator(clock, users.parse(TEXT))


@pytest.fixture
def quick(clock):
    """Users without hashes that take long to verify."""
    lines = [line for line in TEXT.splitlines() if "SCRYPT" not in line]
    return authentication.Authenticator(clock, users.parse("\n".join(lines)))


def status(authenticator, header, address=A):
    try:
        user = authenticator.authenticate(header, address)
    except Refused as err:
        return err.status
    return user.name if user else None


def test_right_credentials_return_their_user(authenticator):
    assert status(authenticator, basic("ann", "secret")) == "ann"
    assert status(authenticator, basic("bob", "other")) == "bob"
    assert status(authenticator, "Bearer " + "t" * 40) == "ci"
    assert status(authenticator, None) is None


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (basic("ann", "wrong"), 401),
        (basic("ann", ""), 401),
        (basic("nobody", "secret"), 401),
        (basic("ci", "t" * 40), 401),
        ("Bearer " + "x" * 40, 401),
        ("Bearer", 401),
        ("Digest x", 401),
        ("Basic !!!", 400),
        ("Basic " + base64.b64encode(b"ann").decode(), 400),
        ("Basic " + base64.b64encode(b"\xff:x").decode(), 400),
        ("Basic " + "A" * 5000, 400),
    ],
)
def test_other_credentials_are_refused(authenticator, header, wanted):
    assert status(authenticator, header) == wanted


def test_a_refusal_has_the_documented_challenge(authenticator):
    with pytest.raises(Refused) as caught:
        authenticator.authenticate(basic("ann", "wrong"), A)
    assert caught.value.headers == {
        "WWW-Authenticate": 'Basic realm="Ganeti Remote API"'
    }


def test_a_token_expires(clock, authenticator):
    assert status(authenticator, "Bearer " + "u" * 40) == "old"
    clock.now += 100
    assert status(authenticator, "Bearer " + "u" * 40) == 401


def test_guesses_are_throttled_per_user_and_address(clock, quick):
    assert [status(quick, basic("ann", f"x{k}")) for k in range(11)] == [401] * 10 + [
        429
    ]
    assert status(quick, basic("ann", "secret")) == 429
    assert status(quick, basic("ann", "secret"), B) == "ann"
    with pytest.raises(Refused) as caught:
        quick.authenticate(basic("ann", "x"), A)
    assert int(caught.value.headers["Retry-After"]) >= 1
    clock.now += 10.5
    assert status(quick, basic("ann", "secret")) == "ann"


def test_guesses_of_many_names_are_throttled_per_address(quick):
    actual = [status(quick, basic(f"user{k}", "x")) for k in range(40)]
    assert actual.count(401) == 30
    assert set(actual[30:]) == {429}
    assert status(quick, "Bearer " + "x" * 40) == 429


def test_guesses_from_a_shared_address_lock_no_token_out(quick):
    for k in range(31):
        status(quick, "Bearer " + f"{k:040d}")
    assert status(quick, "Bearer " + "x" * 40) == 429
    assert status(quick, "Bearer " + "t" * 40) == "ci"


def test_a_client_that_is_known_is_not_locked_out_by_guesses(quick):
    assert status(quick, basic("ann", "secret")) == "ann"
    for k in range(50):
        status(quick, basic("ann", f"x{k}"))
    assert status(quick, basic("ann", "secret")) == "ann"


def test_a_new_file_forgets_old_passwords(authenticator):
    assert status(authenticator, basic("ann", "secret")) == "ann"
    authenticator.replace(users.parse("ann changed write\n"))
    assert status(authenticator, basic("ann", "secret")) == 401
    assert status(authenticator, basic("ann", "changed")) == "ann"
    authenticator.replace(users.Users())
    assert status(authenticator, basic("ann", "changed")) == 401


def test_a_password_is_verified_once(authenticator, monkeypatch):
    real, calls = users.is_password, []

    def counted(*args, **options):
        calls.append(args)
        return real(*args, **options)

    monkeypatch.setattr(users, "is_password", counted)
    for _ in range(3):
        assert status(authenticator, basic("bob", "other")) == "bob"
    assert len(calls) == 1


def test_changes_are_limited_per_user(clock, authenticator):
    for _ in range(2000):
        authenticator.check_rate("ann")
    with pytest.raises(Refused) as caught:
        authenticator.check_rate("ann")
    assert caught.value.status == 429
    authenticator.check_rate("bob")
    clock.now += 1.0
    authenticator.check_rate("ann")


def test_buckets_are_forgotten_in_order_of_use():
    buckets = authentication.Buckets(1, 1.0, keys=2)
    for key in "aba":
        buckets.take(key, 0.0)
    buckets.take("c", 0.0)
    assert buckets.wait_s("b", 0.0) == 0
    assert buckets.wait_s("a", 0.0) == 1

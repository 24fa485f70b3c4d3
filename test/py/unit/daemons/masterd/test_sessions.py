"""Sessions in the master daemon: how long they last, what is stored, who is shut out."""

import msgspec
import pytest

from fakes import clusters
from fakes.patience import Background, until
from fakes.store import FakeStore
from ganeti.base import errors
from ganeti.daemons.masterd import sessions
from ganeti.decisions.sessions import MOST_OF_USER, WRITE_S, SignIn

DIGEST = "{:064x}"
HOUR = 3600


class Clocks:
    """A clock on the wall, which people set, and one that only goes on."""

    def __init__(self):
        self.wall, self.moment = 1_700_000_000.0, 50.0

    def time(self):
        return self.wall

    def monotonic(self):
        return self.moment

    def pass_s(self, seconds):
        self.wall += seconds
        self.moment += seconds


class CountingStore(FakeStore):
    """Counts commits, and can refuse them."""

    def __init__(self):
        super().__init__(clusters.snapshot())
        self.commits, self.error = 0, None

    def commit_soon(self, changes, done=None, *, wait_s=0.0):
        self.commits += 1
        if self.error:
            done(0, self.error)
        else:
            super().commit_soon(changes, done)

    def stored(self):
        return [data for _key, data in self.scan("meta", "session/")]


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
def store():
    return CountingStore()


@pytest.fixture
def keeper(store, clocks):
    return sessions.Keeper(store, clocks)


def new(number=1, user="jack", **more):
    digest = DIGEST.format(number)
    fields = {"token_digest": digest, "token_seal": digest, "address": "192.0.2.9"}
    return SignIn(user=user, **fields, **more)


def goes_on(keeper, number=1):
    return keeper.use(DIGEST.format(number)) is not None


def test_a_session_is_found_by_the_digest_of_its_token(keeper, clocks):
    shown = keeper.open(new())
    session = keeper.use(DIGEST.format(1))
    assert (session.id, session.user, session.seal) == (
        shown.id,
        "jack",
        DIGEST.format(1),
    )
    assert (shown.idle_end, shown.end) == (clocks.wall + 1800, clocks.wall + 12 * HOUR)
    assert not goes_on(keeper, 2)
    assert keeper.shown() == keeper.shown("jack") == [shown]
    assert keeper.shown("ann") == []


def test_requests_keep_it_up_to_its_end(keeper, clocks):
    keeper.open(new())
    keeper.open(new(2))
    for _ in range(24):
        assert goes_on(keeper)
        clocks.pass_s(1795)
    assert goes_on(keeper)
    assert not goes_on(keeper, 2)
    clocks.pass_s(120)
    assert not goes_on(keeper)
    assert keeper.shown() == []


def test_to_ask_whether_it_goes_on_is_no_use_of_it(keeper, clocks):
    session = keeper.open(new()).id
    clocks.pass_s(1000)
    assert keeper.living([session, "x"]) == [session]
    clocks.pass_s(800)
    assert keeper.living([session]) == []


def test_the_end_of_a_user_s_token_ends_it(keeper, clocks):
    assert keeper.open(new(user_end=clocks.wall + 90)).end == clocks.wall + 90
    keeper.open(new(2, user_end=clocks.wall - 1))
    assert not goes_on(keeper, 2)
    clocks.pass_s(91)
    assert not goes_on(keeper)


@pytest.mark.parametrize("step", [-10 * 365 * 86400, 10 * 365 * 86400])
def test_a_clock_that_is_set_makes_none_longer(keeper, store, clocks, step):
    keeper.open(new())
    keeper.open(new(2))
    clocks.wall += step
    assert goes_on(keeper) is (step < 0)
    # Also not by a master that begins then.
    other = sessions.Keeper(store, clocks)
    assert goes_on(other, 2) is (step < 0)
    # However often they are used.
    for _ in range(26):
        clocks.pass_s(HOUR / 2)
        goes_on(keeper), goes_on(other, 2)
    assert not goes_on(keeper)
    assert not goes_on(other, 2)


def test_another_master_goes_on_with_what_was_written_some_minutes_ago(
    keeper, store, clocks
):
    keeper.open(new())
    clocks.pass_s(1799)
    assert goes_on(keeper)
    clocks.pass_s(200)
    other = sessions.Keeper(store, clocks)
    assert goes_on(other)
    assert other.shown()[0].end == keeper.shown()[0].end


def test_requests_cost_no_commit_but_one_within_some_minutes(keeper, store, clocks):
    for number in range(20):
        keeper.open(new(number))
    before = store.commits
    for _ in range(30):
        clocks.pass_s(WRITE_S / 10)
        assert all(goes_on(keeper, number) for number in range(20))
    assert store.commits - before == 3
    used = [msgspec.json.decode(data)["used"] for data in store.stored()]
    assert max(used) - min(used) < WRITE_S
    assert min(used) > clocks.wall - WRITE_S


def test_what_is_over_is_not_stored_any_more(keeper, store, clocks):
    keeper.open(new())
    clocks.pass_s(1801)
    keeper.open(new(2))
    assert len(store.stored()) == 1


def test_a_user_s_next_session_ends_the_one_that_was_not_used_longest(keeper, clocks):
    for number in range(MOST_OF_USER):
        keeper.open(new(number))
        clocks.pass_s(1)
    keeper.open(new(1000, "ann"))
    assert goes_on(keeper, 0)
    keeper.open(new(2000))
    assert not goes_on(keeper, 1)
    assert all(goes_on(keeper, number) for number in (0, 2, 1000, 2000))
    assert len(keeper.shown("jack")) == MOST_OF_USER


def test_all_users_have_a_limited_number(keeper, monkeypatch):
    monkeypatch.setattr(sessions.sessions, "MOST", 3)
    for number in range(3):
        keeper.open(new(number, f"user{number}"))
    with pytest.raises(errors.OpPrereqError, match="wanted fewer than 3, found 3"):
        keeper.open(new(4, "ann"))
    assert goes_on(keeper, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        new(idle_s=59),
        new(idle_s=86401),
        new(age_s=299),
        new(age_s=31 * 86400),
        new(user=""),
        new(user="x" * 201),
        msgspec.structs.replace(new(), token_digest="00"),
        msgspec.structs.replace(new(), token_seal=""),
    ],
)
def test_odd_sessions_are_refused(keeper, store, wrong):
    with pytest.raises(errors.OpPrereqError, match="wanted"):
        keeper.open(wrong)
    assert (keeper.shown(), store.commits) == ([], 0)


def test_revoked_sessions_end_at_once(keeper, store):
    ids = [
        keeper.open(new(n, user)).id for n, user in enumerate(["jack", "jack", "ann"])
    ]
    assert [each.id for each in keeper.revoke(ids=ids[:1]).result()] == ids[:1]
    assert not goes_on(keeper, 0)
    assert keeper.revoke(ids=[ids[1]], users={"ann"}).result() == []
    assert goes_on(keeper, 1)
    keeper.revoke(users={"jack", "ann"})
    assert keeper.shown() == store.stored() == []
    # Nothing to do is no commit.
    before = store.commits
    assert keeper.revoke(users={"jack"}).result() == []
    assert store.commits == before


def test_a_session_that_cannot_be_stored_does_not_count(keeper, store):
    store.error = errors.StorageError("no majority")
    with pytest.raises(errors.StorageError):
        keeper.open(new())
    assert not goes_on(keeper)
    store.error = None
    session = keeper.open(new()).id
    # An end counts here, and whoever asked for it learns that it is not durable.
    store.error = errors.StorageError("no majority")
    with pytest.raises(errors.StorageError):
        keeper.revoke(ids=[session]).result()
    assert not goes_on(keeper)


def test_a_session_does_not_count_before_it_is_durable(keeper, store):
    asked = []
    store.commit_soon = lambda _changes, done, wait_s: asked.append(done)
    with Background([lambda: keeper.open(new())]):
        until("it is written", lambda: asked)
        before = goes_on(keeper), keeper.shown()
        asked[0](1, None)
    assert before == (False, [])
    assert goes_on(keeper)


def test_a_row_that_cannot_be_read_ends_no_other(store, clocks):
    first = sessions.Keeper(store, clocks)
    first.open(new())
    store.documents["meta", "session/zz"] = b"{}"
    store.documents["meta", "session/zy"] = b"\xff"
    assert goes_on(sessions.Keeper(store, clocks))


def test_nothing_stored_is_a_token(keeper, store):
    keeper.open(new())
    (data,) = store.stored()
    assert set(msgspec.json.decode(data)) == {
        *("id", "user", "digest", "seal", "address", "created", "used", "idle_s", "end")
    }

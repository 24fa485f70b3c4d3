"""The pool's text form, and leases of ids."""

import fcntl
import json
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.protocols import uidpool

ranges = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)).map(
        lambda pair: (min(pair), max(pair))
    )
)


@pytest.fixture
def paths(tmp_path):
    return Paths(root=str(tmp_path / "n1"), hostname="n1")


def runner(*busy):
    def pgrep(argv):
        return (0, "77\n", "") if int(argv[2]) in busy else (1, "", "")

    return FakeRunner(pgrep=pgrep)


def files(paths):
    return sorted(os.listdir(f"{paths.run_dir}/uid-pool"))


def test_texts():
    assert uidpool.ParseUidPool("9100, 8000-8019,") == [(8000, 8019), (9100, 9100)]
    assert uidpool.ParseUidPool("1\n3-4", separator="\n") == [(1, 1), (3, 4)]
    assert uidpool.ParseUidPool("") == []
    assert uidpool.ExpandUidPool([(1, 3), (3, 3)]) == {1, 2, 3}


@given(ranges)
def test_a_formatted_pool_is_read_again(pool):
    assert uidpool.ParseUidPool(uidpool.format_pool(pool)) == sorted(pool)


@pytest.mark.parametrize("text", ["x", "1-2-3", "5-4", "-1", "1-4294967296", "1-"])
def test_wrong_texts_are_refused(text):
    with pytest.raises(errors.OpPrereqError):
        uidpool.ParseUidPool(text)


def test_adding_and_removing_is_literal():
    pool = uidpool.add_ranges([(5, 9)], [(5, 9), (1, 2)])
    assert pool == [(1, 2), (5, 9)]
    assert uidpool.remove_ranges(pool, [(1, 2)]) == [(5, 9)]
    with pytest.raises(errors.OpPrereqError, match="5-6"):
        uidpool.remove_ranges(pool, [(5, 6)])


def test_an_id_in_use_by_a_process_is_not_handed_out(paths):
    for _ in range(5):
        uid = uidpool.RequestUnusedUid({1, 2, 3}, paths=paths, runner=runner(1, 3))
        assert int(uid) == 2
        uid.Unlock()


def test_a_locked_id_is_not_handed_out_twice_even_in_one_process(paths):
    first = uidpool.RequestUnusedUid({1, 2}, paths=paths, runner=runner())
    second = uidpool.RequestUnusedUid({1, 2}, paths=paths, runner=runner())
    assert {int(first), int(second)} == {1, 2}
    with pytest.raises(errors.LockError, match="no free user id"):
        uidpool.RequestUnusedUid({1, 2}, paths=paths, runner=runner())
    first.Unlock()
    again = uidpool.RequestUnusedUid({1, 2}, paths=paths, runner=runner())
    assert int(again) == int(first)
    for uid in (second, again):
        uid.Unlock()


def test_other_programs_posix_locks_count(paths):
    uid = uidpool.RequestUnusedUid({1}, paths=paths, runner=runner())
    with open(f"{paths.run_dir}/uid-pool/1", "r+") as stream:
        with pytest.raises(BlockingIOError):
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        uid.Unlock()
        fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(errors.LockError):
            uidpool.RequestUnusedUid({1}, paths=paths, runner=runner())


def test_marked_ids_come_last_but_come(paths):
    marked = uidpool.RequestUnusedUid({1}, paths=paths, runner=runner())
    marked.Unlock()
    fresh = uidpool.RequestUnusedUid({1, 2}, paths=paths, runner=runner())
    assert int(fresh) == 2
    assert int(uidpool.RequestUnusedUid({1, 2}, paths=paths, runner=runner())) == 1


def test_releasing_forgets_the_mark(paths):
    uid = uidpool.RequestUnusedUid({1}, paths=paths, runner=runner())
    uidpool.ReleaseUid(uid, paths=paths)
    assert files(paths) == []
    with pytest.raises(errors.LockError):
        uidpool.ReleaseUid(1, paths=paths)


def test_the_convenience_call_keeps_or_gives_back(paths):
    def good(word, uid):
        return word, int(uid)

    def bad(uid):
        raise RuntimeError(str(uid))

    result = uidpool.ExecWithUnusedUid(good, {5}, "word", paths=paths, runner=runner())
    assert result == ("word", 5)
    assert files(paths) == ["5"]
    uidpool.ReleaseUid(5, paths=paths)
    with pytest.raises(RuntimeError, match="5"):
        uidpool.ExecWithUnusedUid(bad, {5}, paths=paths, runner=runner())
    assert files(paths) == []


def test_other_code_takes_a_leased_id_where_it_puts_a_uid(paths):
    # This process may always become the user that it is.
    own = os.getuid()

    def spawn(uid):
        id_ = subprocess.run(["id", "-u"], user=uid, capture_output=True, check=True)
        os.setuid(uid)
        return int(id_.stdout)

    uid = uidpool.ExecWithUnusedUid(spawn, {own}, paths=paths, runner=runner())
    assert uid == own
    uid = uidpool.RequestUnusedUid({own}, paths=paths, runner=runner())
    assert (uid.GetUid(), type(uid.GetUid())) == (own, int)
    assert uid.AsStr() == str(uid) == f"{uid}" == json.dumps(uid) == str(own)
    uid.Unlock()


def test_trouble_with_pgrep_is_no_free_id(paths):
    broken = FakeRunner(pgrep=(3, "", "out of memory"))
    with pytest.raises(errors.LockError, match="out of memory"):
        uidpool.RequestUnusedUid({1}, paths=paths, runner=broken)

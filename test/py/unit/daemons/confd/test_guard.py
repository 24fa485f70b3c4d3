"""Counters, the limit of replies, and the replay cache."""

from ganeti.daemons.confd import guard


def test_counters_name_the_reasons():
    counters = guard.Counters()
    counters.answered = 3
    counters.dropped["magic"] = 2
    counters.dropped["clock"] = 1
    assert counters.as_text() == ("answered 3, dropped 3 (magic 2, clock 1), reloads 0")


def test_replies_are_limited_per_second_in_number_and_size():
    limit = guard.ReplyLimit(replies=2, size=100)
    assert [limit.admits(10, 5.0 + k / 10) for k in range(3)] == [True, True, False]
    assert [limit.admits(60, 6.1), limit.admits(60, 6.2), limit.admits(40, 6.3)] == [
        True,
        False,
        True,
    ]
    assert limit.admits(100, 7.0)
    assert not limit.admits(101, 8.0)


def test_a_salt_counts_as_new_once_within_the_window():
    cache = guard.ReplayCache(10.0)
    assert cache.is_new("a", 0.0)
    assert not cache.is_new("a", 10.0)
    assert cache.is_new("a", 10.1)


def test_the_cache_is_bounded():
    cache = guard.ReplayCache(1000.0, size=3)
    assert all(cache.is_new(str(number), 0.0) for number in range(5))
    assert [cache.is_new(str(number), 1.0) for number in (4, 3, 2)] == [False] * 3
    assert cache.is_new("0", 1.0)

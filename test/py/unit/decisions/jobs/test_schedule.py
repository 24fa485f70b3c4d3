from ganeti.decisions.jobs import schedule


def test_the_table_grows_as_documented():
    table = schedule.LIMITS_S
    assert [round(x, 2) for x in table[:6]] == [5, 7.95, 14.18, 29.25, 72.31, 75]
    assert len(table) == 28
    assert sum(table) >= 1800 > sum(table[:-1])


def test_limits_vary_by_five_percent():
    attempt = schedule.Attempt(0, 0)
    assert attempt.limit_s(0) == 4.75
    assert attempt.limit_s(0.5) == 5
    assert attempt.limit_s(1) == 5.25


def test_a_used_up_table_makes_more_urgent_and_ends_without_limit():
    attempt = schedule.Attempt(0, 0)
    count = 0
    while attempt.place is not None:
        attempt = schedule.next_attempt(attempt)
        count += 1
    assert count == 28 * 21
    assert attempt == (None, -20)
    assert attempt.limit_s(0.3) is None
    assert schedule.next_attempt(attempt) == attempt

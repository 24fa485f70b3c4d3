"""Times that are left, as an operation prints them."""

import pytest

from ganeti.operations.instance.disks import mirrors


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59.4, "59s"),
        (59.6, "1m 0s"),
        (125, "2m 5s"),
        (3600, "1h 0m 0s"),
        (3660, "1h 1m 0s"),
        (90_061, "25h 1m 1s"),
    ],
)
def test_a_time_is_printed_in_its_units(seconds, text):
    assert mirrors._span(seconds) == text

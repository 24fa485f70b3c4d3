"""Metrics of the data of collectors, which `mond_agent` writes for Prometheus."""

from collections.abc import Iterable
from typing import NamedTuple


class Family(NamedTuple):
    """The values of one metric.

    Attributes:
        name: of the metric, without the ending of counters.
        text: its help.
        samples: values of labels, in their order, and the value.
        labels: names of labels.
        is_counter: whether the value only grows.
    """

    name: str
    text: str
    samples: Iterable[tuple[tuple[str, ...], float]]
    labels: tuple[str, ...] = ()
    is_counter: bool = False


def single(name: str, text: str, value: float) -> Family:
    """Return a metric without labels."""
    return Family(name, text, [((), value)])

"""Help of programs that parse their options with `argparse`."""

import argparse
from collections.abc import Iterable
from typing import Any


class Formatter(argparse.HelpFormatter):
    """Formatter that begins with ``Usage:``, the spelling that scripts know."""

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[Any],
        prefix: str | None = None,
    ) -> None:
        """Add the usage of the program, after ``Usage: `` unless a prefix is given."""
        super().add_usage(
            usage, actions, groups, "Usage: " if prefix is None else prefix
        )

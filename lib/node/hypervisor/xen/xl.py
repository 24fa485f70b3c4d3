"""Calls of Xen's program ``xl``, each with a limit of its time and its output."""

from typing import Final

from ganeti.base import errors, process
from ganeti.node.hypervisor.base import NodeEffects, check_instance_name, run_bounded
from ganeti.node.hypervisor.xen import listing

PROGRAM: Final = "xl"
#: Seconds for calls that answer immediately.
TIMEOUT_S: Final = 60.0
#: Seconds for the start or end of a guest, with its devices and their scripts.
CHANGE_S: Final = 300.0
_MAX_OUTPUT: Final = 1 << 20
#: Characters of xl's output that an error shows.
_REASON_LENGTH: Final = 500


def domain(name: str) -> str:
    """Return the name of a guest, as xl's argument.

    Raises:
        HypervisorError: xl would take the name for a number of a domain, 0 is the node;
            or for another guest in a migration, so that nobody would see it run.
    """
    if check_instance_name(name).isdigit():
        raise errors.HypervisorError(
            f"instance {name}: Xen needs a name with other characters than digits;"
            " rename the instance"
        )
    if name == listing.NODE or name.endswith((listing.INCOMING, listing.DEPARTING)):
        raise errors.HypervisorError(
            f"instance {name}: Xen needs another name than {listing.NODE}, which does"
            f" not end with {listing.INCOMING} or {listing.DEPARTING}; rename the"
            " instance"
        )
    return name


def run(
    effects: NodeEffects, *words: str, timeout_s: float = TIMEOUT_S
) -> process.RunResult:
    """Run xl; the caller checks the result.

    Raises:
        HypervisorError: xl is not installed.
    """
    return run_bounded(
        effects,
        [PROGRAM, *words],
        timeout_s=timeout_s,
        max_output=_MAX_OUTPUT,
        what="Xen",
    )


def check(
    effects: NodeEffects, what: str, *words: str, timeout_s: float = TIMEOUT_S
) -> str:
    """Run xl, and return its output.

    Args:
        effects: effect interfaces of this node.
        what: beginning of the error, with the object.
        words: command and arguments.
        timeout_s: time limit, in seconds.

    Raises:
        HypervisorError: xl failed.
    """
    result = run(effects, *words, timeout_s=timeout_s)
    if result.failed:
        raise errors.HypervisorError(
            f"{what}: xl {words[0]} {result.reason}: {reason(result)}"
        )
    return result.stdout


def reason(result: process.RunResult) -> str:
    """Return the end of xl's messages in one line."""
    text = " ".join((result.stderr or result.stdout).split())
    return text[-_REASON_LENGTH:] or "no message"

"""The displayed status of an instance: one pure function."""

import enum
from typing import Final

from ganeti.base.constants import instance as constants


class ObservedState(enum.Enum):
    """The state of an instance that the nodes report."""

    #: Its primary node is marked offline.
    NODE_OFFLINE = "node offline"
    #: Its primary node does not answer.
    NODE_DOWN = "node down"
    #: Some other node runs it.
    ELSEWHERE = "elsewhere"
    RUNNING = "running"
    #: The hypervisor knows it, but the guest powered itself down.
    SHUTDOWN = "shut down"
    ABSENT = "absent"


_WHATEVER_WANTED: Final = {
    ObservedState.NODE_OFFLINE: constants.INSTST_NODEOFFLINE,
    ObservedState.NODE_DOWN: constants.INSTST_NODEDOWN,
    ObservedState.ELSEWHERE: constants.INSTST_WRONGNODE,
}


def instance_status(
    observed: ObservedState,
    admin_state: str,
    *,
    is_user_source: bool,
    user_shutdown: bool,
    guest_may_shut_down: bool,
    is_unfinished: bool = False,
) -> str:
    """Return the status word.

    Args:
        observed: state that the nodes report.
        admin_state: the wanted state.
        is_user_source: the wanted state results from the guest's own shutdown.
        user_shutdown: the cluster distinguishes shutdowns by users.
        guest_may_shut_down: also true for this instance (kvm: its ``user_shutdown``
            parameter).
        is_unfinished: its installation did not finish, so it is not well while down.
    """
    if observed in _WHATEVER_WANTED:
        return _WHATEVER_WANTED[observed]
    wanted_up = admin_state == constants.ADMINST_UP
    if observed is ObservedState.RUNNING:
        return constants.INSTST_RUNNING if wanted_up else constants.INSTST_ERRORUP
    if observed is ObservedState.SHUTDOWN:
        if not wanted_up:
            return constants.INSTST_ADMINDOWN
        allowed = user_shutdown and guest_may_shut_down
        return constants.INSTST_USERDOWN if allowed else constants.INSTST_ERRORDOWN
    if wanted_up or is_unfinished:
        return constants.INSTST_ERRORDOWN
    if admin_state == constants.ADMINST_OFFLINE:
        return constants.INSTST_ADMINOFFLINE
    by_user = is_user_source and user_shutdown
    return constants.INSTST_USERDOWN if by_user else constants.INSTST_ADMINDOWN

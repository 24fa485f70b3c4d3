"""The servers of a store: their health, and the removal of a store from them."""

import dataclasses
from typing import Final

import msgspec

from ganeti.base import errors
from ganeti.store.backend import OutcomeUnknownError
from ganeti.store.etcd import messages
from ganeti.store.etcd.address import Servers
from ganeti.store.etcd.gateway import Gateway
from ganeti.store.etcd.layout import Keys
from ganeti.store.etcd.reader import Reader

_STATUS: Final = "maintenance/status"
_ALARM: Final = "maintenance/alarm"
_MAX_TEXT: Final = 200


class _Status(msgspec.Struct, frozen=True, rename={"db_size": "dbSize"}):
    version: str = ""
    db_size: int = 0
    leader: int = 0
    errors: list[str] = []


class _Alarm(msgspec.Struct, frozen=True):
    alarm: str = ""


class _Alarms(msgspec.Struct, frozen=True):
    alarms: list[_Alarm] = []


@dataclasses.dataclass(frozen=True)
class Member:
    """One server.

    Attributes:
        host: its address, as the cluster has it.
        problem: why it cannot be used; empty if it can.
        version: of its software.
        size: bytes of its database.
    """

    host: str
    problem: str
    version: str = ""
    size: int = 0


def check(servers: Servers) -> None:
    """Check that a majority of the servers answers.

    Raises:
        StorageError: it does not; has the reason of each server.
    """
    gateway = Gateway(servers)
    try:
        Reader(gateway).look()
    finally:
        gateway.close()


def members(servers: Servers) -> list[Member]:
    """Return the state of each server, in the order of the address."""
    return [_member(servers, host) for host in servers.hosts]


def _member(servers: Servers, host: str) -> Member:
    gateway = Gateway(dataclasses.replace(servers, hosts=(host,)))
    try:
        status = gateway.call(_STATUS, {}, _Status)
        alarms = gateway.call(_ALARM, {"action": "GET"}, _Alarms).alarms
    except (errors.StorageError, OutcomeUnknownError) as err:
        return Member(host, str(err).removeprefix(f"{gateway.servers}: ")[:_MAX_TEXT])
    finally:
        gateway.close()
    problems = [*status.errors, *(f"alarm {each.alarm}" for each in alarms)]
    if not status.leader:
        problems.append("it knows no leader: no majority of the servers is there")
    text = "; ".join(problems)[:_MAX_TEXT]
    return Member(host, text, status.version[:_MAX_TEXT], status.db_size)


def remove_store(servers: Servers) -> None:
    """Remove all keys of a store; this can be repeated.

    Raises:
        StorageError: no majority of the servers answers.
    """
    gateway = Gateway(servers)
    root = Keys(servers.prefix).root
    body = messages.transaction([], [messages.delete(root, messages.after(root))])
    try:
        gateway.transact(body)
    except OutcomeUnknownError as err:
        raise errors.StorageError(
            f"the store was perhaps not removed: {err}; 'etcdctl del --prefix"
            f" {servers.prefix}/' removes it"
        ) from err
    finally:
        gateway.close()

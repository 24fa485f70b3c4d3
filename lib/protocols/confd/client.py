"""Client library of confd: one question to several master candidates.

A request is signed once and sent to some of the candidates. Replies that are not signed
with the key of the cluster, or that answer another request, do not count. Of the others
the one of the newest configuration is taken.
"""

import dataclasses
import random
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import confd
from ganeti.protocols.confd import wire

#: Seconds.
_CONFD_CLIENT_EXPIRE_TIMEOUT: Final = 10
#: How many candidates a client asks.
_CONFD_DEFAULT_REQ_COVERAGE: Final = 6

#: Peers at which a majority must answer instead of all but one.
_MAJORITY_FROM: Final = 5
_ALL_UP_TO: Final = 2
#: Room for replies of many peers, in bytes.
_BUFFER_BYTES: Final = 1024 * 1024
ALL: Final = -1


@dataclasses.dataclass(frozen=True)
class Result:
    """The replies to one question.

    Attributes:
        reply: of the newest configuration; None if there was no answer in time.
        answered: addresses that answered, in order of their answers.
        is_inconsistent: two peers gave different answers for the same revision.
        is_complete: enough peers have answered, see `needed`.
    """

    reply: wire.Reply | None = None
    answered: tuple[str, ...] = ()
    is_inconsistent: bool = False
    is_complete: bool = False

    @property
    def is_ok(self) -> bool:
        """Whether there is an answer that is not an error."""
        return (
            self.reply is not None and self.reply.status == confd.CONFD_REPL_STATUS_OK
        )


def needed(peers: int) -> int:
    """Return how many of some peers must answer.

    >>> [needed(count) for count in range(1, 8)]
    [1, 2, 2, 3, 3, 4, 4]
    """
    if peers <= _ALL_UP_TO:
        return peers
    return peers - 1 if peers < _MAJORITY_FROM else peers // 2 + 1


def newer(present: Result, reply: wire.Reply) -> Result:
    """Return a result with one more reply.

    An answer wins over an error, a higher serial over a lower one. Two answers of the
    same serial that differ make the result inconsistent.
    """
    old = present.reply
    if old is None:
        return dataclasses.replace(present, reply=reply)
    ranks = [
        (item.status == confd.CONFD_REPL_STATUS_OK, item.serial)
        for item in (old, reply)
    ]
    if ranks[1] > ranks[0]:
        return dataclasses.replace(present, reply=reply, is_inconsistent=False)
    if ranks[1] == ranks[0] and (old.status, old.answer) != (
        reply.status,
        reply.answer,
    ):
        # Errors have no serial, so different ones prove nothing.
        is_answer = ranks[0][0]
        return dataclasses.replace(
            present, is_inconsistent=present.is_inconsistent or is_answer
        )
    return present


class ConfdClient:
    """Asks master candidates. Not thread-safe."""

    def __init__(
        self,
        key: bytes,
        peers: Sequence[str],
        *,
        port: int,
        magic: bytes = wire.MAGIC_SHA1,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Prepare to ask.

        Args:
            key: the whole content of the key file.
            peers: addresses of the master candidates, all of one family.
            port: of confd.
            magic: of the requests; `wire.MAGIC_SHA256` where the servers know it.
            now: seconds since 1970.

        Raises:
            ConfdClientError: there are no peers, or they are of two families.
        """
        if not peers:
            raise errors.ConfdClientError("no addresses of master candidates to ask")
        families = {":" in peer for peer in peers}
        if len(families) > 1:
            raise errors.ConfdClientError(
                "addresses of IPv4 and IPv6 are mixed: " + ", ".join(peers)
            )
        self._family = socket.AF_INET6 if families.pop() else socket.AF_INET
        self._peers = tuple(peers)
        self._port = port
        self._magic = magic
        self._signers = wire.Signers(key, {magic})
        self._now = now

    def ask(
        self,
        kind: int,
        query: Any = None,
        *,
        coverage: int | None = None,
        timeout_s: float = _CONFD_CLIENT_EXPIRE_TIMEOUT,
    ) -> Result:
        """Ask some peers and return the newest answer.

        Returns when enough peers have answered (see `needed`), or at the timeout with
        the answers until then.

        Args:
            kind: type of the query, see `ganeti.base.constants.protocols.confd`.
            query: its search key.
            coverage: number of peers to ask, chosen at random; six or all of fewer if
                None; `ALL` for all.
            timeout_s: seconds.

        Raises:
            ConfdClientError: more peers are wanted than known, or the request is too
                large, or no peer can be reached.
        """
        chosen = self._choose(coverage)
        salt = secrets.token_hex(16)
        request = wire.Query(confd.CONFD_PROTOCOL_VERSION, kind, salt, query)
        data = wire.seal_query(request, self._now(), self._signers, self._magic)
        with socket.socket(self._family, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            self._send(sock, data, chosen)
            return self._collect(sock, salt, chosen, timeout_s)

    def _choose(self, coverage: int | None) -> list[str]:
        known = len(self._peers)
        if coverage is None:
            coverage = min(_CONFD_DEFAULT_REQ_COVERAGE, known)
        elif coverage == ALL:
            coverage = known
        if not 1 <= coverage <= known:
            raise errors.ConfdClientError(
                f"wanted to ask {coverage} master candidates, {known} are known"
            )
        return random.sample(self._peers, coverage)

    def _send(self, sock: socket.socket, data: bytes, chosen: Sequence[str]) -> None:
        failed = []
        for peer in chosen:
            try:
                sock.sendto(data, (peer, self._port))
            except OSError as err:
                failed.append(f"{peer}: {err.strerror}")
        if len(failed) == len(chosen):
            raise errors.ConfdClientError("cannot send: " + "; ".join(failed))

    def _collect(
        self, sock: socket.socket, salt: str, chosen: Sequence[str], timeout_s: float
    ) -> Result:
        result, end = Result(), time.monotonic() + timeout_s
        while len(result.answered) < needed(len(chosen)):
            left = end - time.monotonic()
            if left <= 0:
                return result
            sock.settimeout(left)
            try:
                data, sender = sock.recvfrom(confd.MAX_UDP_DATA_SIZE)
            except TimeoutError:
                return result
            except OSError:
                continue  # A notice that a peer does not listen; others may answer.
            reply = self._opened(data, salt)
            if reply is None or sender[0] in result.answered:
                continue
            result = newer(result, reply)
            answered = (*result.answered, sender[0])
            result = dataclasses.replace(result, answered=answered)
        return dataclasses.replace(result, is_complete=True)

    def _opened(self, data: bytes, salt: str) -> wire.Reply | None:
        """Return a reply to this request, None for anything else."""
        try:
            replied, reply = wire.open_reply(data, self._signers)
        except (wire.Dropped, errors.ConfdMagicError):
            return None
        return reply if replied == salt else None

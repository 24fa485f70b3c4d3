"""Transfer of disk contents to or from another cluster: this cluster's end.

All disks are copied at once, each by a program of its own on the node of this cluster:
the receiving cluster announces all its ports in one message, and each of its programs
waits for its sender for a limited time only. Programs of one transfer have one key; the
removal of the key ends all of them, also one that no master daemon has recorded.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants.protocols import export
from ganeti.operations import base
from ganeti.operations.instance.move import disk_transfer, transfer_watch
from ganeti.operations.trust import domain_secret
from ganeti.protocols.rpc import calls

# Both numbers are Ganeti's.
_RIE_CONNECT_RETRIES: Final = 10
#: Seconds.
_RIE_CONNECT_ATTEMPT_TIMEOUT: Final = 20

#: Seconds until all imports must listen.
_LISTEN_S: Final = disk_transfer.LISTEN_S


class Progress(msgspec.Struct, frozen=True):
    """The state of a transfer whose master daemon ended.

    Attributes:
        key: name of the key on the node; empty if there is none.
        certificate: the certificate of that key, of a receiver.
        started: names of the programs, by disk.
        is_announced: the other cluster may know the receiver's ports.
        is_done: all content has arrived.
    """

    key: str = ""
    certificate: str = ""
    started: tuple[str, ...] = ()
    is_announced: bool = False
    is_done: bool = False


Save = Callable[[Progress], None]


@dataclasses.dataclass(frozen=True)
class LocalEnd:
    """The end of a transfer in this cluster.

    Attributes:
        name: name of the instance.
        side: node, record of the instance, and what is read or written per disk.
        sizes_mib: size of each disk.
        peer: PEM certificate of the other cluster's end.
        compress: name of the compression tool.
    """

    name: str
    side: disk_transfer.Side
    sizes_mib: Sequence[int]
    peer: str
    compress: str = export.IEC_NONE


class _Transfer(abc.ABC):
    """One end of the transfer of all disks of an instance."""

    #: Log line about one disk that is copied.
    COPIES = ""

    def __init__(
        self, ctx: base.Context, end: LocalEnd, left: Progress, save: Save
    ) -> None:
        self._ctx = ctx
        self._end = end
        self._state = left
        self._save_state = save
        self._watch = transfer_watch.Watch(ctx, self._what)

    @property
    def _what(self) -> str:
        return f"instance {self._end.name}: copying its disks between clusters"

    @property
    def _node(self) -> str:
        return self._end.side.node

    def _save(self, **changes: Any) -> None:
        self._state = msgspec.structs.replace(self._state, **changes)
        self._save_state(self._state)

    def run(self) -> None:
        """Copy all disks, or continue with that.

        Raises:
            OpExecError: one was not copied. The programs have ended, their key is gone.
        """
        count = len(self._end.sizes_mib)
        try:
            if not self._state.is_done:
                if len(self._state.started) < count:
                    self._begin()
                self._wait()
                # Stored before the clean-up, after which no program has a status.
                self._save(is_done=True)
        finally:
            clean_up(self._ctx, self._node, self._state)

    def _begin(self) -> None:
        self._make_key()
        for index, size_mib in enumerate(self._end.sizes_mib):
            # A sender goes on with these; a receiver has ended them in `_make_key`.
            if index < len(self._state.started):
                continue
            self._ctx.log.message(f"* {self.COPIES} disk/{index} ({size_mib} MiB)")
            name = self._start(index)
            self._save(started=(*self._state.started, name))

    @abc.abstractmethod
    def _make_key(self) -> None:
        """Provide the key of the programs."""

    @abc.abstractmethod
    def _start(self, index: int) -> str:
        """Start the program of a disk; return its name."""

    def _options(self, index: int, magic: str, *, ipv6: bool) -> dict[str, Any]:
        return {
            "key_name": self._state.key,
            "ca_pem": self._end.peer,
            "compress": self._end.compress,
            "magic": magic,
            "ipv6": ipv6,
            # A key of the other cluster may serve more than one job.
            "request_key": f"{self._ctx.owner.replace('/', '-')}-disk{index}",
        }

    def _wait(self) -> None:
        """Wait until all programs have ended, and report the progress.

        Raises:
            OpExecError: one failed; has its words, and those of this end only.
        """
        self._watch.hurry()
        begun = self._ctx.clock.monotonic()
        running = dict(enumerate(self._state.started))
        reports = {
            index: transfer_watch.Report(self._ctx, f"disk/{index}", size_mib)
            for index, size_mib in enumerate(self._end.sizes_mib)
        }
        while running:
            for index, name in list(running.items()):
                status = self._watch.status(self._node, name)
                if transfer_watch.has_failed(status):
                    raise errors.OpExecError(
                        f"{self._what}: disk/{index}:"
                        f" {self._watch.words(self._node, status)}"
                    )
                reports[index].report_progress(status)
                if status.exit_status == 0:
                    del running[index]
                    taken = self._ctx.clock.monotonic() - begun
                    self._ctx.log.message(f"* disk/{index} copied in {taken:.1f} s")
            if running:
                self._watch.pause()


class _Sender(_Transfer):
    """The end that reads the disks."""

    COPIES = "sending"

    def __init__(
        self,
        ctx: base.Context,
        end: LocalEnd,
        receivers: Sequence[domain_secret.Receiver],
        left: Progress,
        save: Save,
    ) -> None:
        super().__init__(ctx, end, left, save)
        self._receivers = receivers

    def _make_key(self) -> None:
        """Do nothing: the key was made by the preparation.

        Programs of an interrupted start go on. The node starts no second one for the
        key and the disk of one that was not recorded.
        """

    def _start(self, index: int) -> str:
        receiver, side = self._receivers[index], self._end.side
        options = self._options(index, receiver.magic, ipv6=":" in receiver.host)
        options["connect_timeout"] = _RIE_CONNECT_ATTEMPT_TIMEOUT
        options["connect_retries"] = _RIE_CONNECT_RETRIES
        return self._watch.start(
            side.node,
            calls.export_start(
                options,
                receiver.host,
                receiver.port,
                side.instance,
                f"disk{index}",
                side.ends[index],
            ),
        )


class _Receiver(_Transfer):
    """The end that writes the disks."""

    COPIES = "waiting for the content of"

    def __init__(
        self,
        ctx: base.Context,
        end: LocalEnd,
        announce: Callable[[Mapping[str, Any]], None],
        *,
        timeout_s: int,
        left: Progress,
        save: Save,
    ) -> None:
        super().__init__(ctx, end, left, save)
        self._announce = announce
        self._timeout_s = timeout_s

    @property
    def _address(self) -> str:
        return self._ctx.snapshot.nodes[self._node].primary_ip

    def _make_key(self) -> None:
        """Make a key; the programs of an interrupted start end with the former one.

        Nobody knows their ports.
        """
        clean_up(self._ctx, self._node, self._state)
        name, pem = self._ctx.rpc.call_node(
            self._node, calls.x509_cert_create(export.RIE_CERT_VALIDITY)
        ).unwrap(f"{self._what}: cannot make a certificate")
        self._save(key=name, certificate=pem, started=())

    def _magic(self, index: int) -> str:
        return disk_transfer.magic(self._state.key, self._end.name, index)

    def _start(self, index: int) -> str:
        side = self._end.side
        magic = self._magic(index)
        options = self._options(index, magic, ipv6=":" in self._address)
        options["connect_timeout"] = self._timeout_s
        return self._watch.start(
            side.node,
            calls.import_start(
                options, side.instance, f"disk{index}", side.ends[index]
            ),
        )

    def _wait(self) -> None:
        """Announce where the disks are received, and wait for them."""
        if not self._state.is_announced:
            self._publish()
        super()._wait()

    def _publish(self) -> None:
        secret = domain_secret.load(self._ctx.paths)
        receivers = [
            domain_secret.Receiver(
                self._address,
                self._watch.wait_for_port(self._node, name, _LISTEN_S),
                self._magic(index),
            )
            for index, name in enumerate(self._state.started)
        ]
        self._announce(
            {
                "disks": [
                    secret.signed_receiver(index, receiver)
                    for index, receiver in enumerate(receivers)
                ],
                "x509_ca": secret.signed_certificate(self._state.certificate),
            }
        )
        # Stored afterwards: a second announcement has the same ports and does no harm,
        # and without any, the other cluster would wait in vain.
        self._save(is_announced=True)


def send(
    ctx: base.Context,
    end: LocalEnd,
    receivers: Sequence[domain_secret.Receiver],
    *,
    left: Progress,
    save: Save,
) -> None:
    """Send the content of all disks to another cluster.

    Args:
        ctx: dependencies of the opcode.
        end: the source.
        receivers: where each disk is sent.
        left: has the key; where to continue.
        save: called with the state after each step.

    Raises:
        OpExecError: one was not sent; nothing of the transfer is left on the node.
    """
    _Sender(ctx, end, receivers, left, save).run()


def receive(
    ctx: base.Context,
    end: LocalEnd,
    announce: Callable[[Mapping[str, Any]], None],
    *,
    timeout_s: int,
    left: Progress,
    save: Save,
) -> None:
    """Receive the content of all disks from another cluster.

    Args:
        ctx: dependencies of the opcode.
        end: the target.
        announce: passes to the client where the disks are received.
        timeout_s: time that the other cluster has to connect.
        left: where to continue.
        save: called with the state after each step.

    Raises:
        OpExecError: one was not received; nothing of the transfer is left on the node.
    """
    _Receiver(ctx, end, announce, timeout_s=timeout_s, left=left, save=save).run()


def clean_up(ctx: base.Context, node: str, left: Progress) -> None:
    """End the programs of a transfer and remove their files and their key.

    Failures are logged.
    """
    for name in left.started:
        result = ctx.rpc.call_node(node, calls.impexp_cleanup(name))
        ctx.warn_failed(result, "cannot clean up after the transfer")
    if left.key:
        result = ctx.rpc.call_node(node, calls.x509_cert_remove(left.key))
        ctx.warn_failed(result, "cannot remove the transfer's certificate")

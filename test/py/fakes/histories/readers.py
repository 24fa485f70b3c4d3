"""Programs that ask confd on every candidate the whole time, and keep the serials.

Each asks from the network of its candidate, so a cut network does not silence it. A
candidate that is off, paused or has a bent clock gives no answer, which is no violation:
an answer that is older than one before is.
"""

import ctypes
import functools
import os
import pathlib

from fakes.patience import Background
from ganeti.base import errors
from ganeti.base.constants.protocols import confd
from ganeti.devel.vcluster import isolation
from ganeti.devel.vcluster.layout import PORTS
from ganeti.protocols.confd.client import ConfdClient

#: Seconds between two questions, and until one without an answer is given up.
_PAUSE_S, _ANSWER_S = 0.05, 0.5
_CLONE_NEWNET = 0x40000000


class Readers(Background):
    """One reader per candidate. Use it as a context manager.

    Attributes:
        answers: candidate -> the serials of its answers in order, without repetitions.
        count: number of all answers.
    """

    def __init__(self, machines):
        super().__init__(
            functools.partial(self._run, node) for node in machines.candidates
        )
        self.answers = {node.short: [] for node in machines.candidates}
        self.count = 0
        self._machines = machines
        self._key = pathlib.Path(
            machines.paths(machines.nodes[0]).hmac_key
        ).read_bytes()

    def _run(self, node):
        client = ConfdClient(self._key, [node.address], port=PORTS["ganeti-confd"])
        serials, joined = self.answers[node.short], None
        while not self.stopping.wait(_PAUSE_S):
            pid = isolation.holder(self._machines.layout, node)
            try:
                if pid != joined:
                    joined = pid
                    _join(pid)
                result = client.ask(
                    confd.CONFD_REQ_NODE_ROLE_BYNAME, node.name, timeout_s=_ANSWER_S
                )
            except (OSError, errors.ConfdClientError):
                joined = None
                continue
            if result.is_ok:
                self.count += 1
                if serials[-1:] != [result.reply.serial]:
                    serials.append(result.reply.serial)


def _join(pid):
    """Move this thread to the network of a machine.

    Raises:
        OSError: the machine is off.
    """
    if pid is None:
        raise OSError("the machine is off")
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(fd, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(fd)

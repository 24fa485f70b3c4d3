"""The nodes of a cluster that is taken over: this one directly, others over SSH."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner
from ganeti.bootstrap.upgrade import access
from ganeti.migration.takeover import node
from ganeti.migration.takeover.journal import Target
from ganeti.protocols.ssconf import SimpleStore
from ganeti.protocols.ssh import account, client

#: Longest silence of a node in one step, in seconds: daemons may take long to start.
_STEP_S: Final = 400.0
#: Longest answer of a node: a node has some hundred guests at most.
_MAX_ANSWER: Final = 1024 * 1024


class Node(Protocol):
    """One node."""

    target: Target

    def run(self, step: str) -> node.Report:
        """Run a step there; errors as those of `ganeti.migration.takeover.node`."""

    def put(self, path: str, data: bytes, *, mode: int) -> None:
        """Write a file there."""


class ThisNode:
    """The node on which the program runs."""

    def __init__(
        self, paths: Paths, process: Runner, target: Target, daemon_util: str
    ) -> None:
        self.target = target
        self._paths = paths
        self._process = process
        self._daemon_util = daemon_util

    def run(self, step: str) -> node.Report:
        """Run a step here."""
        message = {"step": step, "daemon_util": self._daemon_util}
        try:
            return node.run_step(self._paths, self._process, message)
        except (errors.GenericError, OSError) as err:
            raise errors.OpExecError(f"node {self.target.name}: {err}") from err

    def put(self, path: str, data: bytes, *, mode: int) -> None:
        """Write a file here."""
        files.write_file(path, data, mode=mode)


class OtherNode:
    """A node that is reached over SSH."""

    def __init__(
        self, paths: Paths, target: Target, shell: client.Client, daemon_util: str
    ) -> None:
        self.target = target
        self._paths = paths
        self._shell = shell
        self._daemon_util = daemon_util

    def run(self, step: str) -> node.Report:
        """Run a step there.

        Raises:
            OpExecError: the step failed there, or the answer is damaged.
            SshError: the connection broke.
        """
        program = os.path.join(self._paths.tools_dir, node.NAME)
        message = json.dumps({"step": step, "daemon_util": self._daemon_util})
        result = self._shell.run([program], stdin=message, timeout_s=_STEP_S)
        return access.answer(
            self.target.name, program, result, node.Report, most=_MAX_ANSWER
        )

    def put(self, path: str, data: bytes, *, mode: int) -> None:
        """Write a file there."""
        there = account.path_on(self._paths, self.target.name, path)
        self._shell.put_file(there, data, mode=mode)


@contextlib.contextmanager
def connected(
    paths: Paths,
    process: Runner,
    targets: Sequence[Target],
    daemon_util: str,
    *,
    check_host_keys: bool,
) -> Iterator[list[Node]]:
    """Log in to all nodes; yield them, this node first.

    Raises:
        SshError: a node cannot be reached, or refuses the login.
    """
    simple = SimpleStore(paths)
    identity = dataclasses.replace(
        client.cluster_identity(paths, simple.cluster_name()),
        check_host_key=check_host_keys,
    )
    with contextlib.ExitStack() as stack:
        nodes: list[Node] = []
        for target in targets:
            if target.name == paths.hostname:
                nodes.append(ThisNode(paths, process, target, daemon_util))
                continue
            shell = client.Client(
                target.name,
                target.port,
                identity,
                address=target.address,
                environment=account.node_environment(paths, target.name),
            )
            stack.enter_context(shell)
            nodes.append(OtherNode(paths, target, shell, daemon_util))
        yield nodes

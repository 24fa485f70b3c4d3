"""The nodes of a cluster that is upgraded: this one directly, others over SSH."""

import concurrent.futures
import json
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.filesystem import releases
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner, RunResult
from ganeti.bootstrap.upgrade import node as node_module
from ganeti.bootstrap.upgrade.node import Report
from ganeti.node.services import environment
from ganeti.protocols.ssconf import SimpleStore
from ganeti.protocols.ssh import account, client

#: Longest silence of a node in one step, in seconds: daemons may take long to start.
_STEP_S: Final = 400.0
#: Longest answer of a node, in characters.
_MAX_ANSWER: Final = 65536
_SSH_PORT: Final = 22
#: Nodes that are called at the same time.
_AT_ONCE: Final = 16
#: Exit codes of a shell for a program that is missing, or cannot be executed.
_MISSING: Final = (126, 127)


_T = TypeVar("_T")


class Node(Protocol):
    """One node."""

    name: str

    def run(self, version: str, step: str, store: int = 0) -> Report:
        """Run a step there, by the program of a release.

        Raises:
            GenericError: the step failed.
        """


def run_on(
    nodes: Sequence[Node], version: str, step: str, store: int = 0
) -> dict[str, Report | errors.GenericError]:
    """Run a step on nodes at the same time; return name -> answer or error."""

    def one(node: Node) -> Report | errors.GenericError:
        try:
            return node.run(version, step, store)
        except errors.GenericError as err:
            return err

    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = pool.map(one, nodes)
        return {node.name: answer for node, answer in zip(nodes, answers, strict=True)}


class ThisNode:
    """The node on which the program runs."""

    def __init__(self, paths: Paths, process: Runner, layout: releases.Layout) -> None:
        self.name = paths.hostname
        self._paths = paths
        self._process = process
        self._layout = layout

    def run(self, version: str, step: str, store: int = 0) -> Report:
        """Run a step here, as a process of the release.

        Raises:
            OpPrereqError: the release is not installed.
            OpExecError: the step failed.
        """
        program = self._layout.program(version, node_module.PLACE)
        if version not in releases.installed(self._layout):
            raise _not_installed(self.name, version, program)
        result = self._process.run(
            [program],
            env=environment(self._paths),
            stdin=_message(step, store),
            timeout_s=_STEP_S,
        )
        return _report(self.name, version, program, result)


class OtherNode:
    """A node that is reached over SSH, with a connection for each step.

    A node that is restarted or lost in between does not disturb the next step.
    """

    def __init__(
        self,
        paths: Paths,
        name: str,
        place: tuple[str | None, int],
        identity: client.Identity,
        layout: releases.Layout,
    ) -> None:
        self.name = name
        self._paths = paths
        self._address, self._port = place
        self._identity = identity
        self._layout = layout

    def run(self, version: str, step: str, store: int = 0) -> Report:
        """Run a step there.

        Raises:
            OpPrereqError: the release is not installed.
            OpExecError: the step failed, or the answer is damaged.
            SshError: the node cannot be reached.
        """
        program = self._layout.program(version, node_module.PLACE)
        with client.Client(
            self.name,
            self._port,
            self._identity,
            address=self._address,
            environment=account.node_environment(self._paths, self.name),
        ) as shell:
            result = shell.run(
                [program], stdin=_message(step, store), timeout_s=_STEP_S
            )
        return _report(self.name, version, program, result)


def nodes_of(paths: Paths, process: Runner, layout: releases.Layout) -> list[Node]:
    """Return the online nodes, this one, the master, first."""
    simple = SimpleStore(paths)
    identity = client.cluster_identity(paths, simple.cluster_name())
    addresses, ports = simple.node_primary_ips(), simple.ssh_ports()
    others = sorted(set(simple.online_nodes()) - {paths.hostname})
    nodes: list[Node] = [ThisNode(paths, process, layout)]
    for name in others:
        place = (addresses.get(name), ports.get(name, _SSH_PORT))
        nodes.append(OtherNode(paths, name, place, identity, layout))
    return nodes


def _message(step: str, store: int) -> str:
    return json.dumps({"step": step, "store": str(store)})


def _not_installed(name: str, version: str, program: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(
        f"node {name}: version {version} is not installed there ({program} is missing):"
        " install it on that node, or mark the node as offline",
        ecodes.ECODE_ENVIRON,
    )


def answer(
    name: str, program: str, result: RunResult, kind: type[_T], *, most: int
) -> _T:
    """Return the answer of a program on a node, in the form of a class.

    Args:
        name: of the node.
        program: its path there.
        result: of its run.
        kind: of the answer.
        most: characters that it may have.

    Raises:
        OpExecError: the program failed, or the answer is damaged.
    """
    if result.failed:
        lines = result.output.strip()[-most:].splitlines()
        text = lines[-1] if lines else "no output"
        raise errors.OpExecError(f"node {name}: {program} {result.reason}: {text:.500}")
    if len(result.stdout) > most:
        raise errors.OpExecError(f"node {name}: {program}: answers too much")
    try:
        return msgspec.json.decode(result.stdout, type=kind)
    except ValueError as err:
        raise errors.OpExecError(f"node {name}: {program}: {err}") from err


def _report(name: str, version: str, program: str, result: RunResult) -> Report:
    if result.code in _MISSING:
        raise _not_installed(name, version, program)
    report = answer(name, program, result, Report, most=_MAX_ANSWER)
    if report.release != version:
        raise errors.OpExecError(
            f"node {name}: {program}: wanted a program of version {version}, found"
            f" {report.release!r:.40}"
        )
    return report

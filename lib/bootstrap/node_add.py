"""Preparation of a machine for OP_NODE_ADD, as the first part of ``gnt-node add``."""

import contextlib
import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from cryptography.hazmat.primitives import serialization

from ganeti.base import errors, process
from ganeti.base.constants import daemons, ecodes, misc, versions
from ganeti.base.constants.protocols import ssh
from ganeti.base.errors import refusal
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority, x509
from ganeti.bootstrap import crypto, machine_checks
from ganeti.bootstrap.init import bridge, checks
from ganeti.bootstrap.options import Feedback, Joined, JoinRequest
from ganeti.protocols import luxi, rpc
from ganeti.protocols.rpc import calls
from ganeti.protocols.ssconf import SimpleStore
from ganeti.protocols.ssh import account, authorized_keys, host_keys, keys
from ganeti.protocols.ssh import client as ssh_client

#: Seconds to wait until the node daemon answers; a slow machine needs many to load it.
ANSWER_TIMEOUT_S: Final = 60.0
_RETRY_S: Final = 0.05
#: Seconds without output after which a tool counts as stuck.
TOOL_TIMEOUT_S: Final = 120.0
#: Seconds for which the first certificate of a new node is valid.
_JOIN_VALIDITY_S: Final = 86400


class Shell(process.Shell, Protocol):
    """A connection that runs programs on the new node."""

    @property
    def host_key(self) -> str:
        """The key that its SSH server has proved to have, as ``type base64``."""

    def close(self) -> None:
        """Close the connection."""


@dataclasses.dataclass(frozen=True)
class NewNode:
    """Name, address and SSH port of the new node.

    ``host_keys``: the keys of its SSH server, when its identity is certain.
    """

    name: str
    address: str
    port: int
    host_keys: tuple[str, ...] = ()


Connect = Callable[[NewNode], Shell]


@dataclasses.dataclass(frozen=True)
class _ClusterState:
    """Properties of the cluster, as the master daemon reports them.

    ``nodes``: full name -> name, uuid, pip, sip and role. ``bridge``: of guests by
    default, empty if their NICs use none. ``migration_ports``: of live migration.
    """

    cluster_name: str
    master_node: str
    modify_ssh_setup: bool
    ssh_key_type: str
    ssh_key_bits: int
    nodes: Mapping[str, Mapping[str, Any]]
    bridge: str
    migration_ports: Sequence[int]


def join(
    paths: Paths,
    request: JoinRequest,
    *,
    feedback: Feedback,
    connect: Connect | None = None,
) -> Joined:
    """Prepare a machine for OP_NODE_ADD.

    Args:
        paths: of this node, the master.
        request: the node and the options of the caller.
        feedback: called with each step.
        connect: opens a shell on the node; SSH by default.

    Raises:
        OpPrereqError: the request contradicts the cluster's configuration, or the
            bridge to create has the name of another interface of the node.
        SshError: the node cannot be reached, or refuses the login.
        OpExecError: a step on the node failed, for example because the node is in
            another cluster.
    """
    name, address = _resolve(paths, request)
    with luxi.Client.of_node(paths) as client:
        state = _ask_master(client)
        secondary_ip = _check_membership(state, request, name)
        _check_wanted_bridge(state, request)
        port = request.ssh_port or _ssh_port(client, request.group, paths)
    open_shell = connect or _ssh_connect(paths, request, state)
    target = NewNode(name, address, port)
    recorded = state.nodes.get(name, {}).get("uuid")
    message = daemon_message(paths, state.cluster_name, name, recorded)
    message["debug"] = request.debug
    preparation = _Preparation(paths, state, message, open_shell)
    try:
        target = _set_up(preparation, target, request, feedback)
        feedback(f"Waiting for the node daemon of {name}")
        _wait_for_node_daemon(paths, target)
    except BaseException:
        # An interruption, too: the cluster does not know the machine, so nobody else
        # would take back what it has got.
        preparation.undo(feedback)
        raise
    kept_keys = target.host_keys if state.modify_ssh_setup else None
    undo = functools.partial(preparation.undo, feedback)
    return Joined(name, address, secondary_ip, kept_keys, undo)


def _set_up(
    preparation: "_Preparation",
    target: NewNode,
    request: JoinRequest,
    feedback: Feedback,
) -> NewNode:
    """Install keys and files on the machine; return it with its SSH host keys."""
    paths, state = preparation.paths, preparation.state
    name, address = target.name, target.address
    shell = preparation.open_shell(target)
    if request.readd:
        # A node that was offline while the authority was renewed would refuse the
        # present one.
        _forget_authority(paths, shell, target)
    if state.modify_ssh_setup:
        feedback(f"Preparing SSH on node {name}")
        with contextlib.closing(shell):
            target = _with_host_keys(paths, shell, target)
            # Before the keys of the candidates are added: an undo leaves those that
            # could log in already.
            preparation.keep_logins(shell, target)
            preparation.begin(target, request)
            _prepare(paths, state, shell, target, request)
        shell = preparation.open_shell(target)
    with contextlib.closing(shell):
        preparation.begin(target, request)
        if state.bridge:
            root = account.path_on(paths, name, paths.at("/etc")).removesuffix("/etc")
            bridge.prepare_node(
                *(shell, name, root, state.bridge),
                wanted=request.create_bridge,
                feedback=feedback,
            )
        _run_tool(paths, shell, target, "node-daemon-setup", preparation.message)
        master = str(state.nodes[state.master_node]["pip"])
        for warning in machine_checks.boot_warnings(paths, shell, host=name):
            feedback(warning)
        for warning in machine_checks.port_warnings(
            shell,
            machine_checks.Machine(name, address),
            machine_checks.Machine(state.master_node, master),
            machine_checks.of_nodes(target.port, state.migration_ports),
        ):
            feedback(warning)
    return target


class _Preparation:
    """Files and keys for a machine that is added, and their removal after a refusal.

    A node that is added again keeps all: it was a node before, and `node-daemon-setup`
    leaves a certificate that is as good as the one for a day.
    """

    def __init__(
        self,
        paths: Paths,
        state: _ClusterState,
        message: dict[str, Any],
        open_shell: Connect,
    ) -> None:
        self.paths, self.state = paths, state
        self.message, self.open_shell = message, open_shell
        self._target: NewNode | None = None
        self._kept: frozenset[object] = frozenset()

    def keep_logins(self, shell: Shell, target: NewNode) -> None:
        """Note the keys that can log in already, such as the master's; they stay.

        Whoever wrote them needs them to repeat the request.
        """
        path = crypto.authorized_keys_path(self.paths)
        path = account.path_on(self.paths, target.name, path)
        present = shell.run(["cat", path], timeout_s=TOOL_TIMEOUT_S)
        lines = present.stdout.splitlines()
        self._kept = frozenset(map(authorized_keys.identity, lines))

    def begin(self, target: NewNode, request: JoinRequest) -> None:
        """Note that from now on the machine has something to take back."""
        self._target = None if request.readd else target

    def undo(self, feedback: Feedback) -> None:
        """Remove files and keys of the cluster from the machine, if they are ours.

        They are not if another request has prepared the machine since, or a job has
        given it the certificate of a node. A machine that does not answer keeps them;
        its certificate is valid for a day, and the cluster does not know it.
        """
        if self._target is None:
            return
        name = self._target.name
        try:
            with contextlib.closing(self.open_shell(self._target)) as shell:
                self._take_back(shell, self._target, feedback)
        except (errors.GenericError, OSError) as err:
            feedback(
                f"Warning: node {name} keeps files of this cluster, run node-cleanup"
                f" there: {err}"
            )

    def _take_back(self, shell: Shell, target: NewNode, feedback: Feedback) -> None:
        with luxi.Client.of_node(self.paths) as client:
            # The job may have been done although its end was not seen.
            if target.name in _ask_master(client).nodes:
                return
        path = account.path_on(self.paths, target.name, self.paths.client_pem)
        is_set_up = not shell.run(["test", "-e", path], timeout_s=TOOL_TIMEOUT_S).failed
        given = self.message.get(ssh.NDS_NODE_CERTIFICATE, "")
        # Each request makes a key of its own; a file with another one is not of this
        # request.
        argv = ["cmp", "-s", "-", path]
        if is_set_up and shell.run(argv, stdin=given, timeout_s=TOOL_TIMEOUT_S).failed:
            return
        given_keys = {
            uuid: [
                line
                for line in lines
                if authorized_keys.identity(line) not in self._kept
            ]
            for uuid, lines in _candidate_keys(self.paths, self.state).items()
        }
        change = {
            ssh.SSHS_CLUSTER_NAME: self.state.cluster_name,
            ssh.SSHS_SSH_AUTHORIZED_KEYS: ["remove", given_keys],
        }
        if self.state.modify_ssh_setup:
            _run_tool(self.paths, shell, target, "ssh-update", change)
        if not is_set_up:
            return
        tool = os.path.join(self.paths.tools_dir, "node-cleanup")
        argv = [tool, "--yes-do-it", "--no-backup"]
        result = shell.run(argv, timeout_s=TOOL_TIMEOUT_S)
        if result.failed:
            raise errors.OpExecError(f"node-cleanup {result.reason}: {result.output}")
        feedback(f"Files of the cluster were removed from {target.name} again")


def plan(paths: Paths, request: JoinRequest) -> list[str]:
    """Check the request as `join` does; return its steps as text, in order.

    The new node is not contacted.

    Raises:
        OpPrereqError: the request contradicts the cluster's configuration.
    """
    name, address = _resolve(paths, request)
    with luxi.Client.of_node(paths) as client:
        state = _ask_master(client)
        _check_membership(state, request, name)
        port = request.ssh_port or _ssh_port(client, request.group, paths)
    _check_wanted_bridge(state, request)
    steps = [f"log in to {name} ({address}, port {port}) as root over SSH"]
    if state.modify_ssh_setup:
        steps += [
            f"read the public SSH host keys of {name}, which OP_NODE_ADD records",
            f"install the public keys of the master candidates on {name}",
            f"generate an SSH key of root on {name}, unless it has one",
            "log in again with the cluster's keys",
        ]
    if request.create_bridge:
        steps.append(f"create the bridge {state.bridge} on {name} if it is missing")
    steps += [
        f"install the cluster's certificate, key and ssconf files on {name}",
        f"start ganeti-noded on {name}, and wait until it answers",
    ]
    return steps


def _resolve(paths: Paths, request: JoinRequest) -> tuple[str, str]:
    name = checks.canonical_name(request.name, paths)
    try:
        return name, netutils.lookup(name, paths)
    except errors.ResolverError as err:
        raise errors.OpPrereqError(
            f"node {name}: its address cannot be found: {err.args[-1]}",
            ecodes.ECODE_RESOLVER,
        ) from err


def _ask_master(client: luxi.Client) -> _ClusterState:
    fields = (
        "cluster_name",
        "master_node",
        "modify_ssh_setup",
        "ssh_key_type",
        "ssh_key_bits",
    )
    values = client.call("QueryConfigValues", [list(fields)])
    columns = ("name", "uuid", "pip", "sip", "role")
    rows = client.call("QueryNodes", [[], list(columns), False])
    nodes = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    info = client.call("QueryClusterInfo", [])
    nic = info["nicparams"]["default"]
    is_bridge = nic["mode"] == "bridged" and nic["link"] != misc.USER_NETWORK
    link = str(nic["link"]) if is_bridge else ""
    settings = dict(zip(fields, values, strict=True))
    ports = machine_checks.migration_ports(
        info["enabled_hypervisors"], info["hvparams"]
    )
    return _ClusterState(**settings, nodes=nodes, bridge=link, migration_ports=ports)


def _check_membership(
    state: _ClusterState, request: JoinRequest, name: str
) -> str | None:
    """Return the secondary address to use, None for the primary one.

    Raises:
        OpPrereqError: a known node is added, or an unknown one or the master is
            readded.
    """
    known = state.nodes.get(name)
    if not request.readd:
        if known is not None:
            raise errors.OpPrereqError(
                f"node {name}: already in the cluster, use --readd",
                ecodes.ECODE_EXISTS,
            )
        return request.secondary_ip
    if known is None:
        raise errors.OpPrereqError(
            f"node {name}: not in the cluster, add it without --readd",
            ecodes.ECODE_NOENT,
        )
    if name == state.master_node:
        raise errors.OpPrereqError(
            f"node {name}: is the master, which cannot be readded", ecodes.ECODE_STATE
        )
    return str(known["sip"])


def _ssh_port(client: luxi.Client, group: str | None, paths: Paths) -> int:
    """Return the SSH port of new nodes of a group.

    Without a group, it is the common port of all groups, or else the master's port.
    """
    if group is not None:
        ((port,),) = client.call("QueryGroups", [[group], ["ndp/ssh_port"], False])
        return int(port)
    rows = client.call("QueryGroups", [[], ["ndp/ssh_port"], False])
    ports = {int(port) for (port,) in rows}
    if len(ports) == 1:
        return ports.pop()
    return SimpleStore(paths).ssh_ports().get(paths.hostname, 22)


def _ssh_connect(paths: Paths, request: JoinRequest, state: _ClusterState) -> Connect:
    member = ssh_client.cluster_identity(paths, state.cluster_name)
    unknown_host = dataclasses.replace(
        member,
        check_host_key=request.ssh_key_check,
        ask_host_key=request.ask_host_key,
        ask_password=request.ask_password,
        personal_hosts=(
            f"{paths.root_ssh_dir}/known_hosts",
            os.path.expanduser("~/.ssh/known_hosts"),
            "/etc/ssh/ssh_known_hosts",
        ),
    )

    def connect(target: NewNode) -> Shell:
        return ssh_client.Client(
            target.name,
            target.port,
            (
                dataclasses.replace(member, pinned=target.host_keys)
                if target.host_keys
                else unknown_host
            ),
            address=target.address,
            environment=account.node_environment(paths, target.name),
        )

    return connect


def _with_host_keys(paths: Paths, shell: Shell, target: NewNode) -> NewNode:
    """Add the keys of a machine's SSH server, which the login has authenticated.

    The key that the server has proved to have is one of them. If the usual files do not
    have it, the server uses other ones, and is known by this key alone.

    Raises:
        OpPrereqError: a file has something else than one key.
    """
    proved = host_keys.one(shell.host_key, keys.kind_of(shell.host_key))
    in_files = []
    for kind in keys.ALGORITHMS:
        path = f"{keys.host_key_path(paths.sshd_dir, kind)}.pub"
        argv = ["cat", account.path_on(paths, target.name, path)]
        result = shell.run(argv, timeout_s=TOOL_TIMEOUT_S)
        if not result.failed:
            in_files.append(host_keys.one(result.stdout, kind))
    lines = host_keys.checked(in_files if proved in in_files else [proved])
    return dataclasses.replace(target, host_keys=lines)


def _run_tool(
    paths: Paths, shell: Shell, target: NewNode, tool: str, message: Mapping[str, Any]
) -> None:
    """Run a helper program on the node with a JSON message on its input.

    Raises:
        OpExecError: the program failed; the message ends with its last line of output.
    """
    argv = [os.path.join(paths.tools_dir, tool)]
    if message.get("debug"):
        argv.append("--debug")
    data = json.dumps({key: v for key, v in message.items() if key != "debug"})
    result = shell.run(argv, stdin=data, timeout_s=TOOL_TIMEOUT_S)
    if result.failed:
        text = result.output.strip().splitlines()
        raise errors.OpExecError(
            f"node {target.name}: {tool} {result.reason}:"
            f" {text[-1] if text else 'no output'}"
        )


def _prepare(
    paths: Paths,
    state: _ClusterState,
    shell: Shell,
    target: NewNode,
    request: JoinRequest,
) -> None:
    certificate = x509.load_certificate(paths.server_pem)
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    message = {
        ssh.SSHS_CLUSTER_NAME: state.cluster_name,
        ssh.SSHS_NODE_DAEMON_CERTIFICATE: pem,
        ssh.SSHS_SSH_AUTHORIZED_KEYS: _candidate_keys(paths, state),
        ssh.SSHS_SSH_KEY_TYPE: state.ssh_key_type,
        ssh.SSHS_SSH_KEY_BITS: state.ssh_key_bits,
        "debug": request.debug,
    }
    _run_tool(paths, shell, target, "prepare-node-join", message)


def _candidate_keys(paths: Paths, state: _ClusterState) -> dict[str, list[str]]:
    candidates = {
        row["uuid"] for row in state.nodes.values() if row["role"] in ("M", "C")
    }
    known = authorized_keys.read_node_keys(paths.data(crypto.PUBLIC_KEYS))
    return {uuid: lines for uuid, lines in known.items() if uuid in candidates}


def _forget_authority(paths: Paths, shell: Shell, target: NewNode) -> None:
    """Remove another authority of a node that is added again, such as a former one.

    The operator has named the node, and the login has authenticated it.
    """
    path = account.path_on(paths, target.name, paths.server_pem)
    present = shell.run(["cat", path], timeout_s=TOOL_TIMEOUT_S)
    with contextlib.suppress(errors.X509CertError):
        certificate = x509.parse_certificate(present.stdout.encode(), path)
        if certificate == x509.load_certificate(paths.server_pem):
            return
    result = shell.run(["rm", "-f", path], timeout_s=TOOL_TIMEOUT_S)
    if result.failed:
        raise errors.OpExecError(
            f"node {target.name}: {path} cannot be removed: {result.output.strip()}"
        )


def daemon_message(
    paths: Paths, cluster: str, node: str, uuid: str | None = None
) -> dict[str, Any]:
    """Return the input of ``node-daemon-setup``: files of this node's cluster.

    It contains a certificate of the node, with its key, that is valid for a day:
    OP_NODE_ADD replaces it. In clusters of earlier releases it contains the key of the
    cluster certificate instead, from which the node makes its own certificate.

    Args:
        paths: of this node, the master.
        cluster: name of the cluster.
        node: name of the new node.
        uuid: of the node, if it is recorded already.

    Raises:
        X509CertError: this node does not have the certificate or key of the cluster.
    """
    message = {
        ssh.NDS_CLUSTER_NAME: cluster,
        ssh.NDS_NODE_DAEMON_CERTIFICATE: files.read_file(paths.server_pem).decode(),
        ssh.NDS_HMAC: files.read_file(paths.hmac_key).decode(),
        ssh.NDS_SSCONF: SimpleStore(paths).read_all(),
        ssh.NDS_START_NODE_DAEMON: True,
        ssh.NDS_NODE_NAME: node,
    }
    if authority.is_used(paths.server_pem):
        pair = authority.issue_with_key(
            crypto.load_authority(paths),
            name=node,
            uuid=uuid,
            serial=int(time.time()),
            validity_s=_JOIN_VALIDITY_S,
        )
        message[ssh.NDS_NODE_CERTIFICATE] = pair.pem.decode()
    return message


def _check_wanted_bridge(state: _ClusterState, request: JoinRequest) -> None:
    if request.create_bridge and not state.bridge:
        raise refusal(
            "--create-bridge: NICs of this cluster use no bridge by default: mode is"
            " not bridged"
        )


def _wait_for_node_daemon(paths: Paths, target: NewNode) -> None:
    """Wait until the node daemon answers a version call.

    Raises:
        OpExecError: the daemon does not answer in time, or has another version.
    """
    port = daemons.DAEMONS["ganeti-noded"].port or 0
    runner = rpc.StaticRunner(
        [rpc.Target(target.name, target.name, target.address, port)], paths
    )
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    try:
        answer = runner.call_node(target.name, calls.version())
        while answer.failed and time.monotonic() < deadline:
            time.sleep(_RETRY_S)
            answer = runner.call_node(target.name, calls.version())
    finally:
        runner.close()
    log_file = account.path_on(paths, target.name, f"{paths.log_dir}/node-daemon.log")
    version = answer.unwrap(
        f"the new node daemon has not answered within {ANSWER_TIMEOUT_S:g} s; its log"
        f" is {log_file} of {target.name}"
    )
    if version != versions.PROTOCOL_VERSION:
        raise errors.OpExecError(
            f"node {target.name}: wanted a node daemon of version"
            f" {versions.PROTOCOL_VERSION}, found {version}"
        )

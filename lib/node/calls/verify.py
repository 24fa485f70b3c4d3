"""Checks of ``node_verify``: each key of the request is one check, see `CHECKS`.

The functions describe the shapes of requests and answers; the master interprets the
answers. A check that raises an error is left out of the answer.
"""

import concurrent.futures
import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ganeti.base import clock, daemon_users, errors
from ganeti.base.constants import versions
from ganeti.base.constants.protocols import export, nodeverify
from ganeti.base.filesystem import files, trusted_files
from ganeti.base.net import netutils
from ganeti.base.process import SAFE_PATH
from ganeti.base.tls import x509
from ganeti.node.calls import basics, guest_files, os_definitions
from ganeti.node.calls.disks import exports, storage_units
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.storage import allowed, drbd_commands, gluster, lvm
from ganeti.node.storage import files as disk_files
from ganeti.protocols.rpc import node_port
from ganeti.protocols.ssh import account, authorized_keys

if TYPE_CHECKING:
    from ganeti.protocols.ssh.client import Identity


#: Nodes that are checked in parallel.
SSH_PARALLEL: Final = 8
_SSH_TIMEOUT_S: Final = 30.0


def check_reach(node: LocalNode, ports: Mapping[str, int]) -> dict[str, str]:
    """Log in to nodes and compare their host names.

    Args:
        node: this node.
        ports: SSH port by node name.

    Returns:
        node name -> problem; nodes without a problem are left out.
    """
    from ganeti.protocols.ssh import client

    identity = client.cluster_identity(node.paths, node.ssconf.cluster_name())
    addresses = node.ssconf.node_primary_ips()

    def check(name: str) -> str | None:
        try:
            address = addresses.get(name) or netutils.lookup(name, node.paths)
            return _check_login(node, name, (address, ports[name]), identity)
        except errors.GenericError as err:
            return str(err)

    with concurrent.futures.ThreadPoolExecutor(SSH_PARALLEL) as pool:
        texts = list(pool.map(check, ports))
    return {
        name: text for name, text in zip(ports, texts, strict=True) if text is not None
    }


def _check_login(
    node: LocalNode, name: str, address: tuple[str, int], identity: "Identity"
) -> str | None:
    from ganeti.protocols.ssh import client

    environment = account.node_environment(node.paths, name)
    with client.Client(
        name,
        address[1],
        identity,
        address=address[0],
        environment=environment,
    ) as shell:
        command = "echo ${GANETI_HOSTNAME:-$(hostname --fqdn 2>/dev/null || hostname)}"
        result = shell.run(["sh", "-c", command], timeout_s=_SSH_TIMEOUT_S)
    if result.failed:
        return f"cannot query its host name: {result.output.strip()}"
    hostname = result.stdout.strip()
    if hostname.split(".", 1)[0] != name.split(".", 1)[0] or (
        "." in hostname and hostname != name
    ):
        return f"wanted host name {name}, found {hostname}"
    return None


def check_set_up(
    node: LocalNode, nodes: Sequence[tuple[str, str, bool, bool]]
) -> list[str]:
    """Compare the key files with the keys that they should hold.

    Args:
        node: this node.
        nodes: uuid, name, is a candidate, is a potential candidate, of all nodes.

    Returns:
        one line per problem.
    """
    own_name = node.paths.hostname
    rows = {uuid: row for uuid, *row in nodes}
    known = authorized_keys.read_node_keys(node.paths.data("ganeti_pub_keys"))
    own = next((row for row in rows.values() if row[0] == own_name), None)
    if own is None or not own[2]:
        if known:
            return ["has public keys of nodes, but can never be a master candidate"]
        return []
    potential = {uuid for uuid, (_name, _now, may) in rows.items() if may}
    problems = [
        f"{nodeverify.NO_PUBLIC_KEY} {rows[uuid][0]}"
        for uuid in sorted(potential - set(known))
    ]
    for uuid in sorted(set(known) - potential):
        name = rows[uuid][0] if uuid in rows else uuid
        problems.append(
            f"{nodeverify.PUBLIC_KEY_OF} {name}, which is not a potential candidate"
        )
    return problems + _check_key_files(node, rows, known)


def check_authorised(
    node: LocalNode, candidates: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return one line per candidate that may not log in here.

    It is for a node that can never be a candidate, and so has no keys to compare with.

    Args:
        node: this node.
        candidates: name -> public key lines.
    """
    present = _authorised_keys(node)
    return [
        f"{nodeverify.NOT_AUTHORISED} {name}"
        for name, lines in sorted(candidates.items())
        if not any(authorized_keys.identity(line) in present for line in lines)
    ]


def candidate_keys(node: LocalNode, uuids: Sequence[str]) -> dict[str, list[str]]:
    """Return uuid -> public key lines, of the nodes whose keys this node has."""
    known = authorized_keys.read_node_keys(node.paths.data("ganeti_pub_keys"))
    return {uuid: known[uuid] for uuid in uuids if uuid in known}


def _authorised_keys(node: LocalNode) -> set[object]:
    path = f"{node.paths.root_ssh_dir}/authorized_keys"
    return {authorized_keys.identity(line) for line in authorized_keys.read(path)}


def _check_key_files(
    node: LocalNode,
    rows: Mapping[str, Sequence[object]],
    known: Mapping[str, list[str]],
) -> list[str]:
    present = _authorised_keys(node)
    problems = []
    for uuid, lines in known.items():
        if uuid not in rows:
            continue
        name, is_candidate = rows[uuid][0], rows[uuid][1]
        is_in = any(authorized_keys.identity(line) in present for line in lines)
        if is_candidate and not is_in:
            problems.append(f"{nodeverify.NOT_AUTHORISED} {name}")
        if is_in and not is_candidate and name != node.paths.hostname:
            problems.append(
                f"{nodeverify.STILL_AUTHORISED} {name}, which is not a candidate"
            )
    return problems


def check_clutter(node: LocalNode) -> list[str]:
    """Return the nodes for which several keys are recorded or authorised."""
    known = authorized_keys.read_node_keys(node.paths.data("ganeti_pub_keys"))
    problems = [
        f"{len(lines)} public keys are recorded for node {uuid}"
        for uuid, lines in sorted(known.items())
        if len(lines) > 1
    ]
    by_comment: dict[str, int] = {}
    for line in authorized_keys.read(f"{node.paths.root_ssh_dir}/authorized_keys"):
        if authorized_keys.identity(line) is None or not line.split()[-1].startswith(
            "root@"
        ):
            continue
        owner = line.split()[-1]
        by_comment[owner] = by_comment.get(owner, 0) + 1
    problems += [
        f"{count} keys of {owner} are authorised"
        for owner, count in sorted(by_comment.items())
        if count > 1
    ]
    return problems


_log = logging.getLogger(__name__)

_DAY_S: Final = 86400
#: Certificates that expire within these times are warnings or errors.
_WARN_BEFORE_S: Final = 30 * _DAY_S
_ERROR_BEFORE_S: Final = 7 * _DAY_S
#: Timeout per node in seconds: short, as many nodes are checked one after another.
_PING_TIMEOUT_S: Final = 5.0


def _filelist(node: LocalNode, paths: list[str]) -> dict[str, str]:
    """Return path -> SHA-1 of the content; paths as given, missing files left out."""
    digests = {path: files.fingerprint(_local(node, path)) for path in paths}
    return {path: digest for path, digest in digests.items() if digest is not None}


def _local(node: LocalNode, path: str) -> str:
    if path == netutils.HOSTS_FILE:
        return node.paths.at(path)
    return node.paths.localize(path)


def _client_cert(node: LocalNode, _asked: Any) -> tuple[str | None, str]:
    """Return ``[null, digest]``, or ``ERROR`` or ``WARNING`` and the problem."""
    path = node.paths.client_pem
    if not os.path.exists(path):
        return "ERROR", f"the client certificate {path} does not exist"
    try:
        certificate = x509.load_certificate(path)
    except errors.X509CertError as err:
        return "ERROR", str(err)
    if x509.is_self_signed(certificate):
        return "ERROR", f"the client certificate {path} is self-signed"
    left = x509.seconds_left(certificate)
    if left < 0:
        end = f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        return "ERROR", f"the client certificate ended on {end}"
    if left < _WARN_BEFORE_S:
        level = "ERROR" if left < _ERROR_BEFORE_S else "WARNING"
        return level, f"the client certificate ends in {left / _DAY_S:.0f} days"
    return None, x509.digest(certificate)


def _node_net_test(
    node: LocalNode, peers: list[tuple[str, str, str]]
) -> dict[str, str]:
    """Return name -> node daemons not reached; takes name and two addresses."""
    own = next((row for row in peers if row[0] == node.paths.hostname), None)
    if own is None:
        return {node.paths.hostname: "this node is not in the list of nodes"}
    port = node_port()
    problems = {}
    for name, primary, secondary in peers:
        failed = []
        if not _answers(primary, port, own[1]):
            failed.append("primary")
        if secondary != primary and not _answers(secondary, port, own[2]):
            failed.append("secondary")
        if failed:
            problems[name] = f"failure using the {' and '.join(failed)} interface(s)"
    return problems


def _answers(address: str, port: int, source: str) -> bool:
    return netutils.tcp_ping(
        address, port, timeout_s=_PING_TIMEOUT_S, source=source, live_port_needed=True
    )


def _master_ip(node: LocalNode, asked: tuple[str, str]) -> bool:
    """Return whether the cluster's address answers; takes master name and address."""
    name, address = asked
    if name == node.paths.hostname:
        return netutils.owns_address(address)
    return netutils.tcp_ping(address, node_port(), timeout_s=_PING_TIMEOUT_S)


def _user_scripts(node: LocalNode, paths: list[str]) -> list[str]:
    """Return the scripts that are missing or not executable."""
    return [path for path in paths if not _is_executable(node.paths.localize(path))]


def _is_executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _oob_paths(node: LocalNode, paths: list[str | None]) -> list[str | None]:
    """Return the problem of each program, or null."""
    return [None if path is None else _oob_problem(node, path) for path in paths]


def _oob_problem(node: LocalNode, path: str) -> str | None:
    is_virtual = node.paths.is_virtual
    problem = trusted_files.program_problem(path, is_virtual=is_virtual)
    return f"OOB program {problem}" if problem else None


def _instancelist(node: LocalNode, hypervisors: list[str]) -> list[str]:
    """Return the names of the instances that run under these hypervisors."""
    name_lists = (node.hypervisor(name).list_names() for name in hypervisors)
    return sorted({name for names in name_lists for name in names})


def _hypervisor(node: LocalNode, hypervisors: list[str]) -> dict[str, str | None]:
    """Return hypervisor -> problem, or null."""
    answer: dict[str, str | None] = {}
    for name in hypervisors:
        try:
            answer[name] = node.hypervisor(name).verify()
        except errors.HypervisorError as err:
            answer[name] = f"error while checking: {err}"
    return answer


def _hvparams(
    node: LocalNode, rows: list[tuple[str, str, dict[str, Any]]]
) -> list[tuple[str, str, str]]:
    """Return origin, hypervisor and problem of parameters that this node refuses."""
    problems = []
    for origin, name, params in rows:
        try:
            node.hypervisor(name).validate(params)
        except errors.HypervisorError as err:
            problems.append((origin, name, str(err)))
    return problems


def _nodesetup(_node: LocalNode, _asked: Any) -> list[str]:
    """Return the file systems that every node needs and that this machine lacks."""
    problems = []
    if not os.path.isdir("/sys/block") or not os.path.isdir("/sys/class/net"):
        problems.append("the sysfs filesystem doesn't seem to be mounted under /sys")
    if not os.path.isdir("/proc/sys") or not os.path.exists("/proc/self/stat"):
        problems.append("the procfs filesystem doesn't seem to be mounted under /proc")
    return problems


def _guest_files(node: LocalNode, names: list[str]) -> dict[str, list[str]]:
    """Return what guests that run here lack of files and processes; takes names."""
    driver, lost = node.hypervisor("kvm"), {}
    for name in names:
        # Without its runtime file, the parameters of a guest are not known.
        with contextlib.suppress(errors.HypervisorError):
            if kinds := driver.lost_parts(name):
                lost[name] = kinds
    return lost


def _missing_tools(_node: LocalNode, tools: list[str]) -> list[str]:
    """Return those compression tools that transfers cannot run here."""
    commands = export.IEC_COMMANDS
    return [
        tool
        for tool in tools
        if shutil.which(commands.get(tool, (tool,))[0], path=SAFE_PATH) is None
    ]


def _pvlist(node: LocalNode, groups: list[str]) -> list[list[Any]]:
    """Return name and MiB of the physical volumes of groups."""
    return [
        [unit.name, unit.size_mib]
        for group in groups
        for unit in lvm.physical_volumes(node.process, group)
        if not unit.is_missing
    ]


def _exclusive_pvs(node: LocalNode, _asked: Any) -> list[list[Any]]:
    """Return the physical volumes that several volumes share, with these.

    Volumes are ``group/name``. Snapshots last as long as an export and do not count.
    """
    users: dict[str, list[str]] = {}
    for volume in lvm.volumes(node.process):
        for device in () if volume.origin else volume.devices:
            users.setdefault(device, []).append(f"{volume.group}/{volume.name}")
    return [[unit, sorted(names)] for unit, names in sorted(users.items()) if names[1:]]


def _storage_path(node: LocalNode, path: str) -> str | None:
    """Return the reason why a storage directory cannot be used, or null."""
    return allowed.check_usable(node.paths, path)


Check = Callable[[LocalNode, Any], Any]
#: All checks by key; answers lack the keys that are not in this table. Lambdas forward
#: the question to the module that answers it.
CHECKS: Final[Mapping[str, Check]] = {
    nodeverify.NV_FILELIST: _filelist,
    nodeverify.NV_CLIENT_CERT: _client_cert,
    nodeverify.NV_NODELIST: check_reach,
    nodeverify.NV_SSH_SETUP: check_set_up,
    nodeverify.NV_SSH_AUTHORISED: check_authorised,
    nodeverify.NV_SSH_CANDIDATE_KEYS: candidate_keys,
    nodeverify.NV_SSH_CLUTTER: lambda node, _asked: check_clutter(node),
    nodeverify.NV_NODENETTEST: _node_net_test,
    nodeverify.NV_MASTERIP: _master_ip,
    nodeverify.NV_USERSCRIPTS: _user_scripts,
    nodeverify.NV_OOB_PATHS: _oob_paths,
    nodeverify.NV_INSTANCELIST: _instancelist,
    nodeverify.NV_HYPERVISOR: _hypervisor,
    nodeverify.NV_HVPARAMS: _hvparams,
    nodeverify.NV_HVINFO: lambda node, name: node.hypervisor(name).node_info(),
    nodeverify.NV_VERSION: lambda _node, _asked: (
        versions.PROTOCOL_VERSION,
        versions.RELEASE_VERSION,
    ),
    nodeverify.NV_NODESETUP: _nodesetup,
    nodeverify.NV_TIME: lambda node, _asked: clock.split_time(node.clock.time()),
    nodeverify.NV_DAEMON_USERS: lambda node, _asked: daemon_users.present(node.paths),
    nodeverify.NV_OSLIST: lambda node, _asked: os_definitions.diagnose(node.paths),
    nodeverify.NV_BRIDGES: basics.missing_bridges,
    nodeverify.NV_ACCEPTED_STORAGE_PATHS: lambda node, _asked: allowed.wrong_paths(
        node.paths
    ),
    nodeverify.NV_DISK_FILES: lambda node, directories: disk_files.found_below(
        node.paths, directories
    ),
    nodeverify.NV_EXPORTS: lambda node, _asked: exports.remains(node),
    nodeverify.NV_FILE_STORAGE_PATH: _storage_path,
    nodeverify.NV_SHARED_FILE_STORAGE_PATH: _storage_path,
    nodeverify.NV_GLUSTER_STORAGE_PATH: lambda node, path: gluster.check_usable(
        node.paths, path
    ),
    nodeverify.NV_COMPRESSION: _missing_tools,
    nodeverify.NV_VGLIST: lambda node, _asked: lvm.volume_groups(node.process),
    nodeverify.NV_LVLIST: storage_units.lv_list,
    nodeverify.NV_PVLIST: _pvlist,
    nodeverify.NV_EXCLUSIVEPVS: _exclusive_pvs,
    nodeverify.NV_DRBDLIST: lambda node, _asked: sorted(
        drbd_commands.mirrors(node.process)
    ),
    nodeverify.NV_DRBDVERSION: lambda _node, _asked: drbd_commands.version(),
    nodeverify.NV_DRBDHELPER: lambda _node, _asked: drbd_commands.usermode_helper(),
    nodeverify.NV_GUEST_FILES: _guest_files,
}
#: Checks that mostly wait for other nodes: they run beside the others.
_WAITING: Final = frozenset(
    {
        nodeverify.NV_NODELIST,
        nodeverify.NV_NODENETTEST,
        nodeverify.NV_MASTERIP,
    }
)
#: Checks that are skipped on nodes that never run instances.
_VM_CHECKS: Final = frozenset(
    {
        nodeverify.NV_INSTANCELIST,
        nodeverify.NV_HYPERVISOR,
        nodeverify.NV_HVPARAMS,
        nodeverify.NV_HVINFO,
        nodeverify.NV_OSLIST,
        nodeverify.NV_BRIDGES,
        nodeverify.NV_LVLIST,
        nodeverify.NV_PVLIST,
        nodeverify.NV_EXCLUSIVEPVS,
        nodeverify.NV_DRBDLIST,
        nodeverify.NV_DRBDVERSION,
        nodeverify.NV_DRBDHELPER,
        nodeverify.NV_GUEST_FILES,
    }
)


@procedure("node_verify")
def node_verify(
    node: LocalNode,
    checkdict: dict[str, Any],
    cluster_name: str,
    all_hvparams: dict[str, Any] | None,
) -> dict[str, Any]:
    """Run the requested checks; the answer has their keys.

    Files of instances that are gone are removed from the node, too.
    """
    del cluster_name, all_hvparams
    guest_files.sweep(node)
    without_vms = node.paths.hostname in checkdict.get(nodeverify.NV_NONVMNODES, ())
    wanted = {
        key: asked
        for key, asked in checkdict.items()
        if key in CHECKS and not (without_vms and key in _VM_CHECKS)
    }
    with concurrent.futures.ThreadPoolExecutor(len(_WAITING)) as pool:
        begun = [
            pool.submit(_run, node, key, wanted.pop(key))
            for key in sorted(_WAITING & wanted.keys())
        ]
        answers = [_run(node, key, asked) for key, asked in wanted.items()]
        answers += [each.result() for each in begun]
    return {key: value for answer in answers for key, value in answer.items()}


def _run(node: LocalNode, key: str, asked: Any) -> dict[str, Any]:
    """Return the answer of one check by its key; nothing if it fails."""
    try:
        return {key: CHECKS[key](node, asked)}
    except (errors.GenericError, OSError, ValueError, TypeError) as err:
        _log.warning("check %s failed: %s", key, err)
        return {}


@procedure("node_verify_light")
def node_verify_light(
    node: LocalNode,
    checkdict: dict[str, Any],
    cluster_name: str,
    hvparams: dict[str, Any] | None,
) -> dict[str, Any]:
    """Run `node_verify` for callers without a configuration."""
    return node_verify(node, checkdict, cluster_name, hvparams)

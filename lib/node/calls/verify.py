"""Checks of ``node_verify``: each key of the request is one check, see `CHECKS`.

The functions describe the shapes of requests and answers; the master interprets the
answers. A check that raises an error is left out of the answer.
"""

import concurrent.futures
import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any, Final

from ganeti.base import clock, daemon_users, errors
from ganeti.base.constants import versions
from ganeti.base.constants.protocols import export as export_constants
from ganeti.base.constants.protocols import nodeverify as nodeverify_constants
from ganeti.base.filesystem import files, trusted_files
from ganeti.base.net import netutils
from ganeti.base.process import SAFE_PATH
from ganeti.base.tls import x509
from ganeti.node.calls import node_info
from ganeti.node.calls.disks import exports, volumes
from ganeti.node.calls.guests import leftovers
from ganeti.node.calls.os import os_definitions
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.calls.trust import ssh_verify
from ganeti.node.storage import allowed, drbd_commands, drbd_tools, gluster, lvm
from ganeti.node.storage import files as disk_files
from ganeti.protocols.rpc import node_port

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


def _nodelist(node: LocalNode, ports: dict[str, int]) -> dict[str, str]:
    """Return node name -> SSH failure; takes node name -> port."""
    return ssh_verify.check_reach(node, ports)


def _ssh_setup(node: LocalNode, rows: list[tuple[str, str, bool, bool]]) -> list[str]:
    """Return problems of the key files; takes uuid, name and two roles of all nodes."""
    return ssh_verify.check_set_up(node, rows)


def _ssh_authorised(node: LocalNode, asked: dict[str, list[str]]) -> list[str]:
    """Return problems of authorized_keys; takes name -> key lines of candidates."""
    return ssh_verify.check_authorised(node, asked)


def _ssh_candidate_keys(node: LocalNode, uuids: list[str]) -> dict[str, list[str]]:
    """Return the public keys of nodes that this node, the master, knows."""
    return ssh_verify.candidate_keys(node, uuids)


def _ssh_clutter(node: LocalNode, _asked: Any) -> list[str]:
    """Return the nodes that have several keys in a key file."""
    return ssh_verify.check_clutter(node)


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


def _hvinfo(node: LocalNode, hypervisor: str) -> dict[str, Any]:
    """Return memory and processors that a hypervisor reports."""
    return node.hypervisor(hypervisor).node_info()


def _version(_node: LocalNode, _asked: Any) -> tuple[int, str]:
    """Return protocol and release version."""
    return versions.PROTOCOL_VERSION, versions.RELEASE_VERSION


def _nodesetup(_node: LocalNode, _asked: Any) -> list[str]:
    """Return the file systems that every node needs and that this machine lacks."""
    problems = []
    if not os.path.isdir("/sys/block") or not os.path.isdir("/sys/class/net"):
        problems.append("the sysfs filesystem doesn't seem to be mounted under /sys")
    if not os.path.isdir("/proc/sys") or not os.path.exists("/proc/self/stat"):
        problems.append("the procfs filesystem doesn't seem to be mounted under /proc")
    return problems


def _time(node: LocalNode, _asked: Any) -> tuple[int, int]:
    """Return seconds and microseconds since 1970."""
    return clock.split_time(node.clock.time())


def _daemon_users(node: LocalNode, _asked: Any) -> dict[str, str]:
    """Return name -> user of each running daemon that has a user of its own."""
    return daemon_users.present(node.paths)


def _oslist(node: LocalNode, _asked: Any) -> list[list[Any]]:
    """Return the OS definitions, as ``os_diagnose``."""
    return os_definitions.diagnose(node.paths)


def _bridges(node: LocalNode, names: list[str]) -> list[str]:
    """Return the names that are not bridges of this node."""
    return node_info.missing_bridges(node, names)


def _allowed_paths(node: LocalNode, _asked: Any) -> list[str]:
    """Return the forbidden directories in the list of storage directories."""
    return allowed.wrong_paths(node.paths)


def _storage_path(node: LocalNode, path: str) -> str | None:
    """Return the reason why a storage directory cannot be used, or null."""
    return allowed.check_usable(node.paths, path)


def _gluster_path(node: LocalNode, path: Any) -> str | None:
    """Return why Gluster volumes cannot be mounted below a directory."""
    return gluster.check_usable(node.paths, path)


def _disk_files(node: LocalNode, directories: list[str]) -> dict[str, int]:
    """Return path -> bytes of the disk files below directories, paths as recorded."""
    return disk_files.found_below(node.paths, directories)


def _exports(node: LocalNode, _asked: Any) -> dict[str, str]:
    """Return what is in the export directory beside complete exports: name -> kind."""
    return exports.remains(node)


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
    commands = export_constants.IEC_COMMANDS
    return [
        tool
        for tool in tools
        if shutil.which(commands.get(tool, (tool,))[0], path=SAFE_PATH) is None
    ]


def _vglist(node: LocalNode, _asked: Any) -> dict[str, int]:
    """Return volume group -> MiB."""
    return lvm.volume_groups(node.process)


def _lvlist(node: LocalNode, group: str) -> dict[str, Any]:
    """Return the volumes of a group in the form of ``lv_list``."""
    return volumes.lv_list(node, group)


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


def _drbd_list(node: LocalNode, _asked: Any) -> list[int]:
    """Return the minors in use."""
    return sorted(drbd_commands.mirrors(node.process))


def _drbd_version(_node: LocalNode, _asked: Any) -> str:
    """Return the version of DRBD's kernel module."""
    return drbd_tools.version()


def _drbd_helper(_node: LocalNode, _asked: Any) -> str:
    """Return the program that DRBD's kernel module calls."""
    return drbd_tools.usermode_helper()


Check = Callable[[LocalNode, Any], Any]
#: All checks by key; answers lack the keys that are not in this table.
CHECKS: Final[Mapping[str, Check]] = {
    nodeverify_constants.NV_FILELIST: _filelist,
    nodeverify_constants.NV_CLIENT_CERT: _client_cert,
    nodeverify_constants.NV_NODELIST: _nodelist,
    nodeverify_constants.NV_SSH_SETUP: _ssh_setup,
    nodeverify_constants.NV_SSH_AUTHORISED: _ssh_authorised,
    nodeverify_constants.NV_SSH_CANDIDATE_KEYS: _ssh_candidate_keys,
    nodeverify_constants.NV_SSH_CLUTTER: _ssh_clutter,
    nodeverify_constants.NV_NODENETTEST: _node_net_test,
    nodeverify_constants.NV_MASTERIP: _master_ip,
    nodeverify_constants.NV_USERSCRIPTS: _user_scripts,
    nodeverify_constants.NV_OOB_PATHS: _oob_paths,
    nodeverify_constants.NV_INSTANCELIST: _instancelist,
    nodeverify_constants.NV_HYPERVISOR: _hypervisor,
    nodeverify_constants.NV_HVPARAMS: _hvparams,
    nodeverify_constants.NV_HVINFO: _hvinfo,
    nodeverify_constants.NV_VERSION: _version,
    nodeverify_constants.NV_NODESETUP: _nodesetup,
    nodeverify_constants.NV_TIME: _time,
    nodeverify_constants.NV_DAEMON_USERS: _daemon_users,
    nodeverify_constants.NV_OSLIST: _oslist,
    nodeverify_constants.NV_BRIDGES: _bridges,
    nodeverify_constants.NV_ACCEPTED_STORAGE_PATHS: _allowed_paths,
    nodeverify_constants.NV_DISK_FILES: _disk_files,
    nodeverify_constants.NV_EXPORTS: _exports,
    nodeverify_constants.NV_FILE_STORAGE_PATH: _storage_path,
    nodeverify_constants.NV_SHARED_FILE_STORAGE_PATH: _storage_path,
    nodeverify_constants.NV_GLUSTER_STORAGE_PATH: _gluster_path,
    nodeverify_constants.NV_COMPRESSION: _missing_tools,
    nodeverify_constants.NV_VGLIST: _vglist,
    nodeverify_constants.NV_LVLIST: _lvlist,
    nodeverify_constants.NV_PVLIST: _pvlist,
    nodeverify_constants.NV_EXCLUSIVEPVS: _exclusive_pvs,
    nodeverify_constants.NV_DRBDLIST: _drbd_list,
    nodeverify_constants.NV_DRBDVERSION: _drbd_version,
    nodeverify_constants.NV_DRBDHELPER: _drbd_helper,
    nodeverify_constants.NV_GUEST_FILES: _guest_files,
}
#: Checks that mostly wait for other nodes: they run beside the others.
_WAITING: Final = frozenset(
    {
        nodeverify_constants.NV_NODELIST,
        nodeverify_constants.NV_NODENETTEST,
        nodeverify_constants.NV_MASTERIP,
    }
)
#: Checks that are skipped on nodes that never run instances.
_VM_CHECKS: Final = frozenset(
    {
        nodeverify_constants.NV_INSTANCELIST,
        nodeverify_constants.NV_HYPERVISOR,
        nodeverify_constants.NV_HVPARAMS,
        nodeverify_constants.NV_HVINFO,
        nodeverify_constants.NV_OSLIST,
        nodeverify_constants.NV_BRIDGES,
        nodeverify_constants.NV_LVLIST,
        nodeverify_constants.NV_PVLIST,
        nodeverify_constants.NV_EXCLUSIVEPVS,
        nodeverify_constants.NV_DRBDLIST,
        nodeverify_constants.NV_DRBDVERSION,
        nodeverify_constants.NV_DRBDHELPER,
        nodeverify_constants.NV_GUEST_FILES,
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
    leftovers.sweep(node)
    without_vms = node.paths.hostname in checkdict.get(
        nodeverify_constants.NV_NONVMNODES, ()
    )
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

"""The requests of verification to nodes, its ssconf files and its output.

`decisions.verify` evaluates the answers.
"""

import hashlib
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors, pathutils
from ganeti.base.constants.protocols import nodeverify
from ganeti.decisions.verify import Report, cluster, guest_files, node_answer
from ganeti.master import config
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations import ancillary_files, candidate_role
from ganeti.operations.base import Context, Feedback
from ganeti.protocols.rpc import Request, calls, encode, wire
from ganeti.protocols.ssconf import KEYS, SimpleStore
from ganeti.protocols.ssconf import encode as encode_value

#: Nodes write the files shortly after the configuration changed: nodes that differ
#: are asked again this often, after so many seconds.
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.3
#: File -> checksum; None if a node returned none.
Sums = Mapping[str, str] | None


def ask_disks(
    ctx: Context,
    snapshot: objects.Snapshot,
    inside: Sequence[objects.Instance],
    answers: Collection[str],
) -> dict[str, dict[str, Sequence[Any]]]:
    """Return instance uuid -> node uuid -> (ok, status or text) per disk.

    Args:
        ctx: dependencies of the opcode.
        snapshot: the configuration.
        inside: the instances.
        answers: uuids of the nodes that have answered.
    """
    by_node: dict[str, list[objects.Instance]] = {}
    for instance in inside:
        if instance.disks and all(u in snapshot.disks for u in instance.disks):
            for uuid in snapshot.instance_nodes(instance):
                if uuid in answers:
                    by_node.setdefault(uuid, []).append(instance)
    if not by_node:
        return {}

    def question(node: str) -> Request[Any]:
        return calls.blockdev_getmirrorstatus_multi(
            [
                encode.disk(snapshot, disk, instance)
                for instance in by_node[node]
                for disk in snapshot.instance_disks(instance)
            ]
        )

    replies = ctx.rpc.call_nodes(sorted(by_node), question)
    disks: dict[str, dict[str, Sequence[Any]]] = {}
    for uuid, owners in by_node.items():
        answer = replies[uuid]
        total = sum(len(instance.disks) for instance in owners)
        rows = node_answer.disk_rows(
            msgspec.to_builtins(answer.payload), total, answer.fail_msg
        )
        for instance in owners:
            count = len(instance.disks)
            disks.setdefault(instance.uuid, {})[uuid] = rows[:count]
            rows = rows[count:]
    return disks


def files(paths: pathutils.Paths) -> list[str]:
    """Return all ssconf files, as paths that other nodes understand."""
    store = SimpleStore(paths)
    return [paths.virtualize(store.path(key)) for key in KEYS]


def judge(ctx: Context, report: Report, sums: Mapping[str, Sums]) -> None:
    """Report ssconf files that are missing or differ, once per file.

    Args:
        ctx: of the unit.
        report: takes the findings.
        sums: node uuid -> checksums of its `files`, None if it returned none; such
            nodes are skipped.
    """
    names = ctx.snapshot.nodes
    for problem in _encoded(ctx)[1]:
        report.error("ECLUSTERFILECHECK", None, f"no node gets it: {problem}")
    for path, uuids in sorted(_settled(ctx, sums).items()):
        where = ", ".join(sorted(names[uuid].name for uuid in uuids))
        report.error(
            "ECLUSTERFILECHECK",
            None,
            f"file {path} differs from the configuration on node(s) {where}",
        )


def _settled(ctx: Context, sums: Mapping[str, Sums]) -> Mapping[str, list[str]]:
    """Return file -> nodes where it still differs after repeated checks."""
    never = threading.Event()
    differing = _differing(ctx, sums)
    for attempt in range(_ATTEMPTS):
        if not differing:
            break
        if attempt:
            ctx.clock.wait(never, _PAUSE_S)
        nodes = sorted({uuid for uuids in differing.values() for uuid in uuids})
        differing = _differing(ctx, _ask(ctx, nodes))
    return differing


def _ask(ctx: Context, nodes: Sequence[str]) -> dict[str, Sums]:
    asked = {nodeverify.NV_FILELIST: files(ctx.paths)}
    answers = ctx.rpc.call_nodes(
        nodes, calls.node_verify(asked, ctx.snapshot.cluster.cluster_name, {})
    )
    return {
        uuid: node_answer.clean(answer.payload)[0].get(nodeverify.NV_FILELIST)
        for uuid, answer in answers.items()
    }


def _differing(ctx: Context, sums: Mapping[str, Sums]) -> dict[str, list[str]]:
    checksums = _checksums(ctx) if sums else {}
    differing: dict[str, list[str]] = {}
    for uuid, actual in sums.items():
        if actual is None:
            continue
        for path, checksum in checksums.items():
            if actual.get(ctx.paths.virtualize(path)) != checksum:
                plain = path.removeprefix(ctx.paths.root)
                differing.setdefault(plain, []).append(uuid)
    return differing


def _checksums(ctx: Context) -> dict[str, str]:
    """Return the expected files of the master: path -> checksum."""
    store = SimpleStore(ctx.paths)
    return {
        store.path(key): hashlib.sha1(data, usedforsecurity=False).hexdigest()
        for key, data in _encoded(ctx)[0].items()
    }


def _encoded(ctx: Context) -> tuple[dict[str, bytes], list[str]]:
    """Return the content of each file, and why others can have none."""
    contents, problems = {}, []
    for key, value in config.ssconf_values(ctx.snapshot).items():
        try:
            contents[key] = encode_value(key, value)
        except errors.ConfigurationError as err:
            problems.append(str(err))
    return contents, problems


#: Number of nodes of a large group to which each candidate but the master logs in.
SSH_PEERS: Final = 3


def checks(
    snapshot: objects.Snapshot,
    group: str,
    paths: pathutils.Paths,
    *,
    instances: Sequence[objects.Instance],
    clutter: bool,
) -> dict[str, Any]:
    """Return the ``checkdict`` for the nodes of a group.

    Args:
        snapshot: the configuration.
        group: uuid of the group.
        paths: files of the master.
        instances: those whose primary node is in the group.
        clutter: look for stray SSH keys in authorized_keys.
    """
    record = snapshot.cluster
    members = online(snapshot, snapshot.nodes_in_group(group))
    master = snapshot.nodes[record.master_node]
    asked: dict[str, Any] = {
        nodeverify.NV_FILELIST: [
            *shared_files(snapshot, paths),
            *files(paths),
        ],
        nodeverify.NV_CLIENT_CERT: None,
        nodeverify.NV_NODELIST: _ssh_checks(snapshot, group, members),
        nodeverify.NV_NODENETTEST: [
            [node.name, node.primary_ip, node.secondary_ip] for node in members
        ],
        nodeverify.NV_MASTERIP: [master.name, record.master_ip],
        nodeverify.NV_HYPERVISOR: list(record.enabled_hypervisors),
        nodeverify.NV_HVPARAMS: [
            [where, name, dict(values)]
            for where, name, values in cluster.hypervisor_sources(snapshot)
        ],
        nodeverify.NV_INSTANCELIST: list(record.enabled_hypervisors),
        nodeverify.NV_HVINFO: record.enabled_hypervisors[0],
        nodeverify.NV_VERSION: None,
        nodeverify.NV_NODESETUP: None,
        nodeverify.NV_TIME: None,
        nodeverify.NV_DAEMON_USERS: None,
        nodeverify.NV_OSLIST: None,
        nodeverify.NV_NONVMNODES: [
            node.name for node in members if not node.vm_capable
        ],
        nodeverify.NV_BRIDGES: _bridges(snapshot, instances),
    }
    if names := guest_files.owners(instances):
        asked[nodeverify.NV_GUEST_FILES] = names
    asked.update(_where_configured(snapshot, paths))
    if clutter:
        asked[nodeverify.NV_SSH_CLUTTER] = True
    return asked


def online(snapshot: objects.Snapshot, uuids: Collection[str]) -> list[objects.Node]:
    """Return online nodes, sorted by name."""
    nodes = (snapshot.nodes[uuid] for uuid in uuids)
    return sorted(
        (node for node in nodes if not node.offline), key=lambda node: node.name
    )


def shared_files(snapshot: objects.Snapshot, paths: pathutils.Paths) -> list[str]:
    """Return the files to compare, as paths that other nodes understand."""
    sets = ancillary_files.file_sets(snapshot, paths)
    everything = (*sets.all_nodes, *sets.vm_nodes, *sets.candidates, paths.server_pem)
    return [paths.virtualize(path) for path in everything]


def _ssh_checks(
    snapshot: objects.Snapshot, group: str, members: Sequence[objects.Node]
) -> wire.PerNode:
    """Return the nodes to log in to: name -> SSH port.

    The master logs in to the whole group and to one node of each other group. Any
    other candidate of a small group logs in to all these; in a large one, to a few
    nodes of the group, different ones with each revision, because logins between all
    pairs of nodes take long. Only candidates can log in to other nodes, so the list of
    any other node is empty. No candidate of a small group logs in to itself if there is
    another one to try its SSH server; the master does if nothing else checks that its
    own key is authorised.
    """
    targets = list(members)
    for other in sorted(snapshot.nodegroups):
        if other != group:
            targets.extend(online(snapshot, snapshot.nodes_in_group(other))[:1])
    ports = {
        node.name: params.fill_ndparams(snapshot, node)["ssh_port"] for node in targets
    }

    is_alone = sum(node.master_candidate for node in members) == 1

    def chosen(place: int, node: objects.Node) -> dict[str, int]:
        if not node.master_candidate:
            return {}
        is_master = node.uuid == snapshot.cluster.master_node
        if len(members) <= SSH_PEERS + 1:
            tries_itself = is_alone or (
                is_master and not snapshot.cluster.modify_ssh_setup
            )
            return {
                name: port
                for name, port in ports.items()
                if tries_itself or name != node.name
            }
        if is_master:
            return ports
        # Steps go from 1 to one less than the size of the group.
        first = snapshot.revision * SSH_PEERS
        steps = ((first + step) % (len(members) - 1) + 1 for step in range(SSH_PEERS))
        peers = [members[(place + step) % len(members)] for step in steps]
        return {peer.name: ports[peer.name] for peer in peers}

    return wire.PerNode(
        {node.uuid: chosen(place, node) for place, node in enumerate(members)}
    )


def _bridges(
    snapshot: objects.Snapshot, instances: Sequence[objects.Instance]
) -> list[str]:
    """Return the bridges that the default and the instances of a group need."""
    defaults = params.nicparams_for(snapshot.cluster, {})
    bridges = {defaults["link"]} if defaults["mode"] == "bridged" else set()
    for instance in instances:
        for nic in instance.nics:
            filled = params.fill_nicparams(snapshot, nic)
            if filled["mode"] == "bridged":
                bridges.add(filled["link"])
    return sorted(bridges)


def _where_configured(
    snapshot: objects.Snapshot, paths: pathutils.Paths
) -> dict[str, Any]:
    record = snapshot.cluster
    asked: dict[str, Any] = {}
    if record.modify_ssh_setup:
        asked[nodeverify.NV_SSH_SETUP] = candidate_role.key_owners(snapshot)
    if record.use_external_mip_script:
        script = f"{paths.conf_dir}/scripts/master-ip-setup"
        asked[nodeverify.NV_USERSCRIPTS] = [paths.virtualize(script)]
    # Each candidate can become the master, which runs the helpers of all nodes.
    helpers = {params.oob_program(snapshot, node) for node in snapshot.nodes.values()}
    if programs := sorted(helpers - {""}):
        asked[nodeverify.NV_OOB_PATHS] = programs
    asked[nodeverify.NV_EXPORTS] = None
    if record.compression_tools:
        asked[nodeverify.NV_COMPRESSION] = list(record.compression_tools)
    return asked | _of_storage(snapshot)


def _of_storage(snapshot: objects.Snapshot) -> dict[str, Any]:
    record = snapshot.cluster
    asked: dict[str, Any] = {}
    enabled = record.enabled_disk_templates
    if {"file", "sharedfile"} & set(enabled):
        asked[nodeverify.NV_ACCEPTED_STORAGE_PATHS] = True
        directories = (record.file_storage_dir, record.shared_file_storage_dir)
        asked[nodeverify.NV_DISK_FILES] = [path for path in directories if path]
    if "file" in enabled:
        asked[nodeverify.NV_FILE_STORAGE_PATH] = record.file_storage_dir
    if "sharedfile" in enabled:
        asked[nodeverify.NV_SHARED_FILE_STORAGE_PATH] = record.shared_file_storage_dir
    if "gluster" in enabled:
        asked[nodeverify.NV_GLUSTER_STORAGE_PATH] = record.gluster_storage_dir
    if record.volume_group_name:
        asked[nodeverify.NV_VGLIST] = None
        asked[nodeverify.NV_LVLIST] = record.volume_group_name
        if any(params.has_exclusive_storage(snapshot, uuid) for uuid in snapshot.nodes):
            asked[nodeverify.NV_PVLIST] = [record.volume_group_name]
            asked[nodeverify.NV_EXCLUSIVEPVS] = True
    if "drbd" in enabled:
        asked[nodeverify.NV_DRBDLIST] = None
        asked[nodeverify.NV_DRBDVERSION] = None
        if record.drbd_usermode_helper:
            asked[nodeverify.NV_DRBDHELPER] = record.drbd_usermode_helper
    return asked


class Output:
    """Writer of findings to the job log, under their step."""

    def __init__(self, log: Feedback, report: Report, *, error_codes: bool) -> None:
        self._log = log
        self._report = report
        self._error_codes = error_codes

    def step(self, text: str) -> None:
        """Write the findings so far, then begin a step."""
        self.flush()
        self._log.message(f"* {text}")

    def flush(self) -> None:
        """Write the findings since the last call."""
        for finding in self._report.take():
            self._log.message(finding.line(error_codes=self._error_codes))

    def notice(self, text: str) -> None:
        """Write a note."""
        self._log.message(f"  - NOTICE: {text}")

    def note(self, count: int, what: str) -> None:
        """Write a note about a number of objects, unless it is 0."""
        if count:
            self._log.message(f"  - NOTICE: {count} {what} found.")

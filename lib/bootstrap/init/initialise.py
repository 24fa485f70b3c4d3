"""Creation of a cluster with one node."""

import contextlib
import os
from typing import Any, Final

from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import daemons, versions
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner
from ganeti.bootstrap import cluster_files, crypto, jobs, machine_checks, store_access
from ganeti.bootstrap.init import bridge, checks, initial_config, machine_defaults
from ganeti.bootstrap.jobs import wait_until
from ganeti.bootstrap.options import Feedback, InitOptions
from ganeti.master import config
from ganeti.model import opcodes
from ganeti.model.objects import Cluster, Snapshot
from ganeti.node.services import Services
from ganeti.node.storage import allowed
from ganeti.protocols import rpc, ssconf
from ganeti.protocols.rpc import calls
from ganeti.protocols.ssconf import SimpleStore
from ganeti.store import choice
from ganeti.store.etcd.servers import remove_store

#: Longest time until the node daemon, which has just started, answers.
#: One call can fail on a busy machine, and its failure undoes the whole creation.
_NODE_DAEMON_S: Final = 30.0
_DIRECTORY_MODES: Final = ((0o755, "data"), (0o755, "run"), (0o750, "log"))


def init_cluster(
    paths: Paths,
    process: Runner,
    clock: Clock,
    options: InitOptions,
    *,
    feedback: Feedback,
) -> None:
    """Create a cluster with this machine as its master and only node.

    If a step fails, the steps before it are undone: daemons are stopped, the cluster's
    files and what was added to those of the machine are removed. A key of root stays.

    Args:
        paths: of this node.
        process: starts daemons.
        clock: for time stamps.
        options: the cluster's properties.
        feedback: called with each step.

    Raises:
        OpPrereqError: a prerequisite is not met, see `checks.gather`.
        OpExecError: a step failed.
    """
    host, resolved = _prepare(paths, process, options)
    options = resolved.options
    first = initial_config.make(options, host, clock.time())
    services = Services(paths, process)
    # Asked before the first change: its servers may not answer, or have a store
    # already.
    place = store_access.find_place(options.store)
    for note in (*resolved.notes, *_notes(paths, process, options, first.cluster)):
        feedback(note)
    with contextlib.ExitStack() as undo:
        if resolved.new_bridge:
            _create_bridge(paths, process, resolved.new_bridge, undo, feedback)
        _allow_storage(paths, host, undo, feedback)
        _make_directories(paths)
        # Before the first file is written: a part of them has to be removed, too.
        undo.callback(remove_cluster_files, paths)
        feedback("Writing certificates and keys")
        crypto.write_cluster_files(paths, first.cluster.cluster_name)
        digest = crypto.write_node_certificate(paths, first.node.uuid, clock.time())
        crypto.write_known_hosts(paths, first.cluster, first.node)
        if options.modify_ssh_setup:
            kind, bits = initial_config.ssh_key(options)
            crypto.set_up_ssh(paths, undo, uuid=first.node.uuid, kind=kind, bits=bits)
        cluster = first.cluster.replace(candidate_certs={first.node.uuid: digest})
        feedback("Writing the first configuration")
        snapshot = _write_configuration(paths, clock, first, cluster)
        if place is not None:
            feedback(f"Moving the configuration to {place.servers}")
            undo.callback(_remove_store, place, feedback)
            place.fill(paths, first.node.uuid)
        # Before the node daemon starts: these files name the callers that it accepts.
        ssconf.write(paths, config.ssconf_values(snapshot))
        # The last one that is added is undone first: daemons end before their files go.
        undo.callback(_stop_quietly, services, feedback)
        feedback("Starting the node daemon")
        services.start("ganeti-noded")
        _check_node_daemon(paths, host, clock)
        if options.modify_etc_hosts:
            _add_to_hosts(paths, host, undo, feedback)
        feedback("Starting the master daemon")
        services.start_master()
        services.start("ganeti-confd")
        if services.has("ganeti-mond"):
            services.start("ganeti-mond")
        if place is not None:
            services.start("ganeti-standby")
        jobs.run(paths, [opcodes.ClusterPostInit()], feedback)
        undo.pop_all()


def plan(
    paths: Paths, process: Runner, clock: Clock, options: InitOptions
) -> list[str]:
    """Check the prerequisites; return the steps of `init_cluster` as text, in order.

    Raises:
        OpPrereqError: a prerequisite is not met.
    """
    host, resolved = _prepare(paths, process, options)
    options = resolved.options
    first = initial_config.make(options, host, clock.time())
    steps = [*resolved.notes, *_notes(paths, process, options, first.cluster)]
    if resolved.new_bridge:
        steps.append(f"create the bridge {resolved.new_bridge}, without ports")
    if not os.path.lexists(allowed.list_file(paths)):
        listed = [path for path in allowed.BUILT_IN if path in _storage(host)]
        steps += [f"list {path} in {allowed.list_file(paths)}" for path in listed]
    steps += [
        f"create the directories {paths.data_dir}, {paths.run_dir}, {paths.log_dir}",
        f"write certificates and keys in {paths.data_dir}",
    ]
    place = store_access.find_place(options.store)
    if options.modify_ssh_setup:
        kind, bits = initial_config.ssh_key(options)
        steps.append(f"generate and authorize SSH keys of root ({kind}, {bits} bits)")
    steps += [
        (
            f"write the configuration: cluster {host.cluster_name}, address"
            f" {host.master_ip}/{host.netmask}, master {host.hostname}, hypervisors"
            f" {', '.join(first.cluster.enabled_hypervisors)}, disk templates"
            f" {', '.join(first.cluster.enabled_disk_templates)}"
        ),
        *([] if place is None else [f"move the configuration to {place.servers}"]),
        "start ganeti-noded",
    ]
    if options.modify_etc_hosts:
        steps.append(f"add {host.hostname} to the hosts file")
    if place is not None:
        steps.append("start ganeti-standby, which takes over when no master leads")
    steps += ["start ganeti-masterd", "submit OP_CLUSTER_POST_INIT, which runs hooks"]
    return steps


def _prepare(
    paths: Paths, process: Runner, options: InitOptions
) -> tuple[initial_config.MasterHost, machine_defaults.Resolved]:
    """Check the machine; return its data and the options with its defaults."""
    checks.check_unused(paths)
    _name, address = checks.own_name(paths, checks.family_of(options))
    resolved = machine_defaults.resolve(paths, process, options, address)
    initial_config.check_offered(resolved.options)
    return checks.gather(paths, process, resolved.options), resolved


def _notes(
    paths: Paths, process: Runner, options: InitOptions, cluster: Cluster
) -> list[str]:
    """Return what an administrator has to know about services and packet filters."""
    notes = machine_checks.boot_warnings(paths, process)
    if not paths.is_virtual:
        ssh_port = initial_config.filled_ndparams(options)["ssh_port"]
        migration = machine_checks.migration_ports(
            cluster.enabled_hypervisors, cluster.hvparams
        )
        ports = machine_checks.of_nodes(ssh_port, migration)
        notes += machine_checks.filter_notes(process, ports)
    return notes


def _storage(host: initial_config.MasterHost) -> list[str]:
    """Return the directories of disk files of the new cluster."""
    directories = (host.file_storage_dir, host.shared_file_storage_dir)
    return [path for path in directories if path]


def _allow_storage(
    paths: Paths,
    host: initial_config.MasterHost,
    undo: contextlib.ExitStack,
    feedback: Feedback,
) -> None:
    """Write the list of directories for disk files, and report what it lacks."""
    path = allowed.list_file(paths)
    listed = allowed.write_default_list(paths, _storage(host))
    if listed:
        undo.callback(files.remove_file, path)
        feedback(f"Allowing disk files in {', '.join(listed)}: {path}")
    for directory in _storage(host):
        problem = allowed.check_usable(paths, directory)
        if problem:
            feedback(f"Warning: {problem}; correct this on every node")


def _create_bridge(
    paths: Paths,
    process: Runner,
    name: str,
    undo: contextlib.ExitStack,
    feedback: Feedback,
) -> None:
    """Create a bridge now and at each boot."""
    feedback(f"Creating the bridge {name}, without ports")
    undo.callback(bridge.remove, process, name)
    bridge.create(process, name)
    configured = bridge.configuration(process, paths.root, name)
    for path in configured:
        undo.callback(files.remove_file, path)
    bridge.write(process, name, configured)
    if not configured:
        feedback(bridge.not_permanent(name))


def _make_directories(paths: Paths) -> None:
    places = {"data": paths.data_dir, "run": paths.run_dir, "log": paths.log_dir}
    for mode, name in _DIRECTORY_MODES:
        files.make_dir(places[name], mode)


def _write_configuration(
    paths: Paths, clock: Clock, first: initial_config.FirstRecords, cluster: Any
) -> Snapshot:
    updates = config.initial_changes(cluster, first.group, first.node)
    # There is no other candidate that could have a copy.
    engine = store.open_master(paths.store_db, replicate=None, clock=clock)
    try:
        engine.commit(updates)
        return engine.snapshot()
    finally:
        engine.close()


def _static_runner(paths: Paths, host: initial_config.MasterHost) -> rpc.StaticRunner:
    port = daemons.DAEMONS["ganeti-noded"].port or 0
    # No configuration of a master that runs knows this node yet.
    target = rpc.Target(host.hostname, host.hostname, host.primary_ip, port)
    return rpc.StaticRunner([target], paths)


def _check_node_daemon(
    paths: Paths, host: initial_config.MasterHost, clock: Clock
) -> None:
    """Wait until the node daemon answers; check that it has this program's version."""
    runner = _static_runner(paths, host)
    answers: list[rpc.Result] = []

    def has_answered() -> bool:
        answers.append(runner.call_node(host.hostname, calls.version()))
        return not answers[-1].failed

    try:
        wait_until(has_answered, clock, timeout_s=_NODE_DAEMON_S)
    finally:
        runner.close()
    log_file = f"{paths.log_dir}/node-daemon.log"
    version = answers[-1].unwrap(
        f"cannot reach the new node daemon, see {log_file} on this machine"
    )
    if version != versions.PROTOCOL_VERSION:
        raise errors.OpExecError(
            f"node {host.hostname}: wanted a node daemon of version"
            f" {versions.PROTOCOL_VERSION}, found {version}"
        )


def _add_to_hosts(
    paths: Paths,
    host: initial_config.MasterHost,
    undo: contextlib.ExitStack,
    feedback: Feedback,
) -> None:
    def change(mode: str, address: str | None) -> rpc.Result:
        runner = _static_runner(paths, host)
        request = calls.etc_hosts_modify(mode, host.hostname, address)
        try:
            return runner.call_node(host.hostname, request)
        finally:
            runner.close()

    before = _hosts_file(paths)
    answer = change("add", host.primary_ip)
    after = _hosts_file(paths)

    def undo_change() -> None:
        # The name was also taken out of lines with other addresses.
        if _hosts_file(paths) == after:
            path = paths.at(netutils.HOSTS_FILE)
            files.write_file(path, before, mode=os.stat(path).st_mode & 0o777)
            return
        answer = change("remove", None)
        if answer.failed:
            feedback(f"Warning: {answer.describe('the hosts file keeps this node')}")

    # A line of an earlier cluster stays: this machine may need it to find its address.
    if after != before:
        undo.callback(undo_change)
    answer.unwrap("cannot add this node to the hosts file")


def _hosts_file(paths: Paths) -> bytes:
    try:
        return files.read_file(paths.at(netutils.HOSTS_FILE))
    except FileNotFoundError:
        return b""


def _remove_store(place: store_access.Place, feedback: Feedback) -> None:
    try:
        place.remove()
    except errors.GenericError as err:
        feedback(f"Warning: {err}")


def _stop_quietly(services: Services, feedback: Feedback) -> None:
    try:
        services.stop_all()
    except errors.GenericError as err:
        feedback(f"Warning: {err}")


def remove_cluster_files(paths: Paths) -> None:
    """Remove all cluster files from this node."""
    for path in cluster_files.of_node(paths):
        files.remove_file(path)


def finalize_destroy(paths: Paths, process: Runner, *, feedback: Feedback) -> None:
    """Stop the master daemons and remove the cluster's files from this node.

    The configuration is removed last, so the command can be repeated after a failure.

    Raises:
        OpExecError: the master daemons do not stop.
    """
    services = Services(paths, process)
    servers = choice.read(paths)
    if servers is not None:
        services.stop("ganeti-standby")
    services.stop_master()
    if servers is not None:
        try:
            remove_store(servers)
        except errors.StorageError as err:
            feedback(f"Warning: {err}")
    _leave_cluster(paths, feedback)
    try:
        services.stop_all()
    except errors.GenericError as err:
        feedback(f"Warning: {err}")
    remove_cluster_files(paths)


def destruction_steps(paths: Paths) -> list[str]:
    """Return the steps of `finalize_destroy` as text, in order."""
    return [
        "stop the master daemons",
        *(["remove the store from etcd"] if choice.is_etcd(paths) else []),
        "let the node daemon remove keys, certificates and ssconf files of the cluster",
        "stop all daemons",
        (
            f"remove the remaining files of the cluster in {paths.data_dir}, the"
            " configuration last"
        ),
    ]


def _leave_cluster(paths: Paths, feedback: Feedback) -> None:
    """Let this node's daemon remove its cluster files; a failure is a warning."""
    ssconf = SimpleStore(paths)
    name = paths.hostname
    address = ssconf.node_primary_ips().get(name)
    if address is None:
        return
    port = daemons.DAEMONS["ganeti-noded"].port or 0
    runner = rpc.StaticRunner([rpc.Target(name, name, address, port)], paths)
    try:
        # The node daemon does this, so it is stopped only afterwards.
        answer = runner.call_node(name, calls.node_leave_cluster(True))
    finally:
        runner.close()
    if answer.failed:
        feedback(f"Warning: {answer.describe('cannot leave the cluster cleanly')}")

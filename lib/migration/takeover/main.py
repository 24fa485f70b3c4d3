"""``take-over``: move a live cluster of another Ganeti 3 here, or back."""

import argparse
import contextlib
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import simplejson

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.constants import disks, ecodes
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.process import SystemRunner
from ganeti.migration import cfgupgrade, old_config, old_jobs
from ganeti.migration.takeover import access, steps
from ganeti.migration.takeover import journal as record
from ganeti.migration.takeover.journal import Journal, Target
from ganeti.model.objects import Snapshot
from ganeti.node.hypervisor.registry import DRIVERS
from ganeti.protocols.ssconf import SimpleStore
from ganeti.tools import common

# Parts of a configuration that this release does not offer, as lines of text.

#: Hypervisors whose instances are only known to run if this release has started them.
_UNSEEN: Final = ("chroot", "lxc")


class Findings(NamedTuple):
    """Results of a check.

    Attributes:
        obstacles: reasons that prevent the take-over.
        notes: parts that stay in the configuration but cannot be used.
    """

    obstacles: list[str]
    notes: list[str]


def findings_of_configuration(
    snapshot: Snapshot, hypervisors: Collection[str]
) -> Findings:
    """Return the parts of a configuration that this release does not offer.

    Args:
        snapshot: the configuration.
        hypervisors: the offered hypervisors.
    """
    templates = disks.OFFERED_DISK_TEMPLATES
    cluster, obstacles, notes = snapshot.cluster, [], []
    for instance in snapshot.instances.values():
        if instance.hypervisor not in hypervisors:
            obstacles.append(
                f"instance {instance.name}: hypervisor {instance.hypervisor} is not"
                f" offered; offered are {', '.join(sorted(hypervisors))}"
            )
        elif instance.hypervisor in _UNSEEN and instance.admin_state == "up":
            obstacles.append(
                f"instance {instance.name}: hypervisor {instance.hypervisor}: whether"
                " it runs is not seen after the take-over, so it could be started"
                " twice; end it before, with gnt-instance shutdown"
            )
        kinds = {
            snapshot.disks[uuid].dev_type
            for uuid in instance.disks
            if uuid in snapshot.disks
        }
        obstacles += [
            f"instance {instance.name}: disk template {kind} is not offered; offered"
            f" are {', '.join(templates)}"
            for kind in sorted(kinds.difference(templates))
        ]
    obstacles += [
        f"cluster: hypervisor {name} is enabled but not offered; disable it with"
        " gnt-cluster modify --enabled-hypervisors"
        for name in cluster.enabled_hypervisors
        if name not in hypervisors
    ]
    notes += [
        f"cluster: disk template {name} is enabled but not offered; new disks of it"
        " cannot be created"
        for name in cluster.enabled_disk_templates
        if name not in templates
    ]
    if cluster.instance_communication_network:
        notes.append("cluster: instance communication is not offered")
    notes += [
        f"node {node.name}: is offline and is not taken over; when it is back, stop"
        " its daemons and run gnt-node add --readd"
        for node in snapshot.nodes.values()
        if node.offline
    ]
    return Findings(sorted(obstacles), sorted(notes))


NAME: Final = "take-over"
DAEMON_UTIL: Final = "/usr/lib/ganeti/daemon-util"
_SSH_PORT: Final = 22
#: Daemons of other implementations that nothing here replaces by another program.
_UNREPLACED: Final = ("ganeti-rapi", "ganeti-mond")
_UNTIL: Final = """\
The way back, take-over --undo, is possible until the first of these: the cluster
certificate is renewed (gnt-cluster renew-crypto --new-cluster-certificate), nodes have
other SSH host keys than that of the cluster (gnt-cluster renew-crypto
--new-ssh-host-keys, gnt-node add), or commit_policy is changed. A node that was added
must be removed before, and the old master must be the master again."""
_QUESTION: Final = "Continue? [y/N] "


def main() -> int:
    """Run the tool."""
    options = _parse()
    common.start_log(NAME, options)
    return common.run(NAME, lambda: _work(options))


def _parse() -> argparse.Namespace:
    parser = common.parser(
        NAME, "Takes over a live cluster of another Ganeti 3.0 or 3.1, guests running."
    )
    add = parser.add_argument
    add("--plan", action="store_true", help="list checks and steps; change nothing")
    add("--undo", action="store_true", help="go back to the other Ganeti")
    add("-f", "--force", action="store_true", help="do not ask")
    add(
        "--daemon-util",
        default=DAEMON_UTIL,
        metavar="PATH",
        help="daemon-util of the other Ganeti",
    )
    add("--no-ssh-key-check", action="store_true", help="accept any SSH host key")
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _work(options: argparse.Namespace) -> None:
    paths = common.own_paths()
    with files.locked(f"{paths.lock_dir}/take-over.lock", timeout_s=0):
        journal = record.load(steps.journal_path(paths))
        if options.undo:
            _go_back(paths, options, journal)
        else:
            _go_over(paths, options, journal)


def _go_over(
    paths: Paths, options: argparse.Namespace, journal: Journal | None
) -> None:
    if journal is not None and journal.is_back:
        raise errors.OpPrereqError(
            "the way back was begun and not finished; finish it with take-over --undo",
            ecodes.ECODE_STATE,
        )
    if journal is not None and not journal.todo:
        raise errors.OpPrereqError(
            f"cluster {journal.cluster} is taken over already", ecodes.ECODE_STATE
        )
    is_new = journal is None
    journal = journal or _new_journal(paths, options.daemon_util)
    if not is_new:
        _say(f"Continuing at the step: {steps.title(journal.todo[0], journal)}")
    with _connected(paths, options, journal) as nodes:
        if is_new:
            journal = _check(paths, journal, nodes)
        _show(journal)
        if options.plan:
            _say(_UNTIL)
            return
        _ask(options)
        steps.Steps(paths, SystemClock(), journal, nodes, _say).run()
    _say(f"Cluster {journal.cluster} is taken over.")
    _say(_UNTIL)


def _go_back(
    paths: Paths, options: argparse.Namespace, journal: Journal | None
) -> None:
    if journal is None:
        raise errors.OpPrereqError(
            "this node has no record of a take-over", ecodes.ECODE_STATE
        )
    changes = steps.incompatible_changes(paths, journal)
    for line in changes:
        _say(f"  cannot go back: {line}")
    if changes and not options.plan:
        raise errors.OpPrereqError(
            f"the other Ganeti cannot read {len(changes)} changes, listed above;"
            " nothing was changed",
            ecodes.ECODE_STATE,
        )
    journal = journal.turned()
    _show(journal)
    if options.plan:
        return
    _ask(options)
    with _connected(paths, options, journal) as nodes:
        steps.Steps(paths, SystemClock(), journal, nodes, _say).run()
    _say(f"Cluster {journal.cluster} runs under the other Ganeti again.")


def _connected(
    paths: Paths, options: argparse.Namespace, journal: Journal
) -> contextlib.AbstractContextManager[list[access.Node]]:
    return access.connected(
        paths,
        SystemRunner(),
        journal.nodes,
        journal.daemon_util,
        check_host_keys=not options.no_ssh_key_check,
    )


def _show(journal: Journal) -> None:
    _say("Steps:")
    for number, step in enumerate(journal.todo, 1):
        _say(f"  {number}. {steps.title(step, journal)}")


def _ask(options: argparse.Namespace) -> None:
    if options.force:
        return
    sys.stdout.write(_QUESTION)
    sys.stdout.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise errors.GenericError("nothing was changed")


def _new_journal(paths: Paths, daemon_util: str) -> Journal:
    """Return the record of a new take-over of this node's cluster.

    Raises:
        OpPrereqError: this node is not the master.
        ConfigurationError: this machine is in no cluster, or config.data is damaged.
    """
    simple = SimpleStore(paths)
    cfgupgrade.check_master(paths)
    addresses, ports = simple.node_primary_ips(), simple.ssh_ports()
    candidates = simple.master_candidates()
    names = sorted(
        simple.online_nodes(), key=lambda name: (name != paths.hostname, name)
    )
    return Journal(
        cluster=simple.cluster_name(),
        master=paths.hostname,
        version=_version(paths.data("config.data")),
        daemon_util=daemon_util,
        nodes=tuple(
            Target(
                name=name,
                address=addresses[name],
                port=ports.get(name, _SSH_PORT),
                is_candidate=name in candidates,
            )
            for name in names
        ),
    )


def _version(path: str) -> int:
    """Return the version of a file that has been checked, or will be."""
    try:
        data: Any = simplejson.loads(files.read_file(path, max_size=files.WHOLE_STATE))
        return int(data["version"])
    except FileNotFoundError as err:
        raise errors.ConfigurationError(
            f"{path}: no such file: the cluster does not run under another Ganeti"
        ) from err
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise errors.ConfigurationError(f"{path}: truncated or damaged") from err


def _check(paths: Paths, journal: Journal, nodes: Sequence[access.Node]) -> Journal:
    """Check cluster and nodes; return the record with the guests that run.

    Raises:
        ConfigurationError: the configuration cannot be imported.
        OpPrereqError: something prevents the take-over, as listed.
    """
    places = cfgupgrade.UpgradePaths.of(paths)
    changes = old_config.read(
        places.config_data, check=True, cluster_name=journal.cluster
    )
    checked = findings_of_configuration(old_config.snapshot_of(changes), DRIVERS)
    obstacles, notes = list(checked.obstacles), list(checked.notes)
    obstacles += [
        f"job {text} has not ended; let the queue become empty (gnt-cluster queue"
        " drain), or cancel it"
        for text in old_jobs.unfinished(places.queue_dir)
    ]
    if os.path.exists(paths.store_db):
        obstacles.append(
            f"{paths.store_db} exists: this node has a store of this implementation"
        )
    guests: dict[str, tuple[str, int]] = {}
    for node in nodes:
        report = node.run("look")
        where = f"node {node.target.name}"
        obstacles += [f"{where}: {text:.500}" for text in report.problems]
        if report.release != _buildconf.RELEASE_VERSION:
            obstacles.append(
                f"{where}: has release {report.release:.40} of this implementation,"
                f" this node has {_buildconf.RELEASE_VERSION}"
            )
        guests |= {name: (node.target.name, pid) for name, pid in report.guests.items()}
        notes += [
            f"{where}: {name} is not offered, and does not run afterwards"
            for name in _UNREPLACED
            if name in report.running
            and not os.path.exists(os.path.join(paths.daemons_dir, name))
        ]
    for text in notes:
        _say(f"  note: {text}")
    for text in obstacles:
        _say(f"  obstacle: {text}")
    if obstacles:
        raise errors.OpPrereqError(
            f"cluster {journal.cluster} cannot be taken over: {len(obstacles)}"
            " obstacles, listed above; nothing was changed",
            ecodes.ECODE_STATE,
        )
    return journal.replace(guests=guests)

"""Checks of the configuration as a whole."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import errors
from ganeti.base.text import messages, patterns
from ganeti.decisions.verify.report import Report
from ganeti.model import objects
from ganeti.model.objects import params

_DAY_S: Final = 86400
#: Disks of no instance that are named.
_SHOWN_DISKS: Final = 10
#: Days before a certificate's expiry from which it is a warning, then an error.
CERTIFICATE_WARN_DAYS: Final = 30
CERTIFICATE_ERROR_DAYS: Final = 7
#: Option of ``gnt-cluster renew-crypto`` that replaces a certificate, by file name.
_RENEWAL_OPTIONS: Final = {
    "server.pem": "--new-cluster-certificate",
    "client.pem": "--new-node-certificates",
    "rapi.pem": "--new-rapi-certificate",
    "spice.pem": "--new-spice-certificate",
    "spice-ca.pem": "--new-spice-certificate",
}


class Certificate(NamedTuple):
    """A certificate file: its expiry, or why it cannot be read."""

    path: str
    seconds_left: float | None
    problem: str | None = None


def certificates(report: Report, checked: Iterable[Certificate]) -> None:
    """Check certificate files of the cluster."""
    for path, seconds_left, problem in checked:
        if report.error_if(
            problem, "ECLUSTERCERT", None, f"certificate {path}: {problem}"
        ):
            continue
        if seconds_left is None:
            continue
        days = int(seconds_left // _DAY_S)
        text = f"certificate {path} expires in {days} days"
        if seconds_left < 0:
            text = f"certificate {path} expired {-seconds_left / _DAY_S:.0f} days ago"
        report.error_if(
            seconds_left < CERTIFICATE_WARN_DAYS * _DAY_S,
            "ECLUSTERCERT",
            None,
            text + _advice(path),
            warn_only=seconds_left >= CERTIFICATE_ERROR_DAYS * _DAY_S,
        )


def own_store(report: Report, snapshot: objects.Snapshot, problem: str | None) -> None:
    """Check the master's own file of configuration and jobs.

    The master works on with a damaged file until it starts again, and from then on the
    copies of the other candidates are the only ones.

    Args:
        report: collects the findings.
        snapshot: the configuration.
        problem: of the file, None for a sound one.
    """
    nodes = snapshot.nodes.values()
    copies = sum(node.master_candidate and not node.offline for node in nodes)
    advice = (
        "make another candidate the master with gnt-cluster master-failover there"
        if copies > 1
        else "add a master candidate now, and make it the master; the file is lost when"
        " the master daemon ends"
    )
    report.error_if(
        problem,
        "ECLUSTERCFG",
        None,
        f"the store of the master cannot be read: {problem}; look at its disk, and"
        f" {advice}",
    )


def rules(
    report: Report, snapshot: objects.Snapshot, skipped: Mapping[str, str]
) -> None:
    """Warn of stored rules and regular expressions that cannot be evaluated.

    Args:
        report: collects the findings.
        snapshot: the configuration.
        skipped: uuid of a job filter -> why the queue skips it.
    """
    for uuid, problem in sorted(skipped.items()):
        report.error(
            "ECLUSTERCFG",
            None,
            f"job filter {uuid} is skipped: {problem}; replace it, or remove it with"
            f" gnt-filter delete {uuid}",
            warn_only=True,
        )
    for text in snapshot.cluster.reserved_lvs:
        try:
            patterns.compile_(text)
        except errors.ParseError as err:
            report.error(
                "ECLUSTERCFG",
                None,
                f"reserved_lvs: an entry is skipped: {err}; replace it with gnt-cluster"
                " modify --reserved-lvs",
                warn_only=True,
            )


def unfinished_renewal(report: Report, path: str, authorities: int) -> None:
    """Warn of a renewal of the cluster's authority that was cut short.

    Args:
        report: collects the findings.
        path: file of the trusted authorities on the master.
        authorities: their number.
    """
    report.error_if(
        authorities > 1,
        "ECLUSTERCERT",
        None,
        f"certificate {path}: the renewal of the authority was cut short, and nodes"
        f" trust {authorities} authorities; run gnt-cluster renew-crypto"
        " --new-cluster-certificate, which finishes it",
        warn_only=True,
    )


def shared_certificate(report: Report, path: str, *, is_shared: bool) -> None:
    """Warn of a certificate whose key all nodes have, as in earlier releases."""
    report.error_if(
        is_shared,
        "ECLUSTERCERT",
        None,
        f"certificate {path} and its key are the same on all nodes, so each node can"
        " answer for another; with this release on all nodes, run gnt-cluster"
        " renew-crypto --new-cluster-certificate",
        warn_only=True,
    )


def shared_host_keys(report: Report, snapshot: objects.Snapshot) -> None:
    """Warn of nodes with the same SSH host keys, as in clusters of earlier releases."""
    nodes = sorted(snapshot.nodes.values(), key=lambda node: node.name)
    if len(nodes) < 2 or not snapshot.cluster.modify_ssh_setup:
        return
    owners: dict[str, list[str]] = {}
    for node in nodes:
        for key in node.ssh_host_keys:
            owners.setdefault(key, []).append(node.name)
    shared = {tuple(names) for names in owners.values() if len(names) > 1}
    for names in sorted(shared):
        report.error(
            "ECLUSTERCFG",
            None,
            f"nodes {messages.some(names)} share SSH host keys{_MIMICRY}",
            warn_only=True,
        )
    unknown = [node.name for node in nodes if not node.ssh_host_keys]
    report.error_if(
        unknown,
        "ECLUSTERCFG",
        None,
        f"no SSH host keys of their own are recorded for nodes {messages.some(unknown)}"
        f", which are known by those of the cluster{_MIMICRY}",
        warn_only=True,
    )


_MIMICRY: Final = (
    ", so each can answer for another; with this release on all nodes, run gnt-cluster"
    " renew-crypto --new-ssh-host-keys"
)


def _advice(path: str) -> str:
    """Return the advice how to replace a certificate, empty for an unknown file."""
    command = renewal_command(path)
    return f"; run {command}" if command else ""


def renewal_command(where: str) -> str:
    """Return the command that replaces a certificate, empty for an unknown file.

    Args:
        where: ends with the name of the file, after a slash or a blank.
    """
    option = _RENEWAL_OPTIONS.get(where.replace(" ", "/").rpartition("/")[2])
    return f"gnt-cluster renew-crypto {option}" if option else ""


def store_servers(report: Report, members: Sequence[tuple[str, str]]) -> None:
    """Check the servers of a store in etcd.

    Args:
        report: collects the findings.
        members: address of each server, and why it cannot be used, empty if it can.
    """
    lost = sum(bool(problem) for _host, problem in members)
    left = (len(members) - 1) // 2 - lost
    if left > 0:
        rest = f"{left} more may fail"
    elif left == 0:
        rest = "if one more fails, the master ends"
    else:
        rest = "no majority is left"
    for host, problem in members:
        report.error_if(
            problem,
            "ECLUSTERFILECHECK",
            None,
            f"server {host} of the store in etcd cannot be used ({rest}): {problem}",
        )


#: (what, hypervisor, filled parameters)
Source = tuple[str, str, Mapping[str, Any]]


def hypervisor_sources(snapshot: objects.Snapshot) -> list[Source]:
    """Return all sets of hypervisor parameters in use."""
    cluster = snapshot.cluster
    sources: list[Source] = [
        ("cluster", name, params.hvparams_for(cluster, name, "", {}))
        for name in cluster.enabled_hypervisors
    ]
    sources.extend(
        (f"os {os}", name, params.hvparams_for(cluster, name, os, {}))
        for os, by_name in sorted(cluster.os_hvp.items())
        for name in sorted(by_name)
        if name in cluster.enabled_hypervisors and by_name[name]
    )
    sources.extend(
        (
            f"instance {instance.name}",
            instance.hypervisor,
            params.fill_hvparams(snapshot, instance),
        )
        for instance in sorted(snapshot.instances.values(), key=lambda item: item.name)
        if instance.hvparams
    )
    return sources


def hypervisor_parameters(
    report: Report, sources: Iterable[Source], check: Callable[[str, Any], str | None]
) -> None:
    """Check hypervisor parameters by a function: hypervisor, values -> problem."""
    for where, name, values in sources:
        problem = check(name, values)
        report.error_if(
            problem,
            "ECLUSTERCFG",
            None,
            f"hypervisor {name} parameters syntax check failed (source {where}):"
            f" {problem}",
        )


def dangling(report: Report, snapshot: objects.Snapshot) -> None:
    """Find nodes without an existing group, and instances on such nodes."""
    lost = sorted(
        node.name
        for node in snapshot.nodes.values()
        if node.group not in snapshot.nodegroups
    )
    for name in lost:
        report.error(
            "ECLUSTERDANGLINGNODES",
            name,
            "belongs to a group that does not exist",
        )
    for instance in sorted(snapshot.instances.values(), key=lambda item: item.name):
        node = snapshot.nodes.get(instance.primary_node)
        report.error_if(
            node is None or node.name in lost,
            "ECLUSTERDANGLINGINST",
            node.name if node else instance.primary_node,
            f"instance {instance.name} is on a node without an existing group",
        )


def detached(snapshot: objects.Snapshot) -> list[str]:
    """Return a line for each disk that belongs to no instance, the largest first.

    Nothing else lists them, and their data takes space until somebody attaches and
    removes them.
    """
    alone = [
        disk for disk in snapshot.disks.values() if not snapshot.disk_owner(disk.uuid)
    ]
    alone.sort(key=lambda disk: (-disk.size, disk.uuid))
    lines = [
        f"disk {disk.uuid} ({disk.dev_type}, {disk.size} MiB"
        f"{f', name {disk.name}' if disk.name else ''}) belongs to no instance;"
        f" 'gnt-instance modify --disk {disk.uuid}:attach INSTANCE' attaches it"
        for disk in alone[:_SHOWN_DISKS]
    ]
    if left := alone[_SHOWN_DISKS:]:
        lines.append(f"{len(left)} more disks belong to no instance")
    return lines

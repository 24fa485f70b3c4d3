"""Examples of ``gnt-cluster`` for its help and its manual page."""

from typing import Final

from ganeti.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "init": (
        Example(
            (
                "gnt-cluster init --enabled-hypervisors=kvm "
                "--enabled-disk-templates=file,diskless cluster1.example.com"
            ),
            "a cluster for KVM with disks in files, no LVM needed",
        ),
        Example(
            (
                "gnt-cluster init --enabled-hypervisors=kvm "
                "--enabled-disk-templates=sharedfile --master-netdev=eth0 -I hail "
                "cluster1.example.com"
            ),
            (
                "disks on a shared file system, name and address of the cluster on "
                "eth0, places for instances chosen by hail"
            ),
        ),
    ),
    "balance": (
        Example("gnt-cluster balance", "show the moves that balance the cluster"),
        Example(
            "gnt-cluster balance --explain -g default",
            "the same for one group, with what each move improves and why no more",
        ),
        Example(
            "gnt-cluster balance --apply --max-moves=5 --no-disk-moves --yes",
            "make up to five moves that copy no disks",
        ),
        Example(
            "gnt-cluster balance --apply --evac-mode",
            "empty the nodes that are offline or drained",
        ),
    ),
    "info": (
        Example("gnt-cluster info", "all settings"),
        Example("gnt-cluster info --json", "the same for programs"),
    ),
    "verify": (
        Example("gnt-cluster verify", "check everything"),
        Example("gnt-cluster verify --error-codes", "one finding a line, for programs"),
        Example("gnt-cluster verify -g default", "one node group only"),
    ),
    "modify": (
        Example(
            "gnt-cluster modify -I hail",
            "choose nodes for new instances by hail from now on",
        ),
        Example(
            "gnt-cluster modify -B maxmem=1g,minmem=512m",
            "memory of instances that do not say",
        ),
        Example(
            "gnt-cluster modify -H kvm:kernel_path=,serial_console=true",
            "boot guests by their own boot loader",
        ),
        Example(
            "gnt-cluster modify --enabled-disk-templates file,sharedfile",
            "allow these disk templates",
        ),
    ),
    "queue": (
        Example("gnt-cluster queue drain", "take no new jobs"),
        Example("gnt-cluster queue undrain", "take jobs again"),
        Example("gnt-cluster queue info", "say which of the two it is"),
    ),
    "watcher": (
        Example(
            "gnt-cluster watcher pause 2h",
            "keep the watcher quiet during work on the cluster",
        ),
        Example("gnt-cluster watcher continue", "end the pause now"),
    ),
    "command": (
        Example(
            "gnt-cluster command -g default uptime",
            "run uptime on all nodes of a group",
        ),
        Example("gnt-cluster command -n node2 df -h /", "on one node"),
    ),
    "copyfile": (
        Example(
            "gnt-cluster copyfile -n node2 /etc/hosts",
            "copy to the same place on node2",
        ),
    ),
    "master-failover": (
        Example("gnt-cluster master-failover", "on a candidate, after the master died"),
        Example(
            "gnt-cluster master-failover --no-voting",
            "when most other nodes are dead too",
        ),
        Example(
            "gnt-cluster master-failover --accept-loss",
            "when most copies of the configuration are lost for good",
        ),
    ),
    "lost-changes": (
        Example("gnt-cluster lost-changes", "after a failover with --accept-loss"),
    ),
    "master-ping": (
        Example("gnt-cluster master-ping", "exit code 0 means that the master answers"),
    ),
    "rename": (
        Example("gnt-cluster rename cluster2.example.com", "a new name and address"),
    ),
    "search-tags": (
        Example(
            "gnt-cluster search-tags ^env:", "everything with a tag that begins so"
        ),
    ),
    "add-tags": (Example("gnt-cluster add-tags env:test", "tag the cluster"),),
    "redist-conf": (
        Example("gnt-cluster redist-conf", "after files on nodes were lost"),
    ),
    "verify-disks": (
        Example(
            "gnt-cluster verify-disks",
            "activate what a reboot of a node has left inactive",
        ),
    ),
    "renew-crypto": (
        Example(
            "gnt-cluster renew-crypto --new-node-certificates",
            "fresh certificates for all node daemons",
        ),
    ),
    "destroy": (
        Example(
            "gnt-cluster destroy --yes-do-it",
            "the end of a cluster that has only its master left",
        ),
    ),
}

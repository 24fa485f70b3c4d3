"""Examples of ``gnt-cluster`` for its help and its manual page."""

from typing import Final

from ganeti.commands.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "init": (
        Example(
            (
                "gnt-cluster init --enabled-hypervisors=kvm "
                "--enabled-disk-templates=file,diskless cluster1.example.com"
            ),
            "a cluster for KVM with disks in files, without LVM",
        ),
        Example(
            (
                "gnt-cluster init --enabled-hypervisors=kvm "
                "--enabled-disk-templates=sharedfile --master-netdev=eth0 -I hail "
                "cluster1.example.com"
            ),
            (
                "disks on a shared file system, master IP address on eth0, nodes"
                " chosen by hail"
            ),
        ),
    ),
    "balance": (
        Example("gnt-cluster balance", "only show the moves that balance the cluster"),
        Example(
            "gnt-cluster balance --explain -g default",
            "the same for one group, with the gain of each move and why there are no"
            " more",
        ),
        Example(
            "gnt-cluster balance --apply --max-moves=5 --no-disk-moves --yes",
            "apply up to five moves that copy no disks",
        ),
        Example(
            "gnt-cluster balance --apply --evac-mode",
            "empty all offline and drained nodes",
        ),
    ),
    "epo": (
        Example("gnt-cluster epo --all", "stop everything but the master"),
        Example("gnt-cluster epo --groups rack1", "only the nodes of one group"),
        Example(
            "gnt-cluster epo --become-master node1",
            "on another candidate: take the master role, and switch the old master off",
        ),
        Example("gnt-cluster epo --on --all", "bring everything back"),
    ),
    "info": (
        Example("gnt-cluster info", "all settings"),
        Example("gnt-cluster info --json", "all settings as JSON"),
    ),
    "verify": (
        Example("gnt-cluster verify", "check everything"),
        Example("gnt-cluster verify --error-codes", "one error per line, for programs"),
        Example("gnt-cluster verify -g default", "one node group only"),
    ),
    "modify": (
        Example(
            "gnt-cluster modify -I hail",
            "let hail choose the nodes of new instances by default",
        ),
        Example(
            "gnt-cluster modify -B maxmem=1g,minmem=512m",
            "default memory of instances",
        ),
        Example(
            "gnt-cluster modify -H kvm:kernel_path=,serial_console=true",
            "boot guests with their own boot loader",
        ),
        Example(
            "gnt-cluster modify --enabled-disk-templates file,sharedfile",
            "allow these disk templates",
        ),
    ),
    "freeze": (
        Example(
            "gnt-cluster freeze network of rack 2 is being rebuilt",
            "keep all programs from acting by themselves, for a reason",
        ),
    ),
    "thaw": (Example("gnt-cluster thaw", "let programs act by themselves again"),),
    "journal": (
        Example(
            "gnt-cluster journal --since 2h",
            "show what the watcher, repairs and the maintenance daemon have done since",
        ),
        Example(
            "gnt-cluster journal --instance web1.example.com",
            "show why an instance was restarted, repaired or left alone",
        ),
        Example("gnt-cluster journal --follow", "watch the decisions"),
    ),
    "audit": (
        Example("gnt-cluster audit -n 20", "show the newest changes and who made them"),
        Example("gnt-cluster audit --verify", "check that the log is whole"),
    ),
    "simulate": (
        Example(
            "gnt-cluster simulate --event 'kill node7.example.com'",
            "show what the death of a node would lead to within two hours",
        ),
        Example(
            "gnt-cluster simulate --event '10m drain node7.example.com yes'"
            " --policy repair=migrate",
            "show which instances would be moved if the cluster permitted that",
        ),
        Example(
            "gnt-cluster simulate --event 'kill node7.example.com'"
            " --policy node-death=yes,moved-share=10 --horizon 1d --json",
            "with other settings of automation, for programs",
        ),
    ),
    "list-incidents": (
        Example("gnt-cluster list-incidents", "show which nodes wait for a repair"),
        Example(
            "gnt-cluster list-incidents --json",
            "the same for programs, with the whole reports of the nodes",
        ),
    ),
    "maintd-cancel": (
        Example(
            "gnt-cluster maintd-cancel 6a7dc4f5-3c3b-4b1d-a0b5-0d3f1e2c9a11",
            "leave a node as it is although it reports a fault",
        ),
    ),
    "remove-repair": (
        Example(
            "gnt-cluster remove-repair 6a7dc4f5-3c3b-4b1d-a0b5-0d3f1e2c9a11",
            "begin again with a fault",
        ),
    ),
    "queue": (
        Example("gnt-cluster queue drain", "refuse new jobs"),
        Example("gnt-cluster queue undrain", "accept new jobs again"),
        Example("gnt-cluster queue info", "show whether the queue is drained"),
    ),
    "watcher": (
        Example(
            "gnt-cluster watcher pause 2h",
            "pause the watcher during maintenance",
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
            "copy a file to the same path on node2",
        ),
    ),
    "master-failover": (
        Example(
            "gnt-cluster master-failover",
            "on a master candidate, after the failure of the master",
        ),
        Example(
            "gnt-cluster master-failover --no-voting",
            "if most other nodes are dead too",
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
        Example(
            "gnt-cluster rename cluster2.example.com",
            "change name and address of the cluster",
        ),
    ),
    "search-tags": (
        Example(
            "gnt-cluster search-tags ^env:",
            "find all objects with a tag that begins with env:",
        ),
    ),
    "add-tags": (Example("gnt-cluster add-tags env:test", "tag the cluster"),),
    "redist-conf": (
        Example("gnt-cluster redist-conf", "after the loss of files on nodes"),
    ),
    "upgrade": (
        Example("gnt-cluster upgrade --plan --to 3.1.2", "show what would be done"),
        Example("gnt-cluster upgrade --to 3.1.2", "change to an installed release"),
        Example("gnt-cluster upgrade --resume", "after an interruption"),
    ),
    "verify-disks": (
        Example(
            "gnt-cluster verify-disks",
            "activate disks that are inactive after a node's reboot",
        ),
    ),
    "renew-crypto": (
        Example(
            "gnt-cluster renew-crypto --new-node-certificates",
            "new certificates for all node daemons",
        ),
    ),
    "destroy": (
        Example(
            "gnt-cluster destroy --yes-do-it",
            "remove a cluster that consists of its master only",
        ),
    ),
}

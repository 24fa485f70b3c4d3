"""Examples of ``gnt-instance`` for its help and its manual page."""

from typing import Final

from ganeti.commands.cli.model import Example

#: By name of the command.
EXAMPLES: Final[dict[str, tuple[Example, ...]]] = {
    "add": (
        Example(
            (
                "gnt-instance add -t file -s 2g -o tiny+default -n node2 "
                "web1.example.com"
            ),
            "one disk of 2 GiB in a file on node2",
        ),
        Example(
            (
                "gnt-instance add -t sharedfile -s 2g -o tiny+default -I hail "
                "--dry-run --explain web3.example.com"
            ),
            "show which node hail would choose, and why not others",
        ),
        Example(
            (
                "gnt-instance add -t sharedfile --disk 0:size=2g --disk "
                "1:size=10g,name=data -o tiny+default -B maxmem=1g,vcpus=2 -H "
                "kvm:serial_console=true web2.example.com"
            ),
            "the default allocator chooses the node",
        ),
        Example(
            (
                "gnt-instance add -t diskless -o tiny+default --no-nics "
                "--no-install --no-start -n node1 test1.example.com"
            ),
            "no disks, no network, not started",
        ),
        Example(
            (
                "gnt-instance add --forthcoming -t file -s 20g -B maxmem=4g --expires "
                "7d --owner web-team"
            ),
            "only reserve the resources; prints the uuid",
        ),
        Example(
            "gnt-instance add --commit -o tiny+default web4.example.com",
            "create the instance whose resources are reserved",
        ),
    ),
    "list": (
        Example("gnt-instance list", "all instances"),
        Example("gnt-instance list -o name,pnode,status,oper_ram", "chosen columns"),
        Example(
            "gnt-instance list -o +tags,disk.sizes web1 web2",
            "more columns for some instances",
        ),
        Example(
            'gnt-instance list -F \'pnode == "node2" and status != "running"\'',
            "by a filter",
        ),
    ),
    "info": (
        Example("gnt-instance info web1", "configuration and present state"),
        Example(
            "gnt-instance info -s --all",
            "configuration of all instances; no node is called",
        ),
    ),
    "startup": (
        Example("gnt-instance startup web1 web2", "start two instances"),
        Example(
            "gnt-instance startup --force-multiple --node node2",
            "start all instances with primary or secondary node node2",
        ),
        Example(
            "gnt-instance startup -H kernel_args=single web1",
            "start with a kernel argument for this start only",
        ),
    ),
    "shutdown": (
        Example(
            "gnt-instance shutdown web1",
            "shut down the guest, and stop it after two minutes at the latest",
        ),
        Example("gnt-instance shutdown --timeout 0 web1", "stop it immediately"),
        Example("gnt-instance shutdown --all --force-multiple", "everything"),
    ),
    "reboot": (
        Example("gnt-instance reboot web1", "reboot from inside the guest"),
        Example(
            "gnt-instance reboot -t full web1", "stop and start, to apply new settings"
        ),
    ),
    "console": (
        Example("gnt-instance console web1", "leave a KVM console with Ctrl-]"),
        Example("gnt-instance console --show-cmd web1", "only print the command"),
    ),
    "modify": (
        Example(
            "gnt-instance modify -B maxmem=2g web1",
            "change the memory from the next start on",
        ),
        Example("gnt-instance modify --disk add:size=5g,name=logs web1", "add a disk"),
        Example(
            "gnt-instance modify --net 0:ip=192.0.2.7 web1",
            "change the address of the first NIC",
        ),
        Example(
            "gnt-instance modify --offline web1",
            "mark as not intended to run; --online removes the mark",
        ),
        Example(
            "gnt-instance modify -t drbd -n node3 web1",
            "mirror the volumes of a stopped instance on node3",
        ),
    ),
    "migrate": (
        Example(
            "gnt-instance migrate -f web1",
            "to its secondary node, or to one that the default allocator chooses",
        ),
        Example(
            "gnt-instance migrate -f -n node3 web1", "to node3, for shared storage"
        ),
        Example(
            "gnt-instance migrate --cleanup web1",
            "clean up after an interrupted migration",
        ),
    ),
    "failover": (
        Example("gnt-instance failover -f -n node3 web1", "stop, then start on node3"),
        Example(
            "gnt-instance failover --ignore-consistency web1",
            "after the failure of its primary node; asks twice",
        ),
    ),
    "move": (Example("gnt-instance move -f -n node3 web1", "copy its disks to node3"),),
    "remove": (
        Example("gnt-instance remove web1", "asks first"),
        Example(
            "gnt-instance remove -f --shutdown-timeout=0 web1",
            "without a question or a wait for the guest",
        ),
    ),
    "reinstall": (
        Example(
            "gnt-instance reinstall -o tiny+quiet web1",
            "install another system; all data on the first disk is lost",
        ),
        Example(
            "gnt-instance reinstall --select-os web1", "choose the system from a list"
        ),
        Example(
            "gnt-instance reinstall --os-parameters-secret @/root/web1.secrets web1",
            "with secret parameters from a file, one key=value per line",
        ),
    ),
    "rename": (
        Example("gnt-instance rename web1 www.example.com", "it must be stopped"),
    ),
    "grow-disk": (
        Example("gnt-instance grow-disk web1 0 1g", "add 1 GiB to its first disk"),
        Example("gnt-instance grow-disk --absolute web1 0 8g", "enlarge it to 8 GiB"),
    ),
    "recreate-disks": (
        Example("gnt-instance recreate-disks web1", "replace lost disks by empty ones"),
        Example(
            "gnt-instance recreate-disks --disk 1 web1",
            "replace only the lost second disk",
        ),
    ),
    "activate-disks": (
        Example(
            "gnt-instance activate-disks web1",
            "assemble the disks of a stopped instance for inspection",
        ),
    ),
    "deactivate-disks": (Example("gnt-instance deactivate-disks web1", "afterwards"),),
    "replace-disks": (
        Example(
            "gnt-instance replace-disks -n node4 web1",
            "choose a new secondary node for a mirrored instance",
        ),
    ),
    "batch-create": (
        Example(
            "gnt-instance batch-create instances.json",
            "the file has a JSON list of objects with OP_INSTANCE_CREATE parameters",
        ),
    ),
    "change-group": (
        Example(
            "gnt-instance change-group --to rack2 web1", "move it to another node group"
        ),
    ),
    "add-tags": (
        Example("gnt-instance add-tags web1 env:test owner:ada", "add two tags"),
    ),
}

"""Examples of ``gnt-instance`` for its help and its manual page."""

from typing import Final

from ganeti.cli.model import Example

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
            "which node hail would choose, and why not the others",
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
            "neither disks nor network, not started",
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
        Example("gnt-instance info web1", "recorded and live facts"),
        Example(
            "gnt-instance info -s --all", "recorded facts of all, no node is asked"
        ),
    ),
    "startup": (
        Example("gnt-instance startup web1 web2", "start two"),
        Example(
            "gnt-instance startup --force-multiple --node node2",
            "all that have node2 as primary or secondary",
        ),
        Example(
            "gnt-instance startup -H kernel_args=single web1",
            "with another setting this time only",
        ),
    ),
    "shutdown": (
        Example(
            "gnt-instance shutdown web1",
            "as with the power button, the hard way after two minutes",
        ),
        Example("gnt-instance shutdown --timeout 0 web1", "the hard way now"),
        Example("gnt-instance shutdown --all --force-multiple", "everything"),
    ),
    "reboot": (
        Example("gnt-instance reboot web1", "ask the guest"),
        Example(
            "gnt-instance reboot -t full web1", "stop and start, to use new settings"
        ),
    ),
    "console": (
        Example("gnt-instance console web1", "leave a KVM console with Ctrl-]"),
        Example("gnt-instance console --show-cmd web1", "print the command only"),
    ),
    "modify": (
        Example("gnt-instance modify -B maxmem=2g web1", "used from the next start on"),
        Example(
            "gnt-instance modify --disk add:size=5g,name=logs web1", "one more disk"
        ),
        Example(
            "gnt-instance modify --net 0:ip=192.0.2.7 web1", "change the first NIC"
        ),
        Example(
            "gnt-instance modify --offline web1",
            "not meant to run; --online takes it back",
        ),
    ),
    "migrate": (
        Example(
            "gnt-instance migrate -f web1",
            "to its other node, or one that the default allocator chooses",
        ),
        Example(
            "gnt-instance migrate -f -n node3 web1", "to node3, with shared storage"
        ),
        Example(
            "gnt-instance migrate --cleanup web1", "after a migration that was cut off"
        ),
    ),
    "failover": (
        Example("gnt-instance failover -f -n node3 web1", "stop, then start on node3"),
        Example(
            "gnt-instance failover -f --ignore-consistency web1", "its node is dead"
        ),
    ),
    "move": (Example("gnt-instance move -f -n node3 web1", "copy its disks to node3"),),
    "remove": (
        Example("gnt-instance remove web1", "asks first"),
        Example("gnt-instance remove -f --shutdown-timeout=0 web1", "at once"),
    ),
    "reinstall": (
        Example("gnt-instance reinstall -o tiny+quiet web1", "all data on it is lost"),
        Example("gnt-instance reinstall --select-os web1", "ask which"),
        Example(
            "gnt-instance reinstall --os-parameters-secret @/root/web1.secrets web1",
            "key=value lines that no command line shows",
        ),
    ),
    "rename": (
        Example("gnt-instance rename web1 www.example.com", "it must be stopped"),
    ),
    "grow-disk": (
        Example("gnt-instance grow-disk web1 0 1g", "add 1 GiB to its first disk"),
        Example("gnt-instance grow-disk --absolute web1 0 8g", "up to 8 GiB"),
    ),
    "recreate-disks": (
        Example(
            "gnt-instance recreate-disks web1", "its disks are lost: make empty ones"
        ),
        Example(
            "gnt-instance recreate-disks --disk 1 web1", "only its second disk is lost"
        ),
    ),
    "activate-disks": (
        Example(
            "gnt-instance activate-disks web1",
            "to look at the disks of a stopped instance",
        ),
    ),
    "deactivate-disks": (Example("gnt-instance deactivate-disks web1", "afterwards"),),
    "replace-disks": (
        Example(
            "gnt-instance replace-disks -n node4 web1",
            "a new secondary for a mirrored instance",
        ),
    ),
    "batch-create": (
        Example(
            "gnt-instance batch-create instances.json",
            "a list of dictionaries with the parameters of OP_INSTANCE_CREATE",
        ),
    ),
    "change-group": (
        Example(
            "gnt-instance change-group --to rack2 web1", "move it to another node group"
        ),
    ),
    "add-tags": (Example("gnt-instance add-tags web1 env:test owner:ada", "two tags"),),
}

"""Commands, calls and requests that name objects, each with a row per form of name.

The rows have the names of `open_master`; a virtual cluster has other ones, see `at`.
"""

import json
import re
import shlex

from fakes import clusters
from fakes.master import Master
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.model import objects
from ganeti.protocols.rapi import model

RACK = "00000000-0000-4000-8000-0000000000b0"
N1, N2, N3, N4 = (f"node{n}.example.com" for n in (1, 2, 3, 4))
I1, I2 = "inst1.example.com", "inst2.example.com"
DISK, NIC = clusters.node_uuid(71), clusters.node_uuid(72)

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_TIME = re.compile(r"\d{10}(\.\d+)?|(?<=job )\d+|(?<=jobs )\d+")

FIELDS = ["name", "uuid", "tags"]
CALLS = (
    ("QueryNodes", [[N2, N1], FIELDS, False]),
    ("QueryInstances", [[I2, I1], FIELDS, False]),
    ("QueryGroups", [["rack"], FIELDS, False]),
    ("QueryNetworks", [["net"], FIELDS, False]),
    ("QueryObjects", ["instance", [I2, I1], FIELDS, False]),
    ("QueryTags", ["network", "net"]),
    ("QueryTags", ["node", N2]),
    ("QueryTags", ["instance", I1]),
    ("QueryTags", ["nodegroup", "rack"]),
    ("QueryCapacity", [{"groups": ["rack"], "memory": 128, "disk": 0}]),
    ("PlanBalance", [{"group": "rack"}]),
    ("QueryJournal", [{"node": N2}]),
    ("QueryJournal", [{"instance": I1}]),
)
#: Method -> why it has no row in `CALLS`.
OTHER_CALLS = {
    **dict.fromkeys(
        ("SubmitJob", "SubmitJobToDrainedQueue", "SubmitManyJobs", "PlanJob"),
        "takes opcodes, which have rows of their own",
    ),
    **dict.fromkeys(
        (
            *("PickupJob", "ArchiveJob", "CancelJob", "ChangeJobPriority"),
            *("WaitForJobChange", "WaitForJobChanges", "QueryJobs", "QueryJobWaits"),
        ),
        "names jobs",
    ),
    **dict.fromkeys(
        (
            *("AutoArchiveJobs", "SetDrainFlag", "QueryCopies", "QueryAutomation"),
            *("FreezeAutomation", "ThawAutomation", "QueryMaintenance"),
            *("QueryStatus", "QueryMetrics", "QueryNodeDeaths", "WaitForEvents"),
            *("QueryFields", "QueryClusterInfo"),
            *("QueryConfigValues", "SetWatcherPause", "NoteUserChange"),
            *("OpenSession", "UseSession", "QuerySessions", "QueryLivingSessions"),
            "RevokeSessions",
        ),
        "names nothing",
    ),
    **dict.fromkeys(
        ("RecordRound", "ChangeMaintenance", "ChangeNodeDeaths"),
        "programs report names",
    ),
    **dict.fromkeys(("CancelIncident", "RemoveIncident"), "incidents have no name"),
    **dict.fromkeys(
        ("QueryFilters", "ReplaceFilter", "DeleteFilter"), "filter rules have no name"
    ),
    **dict.fromkeys(
        ("Query", "QueryPage"),
        "a filter compares the values of fields; the commands ask with names",
    ),
    "Search": "a text is a part of names and other values",
    "OpenConsole": "each ticket is another one",
    "QueryDiskName": "takes the uuid of a disk, as the node daemons know it",
    "QueryExports": "its rows come from the nodes",
}

#: Options of the creation of an instance.
NEW = "--plan -t diskless --no-install -o tiny -H fake"
#: Commands that need no more than a master daemon.
COMMANDS = (
    "gnt-node list -o name,group node2.example.com node1.example.com",
    "gnt-node info node2.example.com",
    "gnt-node list-tags node2.example.com",
    "gnt-node list-storage --storage-type file node2.example.com",
    "gnt-node volumes node2.example.com",
    "gnt-node add-tags --plan node2.example.com x",
    "gnt-node remove-tags --plan node2.example.com old",
    "gnt-node modify --plan -D yes node2.example.com",
    "gnt-node remove --plan node4.example.com",
    "gnt-node powercycle --plan -f node2.example.com",
    "gnt-node migrate --plan -f -n node3.example.com node1.example.com",
    "gnt-node failover --plan -f node1.example.com",
    "gnt-node evacuate --plan -f -p node1.example.com",
    "gnt-node health node2.example.com",
    "gnt-node power status node2.example.com",
    "gnt-network list -o name,uuid net",
    "gnt-network info net",
    "gnt-network list-tags net",
    "gnt-network add-tags --plan net x",
    "gnt-network modify --plan --gateway=198.51.100.1 net",
    "gnt-network rename --plan net wide",
    "gnt-network remove --plan -f net",
    "gnt-network connect --plan -N mode=bridged,link=br0 net rack",
    "gnt-group list -o name,uuid rack",
    "gnt-group info rack",
    "gnt-group list-tags rack",
    "gnt-group add-tags --plan rack x",
    "gnt-group modify --plan --alloc-policy=last_resort rack",
    "gnt-group rename --plan rack row",
    "gnt-group remove --plan rack",
    "gnt-group assign-nodes --plan rack node3.example.com",
    "gnt-group evacuate --plan --to rack default",
    "gnt-instance list -o name,pnode inst2.example.com inst1.example.com",
    "gnt-instance info -s inst1.example.com",
    "gnt-instance list-tags inst1.example.com",
    "gnt-instance add-tags --plan inst1.example.com x",
    "gnt-instance remove-tags --plan inst1.example.com old",
    "gnt-instance startup --plan inst2.example.com",
    "gnt-instance startup --plan --node -f node1.example.com",
    "gnt-instance shutdown --plan inst1.example.com",
    "gnt-instance shutdown --plan --primary node1.example.com",
    "gnt-instance reboot --plan inst1.example.com",
    "gnt-instance failover --plan -f -n node3.example.com inst2.example.com",
    "gnt-instance migrate --plan -f -n node3.example.com inst2.example.com",
    "gnt-instance move --plan -f -n node3.example.com inst2.example.com",
    "gnt-instance change-group --plan --to rack inst1.example.com",
    "gnt-instance activate-disks --plan inst1.example.com",
    "gnt-instance deactivate-disks --plan inst1.example.com",
    "gnt-instance grow-disk --plan inst1.example.com 0 64m",
    "gnt-instance recreate-disks --plan -n node3.example.com inst2.example.com",
    "gnt-instance reinstall --plan -f inst2.example.com",
    "gnt-instance remove --plan -f inst1.example.com",
    "gnt-instance rename --plan inst2.example.com new.example.com",
    "gnt-instance modify --plan --disk data:modify,name=boot inst1.example.com",
    "gnt-instance modify --plan --net lan:modify,name=wan inst1.example.com",
    "gnt-instance modify --plan --new-primary node3.example.com inst2.example.com",
    "gnt-group show-ispecs-cmd rack",
    "gnt-network disconnect --plan net rack",
    "gnt-network remove-tags --plan net old",
    "gnt-group remove-tags --plan rack old",
    "gnt-group evacuate --plan --to default rack",
    "gnt-node evacuate --plan -f -p -n node3.example.com node1.example.com",
    "gnt-node modify-storage --plan --allocatable no node2.example.com lvm-pv sdb",
    "gnt-node repair-storage --plan node2.example.com lvm-vg xenvg",
    f"gnt-instance add {NEW} -n node2.example.com --no-nics new.example.com",
    f"gnt-instance add {NEW} -n node2.example.com --net 0:network=net,ip=pool new.example.com",
    f"gnt-instance add {NEW} -I hail -g rack --no-nics new.example.com",
    "gnt-instance console --show-cmd inst1.example.com",
    "gnt-instance replace-disks --plan -n node3.example.com inst1.example.com",
    "gnt-instance modify --plan --net add:network=net,ip=pool inst1.example.com",
    "gnt-instance modify --plan -t drbd -n node3.example.com inst1.example.com",
    "gnt-cluster journal --node node2.example.com",
    "gnt-cluster journal --instance inst1.example.com",
    "gnt-cluster simulate --event 'kill node2.example.com' --horizon 5m",
    "gnt-cluster simulate --policy repair:instance:inst1.example.com=suspend",
    "gnt-cluster epo --plan node2.example.com",
    "gnt-cluster epo --plan --on node2.example.com",
    "gnt-debug allocator --dir in -m change-group --target-groups rack inst1.example.com",
    "gnt-cluster verify-disks -g rack",
    "gnt-cluster repair-disk-sizes --plan inst1.example.com",
    "gnt-cluster capacity -g rack --memory 128m --disk 1g",
    "gnt-cluster balance --plan -g rack",
    "gnt-debug delay --plan -n node2.example.com --no-master 0.1",
    "gnt-debug allocator --dir in -m relocate inst1.example.com",
)

#: Commands that act on nodes, or ask other daemons than that of the master.
ON_NODES = (
    "gnt-node list-drbd node2.example.com",
    "gnt-node restricted-command absent node2.example.com",
    "gnt-node restricted-command -g rack absent",
    "gnt-cluster command -n node2.example.com hostname",
    "gnt-cluster command -g rack hostname",
    "gnt-cluster copyfile -n node2.example.com /etc/hostname",
    "gnt-cluster copyfile -g rack /etc/hostname",
    "gnt-cluster verify -g rack",
    "ganeti-watcher -g rack",
)
#: Kind and name of positional arguments that name objects.
ARGUMENTS = frozenset(
    {("instance", ""), ("node", ""), ("group", ""), ("network", "")}
    | {("unknown", "node"), ("unknown", "instance-or-node")}
)
#: Others, which do not.
OTHER_ARGUMENTS = frozenset(
    {("command", ""), ("choice", ""), ("jobid", ""), ("os", ""), ("file", "")}
    | {
        ("filter", ""),
        ("unknown", "export"),
        ("file", "storage"),
        ("choice", "storage-type"),
        ("extstorage", ""),
    }
    | {("user", "name"), ("suggest", "age"), ("suggest", "duration")}
    | {("host", name) for name in ("cluster", "instance", "new-name", "node")}
    | {
        ("unknown", name)
        for name in (
            *("amount", "command", "disk", "duration", "field", "incident"),
            *("id", "pattern", "reason", "tag", "text"),
        )
    }
)
#: Types of options whose values may be names.
TEXTS = frozenset({"string", "list", "identkeyval"})
#: Options that name objects.
OPTIONS = frozenset(
    {"--node", "-n", "--node-group", "--new-primary", "--new-secondary"}
    | {"--target-node", "--target-groups", "--to", "--instance", "--net", "--disk"}
    | {"--ignore-offline-nodes", "--lost-candidates", "--event", "--policy"}
)
#: Others of these types, which do not.
_OTHER_OPTIONS = """
add-reserved-ips add-uids alloc-policy automation-limits cluster-domain-secret
compress compression-tools default-iallocator default-iallocator-params
diagnose-data-collector-filename disk-parameters disk-state disks
drbd-usermode-helper enabled-data-collectors enabled-disk-templates
enabled-hypervisors expires file-storage-dir from gateway gateway6
gluster-storage-dir horizon hypervisor-parameters hypervisor-state iallocator id
install-image instance-communication-network ipolicy-disk-templates mac-prefix
master-netdev master-netmask network network6 nics os-type output owner
primary-ip-version rapi-certificate remove-reserved-ips remove-uids
request-key reserved-lvs rights secondary-ip separator shared-file-storage-dir socket
since sort src-dir src-node specs-cpu-count specs-disk-count specs-disk-size specs-mem-size
specs-nic-count spice-ca-certificate spice-certificate store tags
transport-compression type uid-pool user
vg-name zeroing-image
"""
OTHER_OPTIONS = frozenset(f"--{name}" for name in _OTHER_OPTIONS.split())
#: Command and option -> why there is no row.
OTHER_USES = {
    ("gnt-backup export", "instance"): "needs disks; test_backup has its tests",
    ("gnt-backup export", "--node"): "needs disks; test_backup has its tests",
    ("gnt-backup import", "instance"): "a new name",
    ("gnt-backup import", "--disk"): "sizes",
    ("gnt-backup import", "--net"): "as of gnt-instance add",
    ("gnt-backup import", "--node"): "needs an export; test_backup has its tests",
    ("gnt-backup import", "--node-group"): "as of gnt-instance add",
    ("gnt-backup list", "--node"): "a filter on the names of nodes",
    ("gnt-backup remove", "export"): "the name of an export",
    ("gnt-group add", "group"): "a new name",
    ("gnt-network add", "network"): "a new name",
    ("gnt-node add", "--node-group"): "a machine is needed; the opcode has a row",
    ("gnt-cluster master-failover", "--ignore-offline-nodes"): (
        "reads ssconf before any master runs; has a test of its own"
    ),
    ("gnt-cluster renew-crypto", "--lost-candidates"): (
        "reads ssconf while no master runs; test_renew_crypto has its tests"
    ),
    ("gnt-cluster upgrade", "--to"): "a release",
    ("gnt-cluster migrate-store", "--to"): "an engine",
    ("gnt-instance add", "--disk"): "sizes",
    ("gnt-instance vnc", "instance"): "needs a display; test_consoles has its tests",
    ("gnt-instance recreate-disks", "--disk"): "numbers",
}

#: Variable of a path of the remote API -> the object that the rows have there.
VARIABLES = {
    "instance_name": I1,
    "node_name": N2,
    "group_name": "rack",
    "network_name": "net",
}
#: Variables of things without names, with a value.
OTHER_VARIABLES = {
    "disk_index": "0",
    "filter_uuid": "",
    "incident_uuid": "",
    "job_id": "1",
    "session_id": "session-1",
    "resource": "node",
}
_NEW_BODY = {
    "__version__": 1,
    "mode": "create",
    "disk_template": "diskless",
    "disks": [],
    "nics": [{"network": "net", "ip": "pool"}],
    "no_install": True,
    "os_type": "tiny",
    "pnode": N2,
    "hypervisor": "fake",
}
_CHANGES = {
    "disks": [["modify", "DISK", {"name": "boot"}]],
    "nics": [["modify", "NIC", {"network": "net"}]],
}
#: Method and path -> a body; those that name no object serve the path's variable.
BODIES = {
    ("POST", "/2/instances"): {**_NEW_BODY, "instance_name": "new.example.com"},
    ("POST", "/2/instances-multi-alloc"): {
        "instances": [
            {
                **{key: _NEW_BODY[key] for key in _NEW_BODY if key != "__version__"},
                "OP_ID": "OP_INSTANCE_CREATE",
                "instance_name": "new.example.com",
            }
        ]
    },
    ("PUT", "/2/instances/[instance_name]/failover"): {"target_node": N3},
    ("PUT", "/2/instances/[instance_name]/migrate"): {"target_node": N3},
    ("PUT", "/2/instances/[instance_name]/modify"): _CHANGES,
    ("PUT", "/2/instances/[instance_name]/rename"): {"new_name": "new.example.com"},
    ("PUT", "/2/instances/[instance_name]/export"): {"destination": [N2]},
    ("POST", "/2/instances/[instance_name]/disk/[disk_index]/grow"): {"amount": 8},
    ("POST", "/2/instances/[instance_name]/recreate-disks"): {"nodes": [N3]},
    ("POST", "/2/instances/[instance_name]/replace-disks"): {
        "mode": "replace_new_secondary",
        "remote_node": N3,
    },
    ("POST", "/2/nodes/[node_name]/evacuate"): {
        "mode": "primary-only",
        "remote_node": N3,
    },
    ("POST", "/2/nodes/[node_name]/migrate"): {"target_node": N3},
    ("POST", "/2/nodes/[node_name]/modify"): {"drained": True},
    ("PUT", "/2/nodes/[node_name]/role"): "drained",
    ("PUT", "/2/groups/[group_name]/assign-nodes"): {"nodes": [N3]},
    ("PUT", "/2/groups/[group_name]/modify"): {"alloc_policy": "last_resort"},
    ("PUT", "/2/groups/[group_name]/rename"): {"new_name": "row"},
    ("PUT", "/2/networks/[network_name]/connect"): {
        "group_name": "rack",
        "network_mode": "bridged",
        "network_link": "br0",
    },
    ("PUT", "/2/networks/[network_name]/disconnect"): {"group_name": "rack"},
    ("PUT", "/2/networks/[network_name]/modify"): {"gateway": "198.51.100.1"},
    ("PUT", "/2/networks/[network_name]/rename"): {"new_name": "wide"},
}
#: Method and path -> arguments of the query.
QUERIES = {
    ("GET", "/2/journal"): f"node={N2}",
    ("GET", "/2/nodes/[node_name]/storage"): "output_fields=name&storage_type=file",
    ("PUT", "/2/nodes/[node_name]/storage/modify"): "name=x&storage_type=lvm-vg",
    ("PUT", "/2/nodes/[node_name]/storage/repair"): "name=x&storage_type=lvm-vg",
    ("PUT", "/2/instances/[instance_name]/prepare-export"): "mode=local",
    ("POST", "/2/instances/[instance_name]/replace-disks"): f"remote_node={N3}",
}
#: Resources without a variable that names objects -> why they have no row.
OTHER_RESOURCES = {
    ("PUT", "/2/modify"): "the cluster",
    ("POST", "/2/filters"): "a rule names jobs by their parameters",
    ("PUT", "/2/query/[resource]"): "a filter compares the values of fields",
    ("POST", "/2/groups"): "a new group",
    ("POST", "/2/networks"): "a new network",
}


def request_of(resource):
    """Return URI and body of a resource's row, None if it names no object."""
    key = resource.method, resource.path
    names = [VARIABLES[name] for name in resource.variables if name in VARIABLES]
    unknown = set(resource.variables) - {*VARIABLES, *OTHER_VARIABLES}
    assert not unknown, f"{key}: may {unknown} name objects?"
    if not names and key not in {*BODIES, *QUERIES}:
        takes_body = resource.body is not model.Body.IGNORED
        assert not takes_body or key in OTHER_RESOURCES or resource.variables, key
        return None
    uri = resource.path
    for variable, value in (VARIABLES | OTHER_VARIABLES).items():
        uri = uri.replace(f"[{variable}]", value)
    if key in QUERIES:
        uri += f"?{QUERIES[key]}"
    return uri, BODIES.get(key)


def open_master(root):
    """Return a started master daemon with the objects of the rows."""
    disk = objects.Disk(
        uuid=DISK,
        name="data",
        dev_type="file",
        logical_id=("loop", "/srv/ganeti/file-storage/inst1/disk"),
        size=1024,
        nodes=(clusters.node_uuid(1),),
        serial_no=1,
    )
    nic = objects.Nic(uuid=NIC, name="lan", mac="aa:00:00:00:00:01", nicparams={})
    start = clusters.snapshot(
        nodes=3,
        instances=1,
        extra=[
            clusters.group("rack", RACK, tags=frozenset({"old"})),
            clusters.node(4, group=RACK, master_candidate=False),
            clusters.network("net", tags=frozenset({"old"})),
            clusters.node(2, tags=frozenset({"old"})),
            disk,
            clusters.instance(
                1,
                disks=(DISK,),
                nics=(nic,),
                disk_template="file",
                tags=frozenset({"old"}),
            ),
            clusters.instance(2),
        ],
        candidate_pool_size=2,
        default_iallocator="hail",
        ipolicy=clusters.cluster().ipolicy | {"disk-templates": ["file", "diskless"]},
    )
    script = {
        **SUCCESSFUL_ACTS,
        "version": 3010000,
        "all_instances_info": {},
        "node_info": ["boot", [], [{"memory_free": 8192, "hv_version": "7.2"}]],
        "node_powercycle": "",
    }
    made = Master(root / "node1.example.com", start, script).start()
    items = [
        {"kind": kind, "name": name, "decision": "chosen", "action": "x"}
        for kind, name in (("node", N2), ("instance", I1))
    ]
    with made.client() as client:
        client.call(
            "RecordRound", [{"round": "r1", "automaton": "watcher", "items": items}]
        )
    return made


def names_of(snapshot):
    """Return uuid -> name of all objects."""
    by_uuid = {DISK: "data", NIC: "lan"}
    for table in ("nodes", "nodegroups", "instances", "networks"):
        by_uuid |= {uuid: row.name for uuid, row in snapshot.table(table).items()}
    return by_uuid


def with_uuids(value, uuids):
    """Return a parameter with the uuids of all objects that it names."""
    if isinstance(value, str):
        return uuids.get(value, value)
    if isinstance(value, list):
        return [with_uuids(item, uuids) for item in value]
    if isinstance(value, dict):
        return {key: with_uuids(item, uuids) for key, item in value.items()}
    return value


def plain(answer, names):
    """Return an answer as text without what differs from run to run."""
    text = json.dumps(answer, indent=1, sort_keys=True)
    for uuid, name in names.items():
        text = text.replace(uuid, name)
    return _TIME.sub("TIME", _MAC.sub("MAC", _UUID.sub("UUID", text)))


def in_words(line, uuids):
    """Return the words of a command with uuids in place of names, also inside."""
    return [
        "".join(uuids.get(part, part) for part in re.split("([:=,/?& ])", word))
        for word in shlex.split(line)
    ]

"""A master with a small cluster whose objects have a value for every documented field."""

import functools
import json
import pathlib

from fakes import clusters
from fakes.luxi_master import SUCCESSFUL_OPCODES, FakeMaster
from ganeti.master.query import cluster_info

_SPEC = pathlib.Path(__file__).parents[2] / "data" / "spec" / "query_fields.json"
_NOW = 1_700_000_000.25


def _value(row, number):
    """Return a value of a field by its kind; no two fields of a kind have equal ones."""
    match row["kind"]:
        case "text":
            return f"{row['name']} {number}"
        case "bool":
            return bool(number % 2)
        case "timestamp":
            return _NOW + 100 * number
        case "float":
            return number + 0.5
        case "unit":
            return 1024 * number + 512
        case _:
            return number


@functools.cache
def _fields():
    return json.loads(_SPEC.read_text())["fields"]


def _object(resource, number, **known):
    fields = [row for row in _fields() if row["resource"] == resource]
    made = {
        row["name"]: _value(row, number + place) for place, row in enumerate(fields, 1)
    }
    return made | known


#: Opcodes that submit jobs; here none.
_SUBMITTING = (
    *("OP_INSTANCE_CHANGE_GROUP", "OP_NODE_EVACUATE", "OP_NODE_MIGRATE"),
    *("OP_GROUP_EVACUATE", "OP_CLUSTER_VERIFY", "OP_CLUSTER_VERIFY_DISKS"),
)
_POLICY = {
    "minmax": [
        {
            "min": {"memory-size": 128, "cpu-count": 1, "disk-size": 1024},
            "max": {"memory-size": 32768, "cpu-count": 8, "disk-size": 1048576},
        }
    ],
    "std": {"memory-size": 128, "cpu-count": 1},
    "disk-templates": ["drbd", "plain"],
    "vcpu-ratio": 4.0,
    "spindle-ratio": 32.0,
}


_VOLUMES = [
    {
        "node": "n1.tst",
        "phys": "/dev/sda",
        "vg": "vgx",
        "name": "abc.disk0",
        "size": "20480",
        "instance": "web2.tst",
    },
    {
        "node": "n1.tst",
        "phys": "/dev/sdb",
        "vg": "vgx",
        "name": "swap",
        "size": "512",
        "instance": "-",
    },
]
_STORAGE = [
    {
        "node": "n1.tst",
        "type": "lvm-vg",
        "name": "vgx",
        "size": 2048,
        "used": 512,
        "free": 1536,
        "allocatable": True,
    },
    {
        "node": "n2.tst",
        "type": "lvm-vg",
        "name": "vgy",
        "size": 1024,
        "used": 1024,
        "free": 0,
        "allocatable": False,
    },
]
#: Answers of the out-of-band helper: one node is fine, one has a fault.
_HEALTH = {
    "n1.tst": [[0, [["fan", "OK"], ["power", "WARNING"]]]],
    "n2.tst": [[0, [["disk", "CRITICAL"]]]],
}


def _instances():
    common = {"tags": [], "nic.ips": ["192.0.2.9", None], "nic.networks": ["w1", "w2"]}
    return [
        _object(
            *("instance", 1),
            **common | {"tags": ["blue"]},
            name="web1.tst",
            uuid="i1",
            pnode="n1.tst",
            snodes=["n2.tst"],
            console={
                "kind": "ssh",
                "instance": "web1.tst",
                "host": "n1.tst",
                "port": 2022,
                "user": "operator",
                "command": ["socat", "-", "unix:a b"],
            },
            oper_state=True,
        ),
        _object(
            *("instance", 2),
            **common,
            name="web2.tst",
            uuid="i2",
            pnode="n2.tst",
            snodes=[],
            console={
                "kind": "vnc",
                "instance": "web2.tst",
                "host": "192.0.2.2",
                "port": 5904,
            },
            oper_state=True,
        ),
        _object(
            *("instance", 3),
            **common,
            name="web10.tst",
            uuid="i3",
            pnode="n1.tst",
            snodes=[],
            console=None,
            oper_state=False,
        ),
    ]


def _nodes():
    common = {
        "ndparams": {"ssh_port": 22, "spindle_count": 1},
        "group": "default",
        "group.uuid": "g1",
        "offline": False,
        "vm_capable": True,
        "hv_state": {},
        "disk_state": {},
    }
    return [
        _object(
            *("node", 1),
            **common,
            name="n1.tst",
            uuid="u1",
            tags=["rack1"],
            role="M",
            custom_ndparams={"ssh_port": 2022},
            pinst_list=["web10.tst", "web1.tst"],
            sinst_list=[],
        ),
        _object(
            *("node", 2),
            **common,
            name="n2.tst",
            uuid="u2",
            tags=["rack2"],
            role="C",
            custom_ndparams={},
            pinst_list=["web2.tst"],
            sinst_list=["web1.tst"],
        ),
        _object(
            *("node", 3),
            **common | {"offline": True, "vm_capable": False},
            name="n3.tst",
            uuid="u3",
            tags=[],
            role="O",
            custom_ndparams=None,
            pinst_list=[],
            sinst_list=[],
        ),
    ]


def _groups():
    return [
        _object(
            *("group", 1),
            name="default",
            uuid="g1",
            tags=["t"],
            node_list=["n1.tst", "n2.tst"],
            pinst_list=["web1.tst"],
            ndparams={"ssh_port": 22, "ovs": False},
            custom_ndparams={"ovs": True},
            diskparams={"drbd": {"resync-rate": 1024, "metavg": "xenvg"}, "file": {}},
            custom_diskparams={"drbd": {"metavg": "other"}},
            ipolicy=_POLICY,
            custom_ipolicy={"vcpu-ratio": 2.0},
        ),
        _object(
            *("group", 2),
            name="spare",
            uuid="g2",
            tags=[],
            node_list=[],
            pinst_list=[],
            ndparams=None,
            custom_ndparams=None,
            diskparams=None,
            custom_diskparams=None,
            ipolicy=_POLICY,
            custom_ipolicy=None,
        ),
    ]


def _networks():
    return [
        _object(
            *("network", 1),
            name="lan",
            uuid="w1",
            network="192.0.2.0/25",
            gateway="192.0.2.1",
            network6=None,
            gateway6=None,
            mac_prefix="aa:00:01",
            free_count=117,
            reserved_count=11,
            map="XX" + "." * 100 + "X" * 9 + "." * 17,
            external_reservations=", ".join(f"192.0.2.{n}" for n in range(102, 111)),
            group_list=[
                ["default", "bridged", "br0", "12"],
                ["spare", "routed", "", ""],
            ],
            inst_list=["web1.tst", "web10.tst"],
            tags=["t1", "t2"],
        ),
        _object(
            *("network", 2),
            name="office",
            uuid="w2",
            network="198.51.100.0/30",
            gateway=None,
            network6="2001:db8::/64",
            gateway6="2001:db8::1",
            mac_prefix=None,
            free_count=0,
            reserved_count=0,
            map="",
            external_reservations="",
            group_list=[],
            inst_list=[],
            tags=[],
        ),
    ]


def _job(number, **known):
    log = [
        [1, [1_700_000_001, 500], "message", "first"],
        [2, [1_700_000_002, 0], "progress", "half"],
        [3, [1_700_000_003, 0], "placement", {}],
    ]
    job = {
        "id": number,
        "status": "success",
        "summary": ["INSTANCE_STARTUP(web1)", "TEST_DELAY"],
        "ops": [
            {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "web1"},
            {"OP_ID": "OP_TEST_DELAY", "duration": 1.5},
        ],
        "opresult": [None, [True, {"a": 1}]],
        "opstatus": ["success", "success"],
        "oplog": [log, []],
        "opstart": [[1_700_000_000, 250], None],
        "opexec": [[1_700_000_001, 250], None],
        "opend": [[1_700_000_004, 250], None],
        "received_ts": [1_700_000_000, 0],
        "start_ts": [1_700_000_001, 500_000],
        "end_ts": [1_700_000_004, 125_000],
        "archived": False,
    }
    return job | known


def _systems():
    good = ["/srv/os/deb", True, "", ["min", "full"], [["dns", "a server"]], [20], True]
    bad = ["/usr/os/deb", False, "no create script", [], [], [20], False]
    plain = ["/srv/os/old", True, "", [], [], [10], False]
    newer = ["/srv/os/tiny", True, "", [], [], [15, 20], True]
    silent = ["/srv/os/tiny", True, "", [], [], [], True]
    common = {"hidden": False, "blacklisted": False, "os_hvp": {}, "osparams": {}}
    return [
        common
        | {
            "name": "deb",
            "valid": True,
            "variants": ["full", "min"],
            "parameters": [["dns", "a server"]],
            "api_versions": [20],
            "trusted": True,
            "node_status": {"u1": [good], "u2": [good, bad]},
            "os_hvp": {"deb+min": {"kvm": {"acpi": False}}},
            "osparams": {"gone": {"key": "value"}},
        },
        common
        | {
            "name": "old",
            "valid": False,
            "variants": [],
            "parameters": [],
            "api_versions": [],
            "hidden": True,
            "blacklisted": True,
            "trusted": False,
            "node_status": {"u2": [bad], "u1": [plain], "u3": []},
        },
        common
        | {
            "name": "tiny",
            "valid": False,
            "variants": None,
            "parameters": None,
            "api_versions": None,
            "trusted": True,
            "node_status": {"u1": [bad], "u2": [bad]},
        },
        common
        | {
            "name": "wide",
            "valid": True,
            "variants": [],
            "parameters": [],
            "api_versions": [15],
            "trusted": True,
            "node_status": {"u1": [newer], "u2": [silent]},
        },
    ]


def _disk(number, **known):
    disk = {
        "iv_name": f"disk/{number}",
        "logical_id": ["xenvg", f"lv{number}"],
        "physical_id": None,
        "dev_type": "plain",
        "size": 2048 * (number + 1),
        "spindles": None,
        "mode": "rw",
        "name": f"data{number}",
        "uuid": f"d{number}",
        "pstatus": [f"/dev/xenvg/lv{number}", 254, number, None, None, False, 0],
        "sstatus": None,
        "children": [],
        "params": {},
    }
    return disk | known


def _instance_details():
    mirror = _disk(
        1,
        dev_type="drbd",
        logical_id=["n1.tst", "n2.tst", 11000, 1, 2, "secret"],
        pstatus=["/dev/drbd1", 147, 1, 12.5, 90, True, 2],
        sstatus=["/dev/drbd2", 147, 2, None, None, False, 1],
        children=[_disk(2), _disk(3, size=128, name=None)],
    )
    nic = ["eth", "c0", "192.0.2.9", "aa:00:00:1:2:3", "bridged", "br0", ".12"]
    return {
        "web1.tst": {
            "name": "web1.tst",
            "uuid": "i1",
            "serial_no": 7,
            "ctime": _NOW,
            "mtime": _NOW + 60,
            "config_state": "up",
            "run_state": "down",
            "pnode": "n1.tst",
            "pnode_group_name": "default",
            "pnode_group_uuid": "g1",
            "snodes": ["n2.tst", "n3.tst"],
            "snodes_group_names": ["default", "spare"],
            "snodes_group_uuids": ["g1", "g2"],
            "os": "deb+min",
            "os_actual": {"dns": "192.0.2.53", "gw": "none"},
            "os_instance": {"dns": "192.0.2.53"},
            "network_port": 11_004,
            "hypervisor": "kvm",
            "hv_actual": {
                "vnc_bind_address": "192.0.2.1",
                "acpi": True,
                "kernel_path": "",
            },
            "hv_instance": {"acpi": True},
            "be_actual": {"vcpus": 4, "maxmem": 2048, "minmem": 1024, "memory": 2048},
            "be_instance": {"maxmem": 2048},
            "nics": [[*nic, "w1", {"name": "lan"}], [*nic, None, None]],
            "nics_own": [
                {"mode": "bridged", "link": "br7", "vlan": ""},
                {"link": "br7"},
            ],
            "disk_template": "drbd",
            "diskparams": {"drbd": {"resync-rate": 61440, "protocol": "C"}},
            "disks": [_disk(0), mirror],
            "tags": ["blue"],
        }
    }


def master():
    """Return a new master."""
    fake = FakeMaster()
    fake.objects = {
        "instance": _instances(),
        "node": _nodes(),
        "group": _groups(),
        "network": _networks(),
        "os": _systems(),
        "job": [_job(7), _job(8, status="running", end_ts=None, start_ts=None)],
        "filter": [
            {
                "uuid": "6dbb1a3e-0000-4000-8000-000000000001",
                "watermark": 12,
                "priority": 3,
                "predicates": [["jobid", [">", "id", 4]]],
                "action": ["RATE_LIMIT", 2],
                "reason_trail": [["gnt:user", "slow", 1]],
            }
        ],
        "lock": [
            {
                "name": "instance/web1",
                "mode": "exclusive",
                "owner": ["7"],
                "pending": [["shared", ["8", "9"]], ["exclusive", ["10"]]],
            },
            {"name": "BGL", "mode": None, "owner": None, "pending": []},
        ],
        "export": [],
        "extstorage": [],
    }
    fake.values = {
        "cluster_name": "c.tst",
        "master_node": "n1.tst",
        "drain_flag": False,
        "watcher_pause": None,
        "modify_ssh_setup": True,
    }
    fake.cluster = _info()
    fake.copies = {
        "store": "files",
        "policy": "majority",
        "term": 4,
        "confd": {"hmac": "both", "detect_replays": True},
        "revision": 77,
        "copies": [
            {"name": "n2.tst", "is_current": True, "lag": 0, "trouble": ""},
            {"name": "n3.tst", "is_current": True, "lag": 2, "trouble": ""},
            {"name": "n4.tst", "is_current": False, "lag": 5, "trouble": "no answer"},
        ],
        "warning": "",
    }
    fake.results = {
        **SUCCESSFUL_OPCODES,
        "OP_OS_DIAGNOSE": _diagnose,
        "OP_EXT_STORAGE_DIAGNOSE": lambda op: _columns(op, _providers()),
        "OP_INSTANCE_ACTIVATE_DISKS": lambda op: [
            ["n1", "disk/0", f"/dev/{op.instance_name}"]
        ],
        "OP_INSTANCE_QUERY_DATA": _instance_details(),
        "OP_INSTANCE_RENAME": "w2.tst",
        "OP_INSTANCE_SET_PARAMS": [["be/vcpus", 4], ["disk/0", "add:size=1"]],
        "OP_NODE_SET_PARAMS": [["offline", False]],
        "OP_GROUP_SET_PARAMS": [["alloc_policy", "preferred"]],
        "OP_NODE_QUERYVOLS": lambda op: _columns(op, _VOLUMES),
        "OP_NODE_QUERY_STORAGE": lambda op: _columns(op, _STORAGE),
        "OP_OOB_COMMAND": _out_of_band,
        "OP_TEST_ALLOCATOR": "the request",
        "OP_RESTRICTED_COMMAND": lambda op: [
            [name != "n2.tst", f"first line of {name}\nsecond\n"] for name in op.nodes
        ],
        "OP_TAGS_SEARCH": [["/instances/web1.tst", "blue"], ["/cluster", "blue2"]],
    }
    fake.results |= {op_id: {"jobs": []} for op_id in _SUBMITTING}
    fake.messages = {"OP_INSTANCE_STARTUP": ["starting\ta guest"]}
    return fake


def _out_of_band(op):
    if op.command == "power-status":
        return [
            [[0, name], [0, {"powered": name == "n1.tst"}]] for name in op.node_names
        ]
    return [[[0, name], *_HEALTH.get(name, [[2, None]])] for name in op.node_names]


def _diagnose(op):
    return _columns(op, _systems())


def _providers():
    good = ["/srv/es/shelf", True, "", [["tier", "text from the provider"]]]
    bad = ["/usr/es/shelf", False, "script grow: not executable", []]
    plain = ["/srv/es/plain", True, "", []]
    return [
        {
            "name": "shelf",
            "node_status": {"u1": [good, bad], "u2": [bad], "u3": []},
            "nodegroup_status": {"rack10": False, "rack2": True},
            "parameters": [["tier", "text from the provider"]],
        },
        {
            "name": "plain",
            "node_status": {"u1": [plain]},
            "nodegroup_status": {"rack2": False},
            "parameters": [],
        },
    ]


def _columns(op, rows):
    return [[row.get(field) for field in op.output_fields] for row in rows]


@functools.cache
def _info():
    info = cluster_info.cluster_info(_cluster())
    return info | {"architecture": ["64bits", "x86_64"]}


def _cluster():
    return clusters.snapshot(
        uid_pool=[[4000, 4019], [5000, 5000]],
        reserved_lvs=["swap", "home"],
        tags=["t10", "t2"],
        hidden_os=["old"],
        blacklisted_os=["bad", "worse"],
        os_hvp={"deb": {"kvm": {"acpi": False}}},
        osparams={"deb": {"dns": "none"}},
        default_iallocator="hail",
        compression_tools=["gzip"],
        ctime=_NOW,
        mtime=_NOW + 60,
    )

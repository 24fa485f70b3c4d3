"""The query fields of the objects that the remote API returns, in documented order."""

from typing import Final

_COMMON: Final = ("ctime", "mtime", "uuid", "serial_no", "tags")

INSTANCE: Final = (
    *("name", "admin_state", "os", "pnode", "snodes", "disk_template"),
    *("nic.ips", "nic.macs", "nic.modes", "nic.uuids", "nic.names", "nic.links"),
    *("nic.networks", "nic.networks.names", "nic.bridges", "network_port"),
    *("disk.sizes", "disk.spindles", "disk_usage", "disk.uuids", "disk.names"),
    *("beparams", "hvparams", "oper_state", "oper_ram", "oper_vcpus", "status"),
    *("custom_hvparams", "custom_beparams", "custom_nicparams", "custom_osparams"),
    *_COMMON,
)
NODE: Final = (
    *("name", "offline", "master_candidate", "drained", "dtotal", "dfree", "sptotal"),
    *("spfree", "mtotal", "mnode", "mfree", "pinst_cnt", "sinst_cnt", "ctotal"),
    *("cnos", "cnodes", "csockets", "pip", "sip", "role", "pinst_list", "sinst_list"),
    *("master_capable", "vm_capable", "ndparams", "group.uuid", *_COMMON),
)
NETWORK: Final = (
    *("name", "network", "gateway", "network6", "gateway6", "mac_prefix"),
    *("free_count", "reserved_count", "map", "group_list", "inst_list"),
    *("external_reservations", *_COMMON),
)
GROUP: Final = (
    *("alloc_policy", "name", "node_cnt", "node_list", "ipolicy", "custom_ipolicy"),
    *("diskparams", "custom_diskparams", "ndparams", "custom_ndparams", *_COMMON),
)
FILTER: Final = (
    "watermark",
    "priority",
    "predicates",
    "action",
    "reason_trail",
    "uuid",
)
JOB_IN_BULK: Final = (
    *("id", "ops", "status", "summary", "opstatus", "received_ts", "start_ts"),
    "end_ts",
)
JOB: Final = (*JOB_IN_BULK, "oplog", "opresult")

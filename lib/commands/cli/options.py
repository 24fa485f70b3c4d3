"""Options that several commands share, each defined once.

An option of a single command is defined in that command's row.
"""

import functools
from typing import Final

from ganeti.base.constants import disks
from ganeti.commands.cli import param_options
from ganeti.commands.cli.model import Option, option


def without_effect(option: Option, reason: str) -> Option:
    """Return an option that a command accepts, and ignores with a warning."""
    text = f"no effect, {reason}"
    return option._replace(help=text, warns=text)


#: Option of every listing and info command; see `ganeti.commands.cli.output.listing`.
JSON: Final = option("--json", "print a JSON document instead of text")
COLOR: Final = option(
    "--color",
    "colour states: auto (default) only on a terminal, always or never",
    "choice",
    choices=("auto", "always", "never"),
    default="auto",
)
ACTION: Final = option(
    "--action",
    "action of the rule: ACCEPT, PAUSE, REJECT, CONTINUE or 'RATE_LIMIT n'",
    "filteraction",
    default="CONTINUE",
)
ALLOC_POLICY: Final = option(
    "--alloc-policy",
    "allocation policy of the group: preferred, last_resort or unallocable",
    "string",
)
ALL_INSTANCES: Final = option(
    "--all",
    "select every instance of the cluster; excludes instance names",
    "const",
    dest="multi_mode",
    sets="cluster",
)
AUTO_PROMOTE: Final = option(
    "--auto-promote",
    "lock all nodes, and promote other nodes to master candidate if the pool became"
    " too small",
)
BACKEND_PARAMETERS: Final = option(
    "-B --backend-parameters",
    "backend parameters key=value,...",
    "keyval",
    dest="beparams",
    default={},
)
BY_TAGS: Final = option(
    "--tags",
    "select instances by their tags",
    "const",
    dest="multi_mode",
    sets="instances-by-tags",
)
CANDIDATE_POOL_SIZE: Final = option(
    "-C --candidate-pool-size", "wanted number of master candidates", "int"
)
CLEANUP: Final = option(
    "--cleanup",
    "recover from an earlier interrupted migration/failover "
    "instead of starting a new one",
)
CLOUD_INIT: Final = option(
    "--cloud-init",
    "files that cloud-init reads in the guest: user-data=FILE,meta-data=FILE,"
    "network-config=FILE",
    "keyval",
    default={},
    field=None,
)
CLUSTER_FILE_STORAGE_DIR: Final = option(
    "--file-storage-dir", "cluster-wide default directory for file disks", "string"
)
COMMUNICATION: Final = option(
    "-c --communication",
    "enable the metadata communication NIC",
    "bool",
    dest="instance_communication",
)
COMPRESSION_TOOLS: Final = option(
    "--compression-tools",
    "comma-separated list of allowed compression tools; empty restores the default"
    " list",
    "string",
)
DEFAULT_IALLOCATOR: Final = option(
    "-I --default-iallocator",
    "default allocators as NAME,... or by type of request as TYPE=NAME,...:...; empty"
    " removes them",
    "string",
)
DEFAULT_IALLOCATOR_PARAMS: Final = option(
    "--default-iallocator-params",
    "additional parameters for the default allocator",
    "keyval",
)
DISK: Final = option(
    "--disk",
    "disk as INDEX:key=value,...; modify also accepts INDEX or one of add, attach,"
    " remove and detach before the colon",
    "identkeyval",
    dest="disks",
    repeat=True,
)
DISK_PARAMETERS: Final = option(
    "-D --disk-parameters",
    "disk parameters as TEMPLATE:key=value,...",
    "identkeyval",
    dest="diskparams",
    repeat=True,
    convert=functools.partial(param_options.by_ident, what="disk template"),
)
DISK_STATE: Final = option(
    "--disk-state",
    "disk state as STORAGETYPE/IDENT:key=value,...; stored but not used",
    "identkeyval",
    repeat=True,
    convert=param_options.disk_state,
)
DISK_TEMPLATE: Final = option(
    "-t --disk-template",
    "disk template",
    "choice",
    choices=disks.DISK_TEMPLATES,
    suggested=disks.OFFERED_DISK_TEMPLATES,
)
DRBD_USERMODE_HELPER: Final = option(
    "--drbd-usermode-helper",
    "path of the DRBD usermode helper; empty removes it",
    "string",
    dest="drbd_helper",
)
DRY_RUN: Final = option(
    "--dry-run", "only run the checks; the job ends before it changes anything"
)
EARLY_RELEASE: Final = option(
    "--early-release", "release the node locks as early as possible"
)
ENABLED_DISK_TEMPLATES: Final = option(
    "--enabled-disk-templates",
    "comma-separated list of the disk templates allowed in the cluster",
    "string",
    convert=param_options.split_words,
)
ENABLED_HYPERVISORS: Final = option(
    "--enabled-hypervisors",
    "comma-separated list of hypervisors; the first one is the default",
    "string",
    convert=param_options.split_words,
)
FILE_DRIVER: Final = without_effect(
    option("--file-driver", "", "choice", choices=("blktap", "blktap2", "loop")),
    "hypervisors choose how they open files",
)
FILTER: Final = option(
    "-F --filter", "treat the only argument as a filter expression", dest="force_filter"
)
FORCE: Final = option("-f --force", "do not ask, and override soft checks")
#: The same for an opcode without the parameter ``force``.
NO_QUESTION: Final = FORCE._replace(field=None)
FORCE_MULTIPLE: Final = option(
    "--force-multiple",
    "do not ask even if several instances are selected",
    dest="force_multi",
)
FORCE_VARIANT: Final = option(
    "--force-variant", "accept an OS variant that the OS does not declare"
)
FROM: Final = option(
    "--from",
    "read further tags from this file, one per line; '-' is standard input",
    "string",
    dest="tags_source",
    field=None,
)
HYPERVISOR_PARAMETERS: Final = option(
    "-H --hypervisor-parameters",
    "hypervisor parameters as HYPERVISOR:key=value,...",
    "identkeyval",
    dest="hvparams",
    repeat=True,
    convert=functools.partial(param_options.by_ident, what="hypervisor"),
)
HYPERVISOR_STATE: Final = option(
    "--hypervisor-state",
    "hypervisor state as HYPERVISOR:key=value,...; stored but not used",
    "identkeyval",
    dest="hv_state",
    repeat=True,
    convert=functools.partial(param_options.by_ident, what="hypervisor state"),
)
IALLOCATOR: Final = option(
    "-I --iallocator",
    "name of the allocator that chooses nodes; '.' is the cluster's default",
    "string",
)
IGNORE_CONSISTENCY: Final = option(
    "--ignore-consistency", "continue even if the disks on the other node are degraded"
)
IGNORE_IPOLICY: Final = option(
    "--ignore-ipolicy", "allow values outside of the instance policy"
)
IGNORE_OFFLINE: Final = option(
    "--ignore-offline",
    "accept an offline primary node, and only record the new state",
    field="ignore_offline_nodes",
)
INSTALL_IMAGE: Final = option(
    "--install-image",
    "image of helper machines that install untrusted operating systems",
    "string",
)
INSTANCE: Final = option(
    "--instance",
    "select instances by name (default)",
    "const",
    dest="multi_mode",
    sets="instances",
)
INSTANCE_FILE_STORAGE_DIR: Final = option(
    "--file-storage-dir",
    "subdirectory of the file storage directory for the instance's disks",
    "string",
)
IPOLICY_BOUNDS_SPECS: Final = option(
    "--ipolicy-bounds-specs",
    "min:key=value,.../max:key=value,... pairs joined by //; each part needs all six"
    " keys",
    "multilistidentkeyval",
    field=None,
)
IPOLICY_DISK_TEMPLATES: Final = option(
    "--ipolicy-disk-templates",
    "comma-separated list of allowed disk templates; in a group also 'default'",
    "list",
    field=None,
)
IPOLICY_SPINDLE_RATIO: Final = option(
    "--ipolicy-spindle-ratio",
    "largest ratio of instance spindles to node spindles; in a group also 'default'",
    "maybefloat",
    field=None,
)
IPOLICY_STD_SPECS: Final = option(
    "--ipolicy-std-specs",
    "standard instance size as key=value,... (cluster only)",
    "keyval",
    field=None,
)
IPOLICY_VCPU_RATIO: Final = option(
    "--ipolicy-vcpu-ratio",
    "largest ratio of virtual to physical CPUs; in a group also 'default'",
    "maybefloat",
    field=None,
)
IP_CHECK: Final = option(
    "--ip-check", "ping the instance's IP address first, and refuse if it answers"
)
MAC_PREFIX: Final = option(
    "-m --mac-prefix", "first three bytes of generated MAC addresses", "string"
)
MAINTAIN_NODE_HEALTH: Final = option(
    "--maintain-node-health",
    "allow the watcher to stop stray instances and DRBD devices",
    "bool",
)
MASTER_CAPABLE: Final = option(
    "--master-capable", "whether the node may become a master candidate", "bool"
)
MASTER_NETDEV: Final = option(
    "--master-netdev", "network interface for the master IP address", "string"
)
MASTER_NETMASK: Final = option(
    "--master-netmask", "prefix length of the master IP address", "string"
)
MIGRATION_MODE: Final = option(
    "--migration-mode",
    "migration mode instead of the hypervisor's default; excludes --non-live",
    "choice",
    choices=("live", "non-live"),
    field="mode",
)
NAME_CHECK: Final = option(
    "--name-check", "resolve the instance name, and use the full name from DNS"
)
NET: Final = option(
    "--net",
    "NIC as INDEX:key=value,...; modify also accepts add or remove before the colon",
    "identkeyval",
    dest="nics",
    repeat=True,
)
NEW_SECONDARY: Final = option(
    "-n --new-secondary",
    "new secondary node",
    "string",
    dest="dst_node",
    field="remote_node",
)
NIC_PARAMETERS: Final = option(
    "-N --nic-parameters",
    "NIC parameters key=value,...",
    "keyval",
    dest="nicparams",
    default={},
    convert=param_options.nic_parameters,
)
NODE: Final = option(
    "--node",
    "select instances by node (primary or secondary)",
    "const",
    dest="multi_mode",
    sets="nodes",
)
NODE_GROUP: Final = option(
    "-g --node-group",
    "node group name or UUID",
    "string",
    dest="nodegroup",
    field="group_name",
)
NODE_PARAMETERS: Final = option(
    "--node-parameters", "node parameters key=value,...", "keyval", dest="ndparams"
)
NODE_TAGS: Final = option(
    "--node-tags",
    "select instances by tags of the node (primary or secondary)",
    "const",
    dest="multi_mode",
    sets="nodes-by-tags",
)
NON_LIVE: Final = option(
    "--non-live",
    "suspend the instance during the migration",
    clears="live",
    field=None,
)
NO_CONFLICTS_CHECK: Final = option(
    "--no-conflicts-check",
    "skip the check whether the IP address belongs to a network",
    clears="conflicts_check",
)
NO_HEADERS: Final = option("--no-headers", "omit the header line")
NO_REMEMBER: Final = option(
    "--no-remember", "do not record the new state in the configuration"
)
NO_RUNTIME_CHANGES: Final = option(
    "--no-runtime-changes",
    "do not change the instance's memory (ballooning) during migration",
    clears="allow_runtime_chgs",
    field="allow_runtime_changes",
)
NO_WAIT_FOR_SYNC: Final = option(
    "--no-wait-for-sync",
    "do not wait until the mirror is in sync",
    clears="wait_for_sync",
)
ONLY_NODES: Final = option(
    "-n --node", "only this node", "string", dest="nodes", repeat=True
)
OOB_TIMEOUT: Final = option(
    "--oob-timeout",
    "time limit of the out-of-band helper in seconds",
    "int",
    default=60,
    field="timeout",
)
OS_PARAMETERS: Final = option(
    "-O --os-parameters",
    "OS parameters key=value,...",
    "keyval",
    dest="osparams",
    default={},
)
OS_PARAMETERS_PRIVATE: Final = option(
    "--os-parameters-private",
    "OS parameters that are stored but never logged; @FILE or @- reads key=value lines",
    "keyprivateval",
    dest="osparams_private",
    default={},
)
OS_PARAMETERS_SECRET: Final = option(
    "--os-parameters-secret",
    "OS parameters that are neither logged nor stored; @FILE or @- reads key=value"
    " lines",
    "keyprivateval",
    dest="osparams_secret",
    default={},
)
OS_TYPE: Final = option(
    "-o --os-type",
    "operating system, optionally with +VARIANT",
    "string",
    dest="os",
    field="os_type",
)
OTHER_NODE: Final = option("-n --node", "target node", "string", field="target_node")
OUTPUT: Final = option(
    "-o --output",
    "comma-separated list of fields; a leading + adds them to the default fields",
    "string",
)
PENDING: Final = option(
    "--pending",
    "only jobs in state queued, waiting or canceling",
    "const",
    dest="status_filter",
    sets=("canceling", "queued", "waiting"),
)
PLAIN_HYPERVISOR_PARAMETERS: Final = option(
    "-H --hypervisor-parameters",
    "hypervisor parameters key=value,... (without the hypervisor's name)",
    "keyval",
    dest="hvparams",
    default={},
)
EXPLAIN: Final = option(
    "--explain",
    "with --dry-run: print the nodes that an allocator chooses, and why not others",
)
PLAN: Final = option(
    "--plan", "only show the locks, steps and configuration changes of the jobs"
)
PLAN_JSON: Final = option("--json", "with --plan or --explain: print a JSON document")
POWER_DELAY: Final = option(
    "--power-delay", "seconds between two power-on commands", "float", default=2.0
)
PREALLOC_WIPE_DISKS: Final = option(
    "--prealloc-wipe-disks", "wipe new disk space before use", "bool"
)
PREDICATES: Final = option(
    "--predicates", "predicates of the rule as JSON", "json", default=[]
)
PRIMARY: Final = option(
    "--primary",
    "select instances by primary node",
    "const",
    dest="multi_mode",
    sets="nodes-pri",
)
PRIMARY_AND_SECONDARY: Final = option(
    "-n --node", "PRIMARY[:SECONDARY]", "string", field=None
)
PRINT_JOBID: Final = option("--print-jobid", "print the job id as the first line")
PRIORITY: Final = option(
    "--priority",
    "opcode priority: low=10, normal=0, high=-10",
    "choice",
    choices=("low", "normal", "high"),
)
PRI_NODE_TAGS: Final = option(
    "--pri-node-tags",
    "select instances by tags of the primary node",
    "const",
    dest="multi_mode",
    sets="nodes-pri-by-tags",
)
QUEUED: Final = option(
    "--queued",
    "only jobs in state queued",
    "const",
    dest="status_filter",
    sets=("queued",),
)
ROMAN: Final = option(
    "--roman", "print integers as Roman numerals where possible", dest="roman_integers"
)
RULE_PRIORITY: Final = option(
    "--priority",
    "priority of the rule; smaller numbers are evaluated first",
    "int",
    default=0,
)
SECONDARY: Final = option(
    "--secondary",
    "select instances by secondary node",
    "const",
    dest="multi_mode",
    sets="nodes-sec",
)
SECONDARY_IP: Final = option(
    "-s --secondary-ip", "address of the node in the replication network", "string"
)
SEC_NODE_TAGS: Final = option(
    "--sec-node-tags",
    "select instances by tags of the secondary node",
    "const",
    dest="multi_mode",
    sets="nodes-sec-by-tags",
)
SEPARATOR: Final = option(
    "--separator", "separator between columns; the columns are not aligned", "string"
)
SHARED_FILE_STORAGE_DIR: Final = option(
    "--shared-file-storage-dir",
    "cluster-wide default directory for sharedfile disks",
    "string",
)
SHOW_MACHINE_NAMES: Final = option(
    "-M --show-machine-names", "begin each output line with the node's name", field=None
)
SHUTDOWN_TIMEOUT: Final = option(
    "--shutdown-timeout", "seconds to wait for the instance to stop", "int", default=120
)
SUBMIT: Final = option(
    "--submit", "submit the job, print its id, and do not wait", dest="submit_only"
)
TAGS: Final = option("--tags", "comma-separated list of tags", "string")
TARGET_NODE: Final = option(
    "-n --target-node", "target node", "string", dest="dst_node", field="target_node"
)
TO: Final = option(
    "--to", "destination group", "string", repeat=True, field="target_groups"
)
UID_POOL: Final = option(
    "--uid-pool",
    "comma-separated list of uids or LOW-HIGH ranges",
    "string",
    convert=param_options.uid_ranges,
)
UNITS: Final = option(
    "--units",
    "unit of sizes: h (scaled), m (MiB), g (GiB) or t (TiB)",
    "choice",
    choices=("g", "h", "m", "t"),
)
USER_SHUTDOWN: Final = option(
    "--user-shutdown",
    "detect shutdowns from inside the instance",
    "bool",
    dest="enabled_user_shutdown",
)
USE_EXTERNAL_MIP_SCRIPT: Final = option(
    "--use-external-mip-script",
    "use the administrator's script to set up the master IP address",
    "bool",
)
VERBOSE: Final = option("-v --verbose", "print more details")
VG_NAME: Final = option("--vg-name", "LVM volume group; empty disables LVM", "string")
VM_CAPABLE: Final = option(
    "--vm-capable", "whether the node may host instances", "bool"
)
WAITING: Final = option(
    "--waiting",
    "only jobs in state waiting",
    "const",
    dest="status_filter",
    sets=("waiting",),
)
YES: Final = option("--yes", "do not ask", dest="confirm")
YES_DO_IT: Final = option(
    "--yes-do-it --ya-rly",
    "confirm the dangerous operation without a question",
    dest="yes_do_it",
)
ZEROING_IMAGE: Final = option(
    "--zeroing-image", "OS image of the zeroing helper VM", "string"
)

# Groups of options
#: For commands that change something only through jobs.
PLANNED: Final = (PLAN, PLAN_JSON)
JOB: Final = (SUBMIT, PRINT_JOBID, PRIORITY, *PLANNED)
TABLE: Final = (NO_HEADERS, SEPARATOR, COLOR)
QUERY: Final = (
    OUTPUT,
    VERBOSE,
    option(
        "--sort",
        "sort by this field; with - before it in descending order, as --sort=-mtime",
        "string",
        field=None,
    ),
    option("--limit", "list at most this number of objects", "int", field=None),
)
SELECTION: Final = (
    ALL_INSTANCES,
    INSTANCE,
    NODE,
    PRIMARY,
    SECONDARY,
    BY_TAGS,
    NODE_TAGS,
    PRI_NODE_TAGS,
    SEC_NODE_TAGS,
)
IPOLICY: Final = (
    IPOLICY_BOUNDS_SPECS,
    IPOLICY_DISK_TEMPLATES,
    IPOLICY_VCPU_RATIO,
    IPOLICY_SPINDLE_RATIO,
)
STATE: Final = (HYPERVISOR_STATE, DISK_STATE)
#: For commands that create an instance.
NEW_INSTANCE: Final = (
    BACKEND_PARAMETERS,
    DISK,
    DISK_TEMPLATE,
    INSTANCE_FILE_STORAGE_DIR,
    FILE_DRIVER,
    option(
        "-H --hypervisor-parameters",
        "HYPERVISOR[:key=value,...]",
        "identkeyval",
        dest="hypervisor",
    ),
    IALLOCATOR,
    NET,
    PRIMARY_AND_SECONDARY,
    NODE_GROUP,
    IP_CHECK,
    option(
        "--no-ip-check",
        "no effect any more; prints a warning",
        dest="",
        warns="checks are off by default; this option has no effect",
    ),
    NAME_CHECK,
    option(
        "--no-name-check",
        "no effect any more; prints a warning",
        dest="",
        warns="checks are off by default; this option has no effect",
    ),
    NO_CONFLICTS_CHECK,
    option("--no-nics", "create the instance without NICs"),
    NO_WAIT_FOR_SYNC,
    OS_PARAMETERS,
    OS_PARAMETERS_PRIVATE,
    CLOUD_INIT,
    OS_PARAMETERS_SECRET,
    option("-s --os-size", "size of a single disk", "unit", dest="sd_size", field=None),
    option(
        "--opportunistic-locking", "only lock nodes that are free; needs an allocator"
    ),
    TAGS,
    DRY_RUN,
)
HELPER_TIMES: Final = (
    option(
        "--helper-startup-timeout",
        "seconds until a helper machine that installs an OS has begun its work",
        "int",
    ),
    option(
        "--helper-shutdown-timeout",
        "seconds from then until it has powered itself off",
        "int",
    ),
)
#: The same of an import, whose disks the import script of the OS fills.
IMPORT_HELPER_TIMES: Final = tuple(
    without_effect(option, "an import needs no helper machine")
    for option in HELPER_TIMES
)

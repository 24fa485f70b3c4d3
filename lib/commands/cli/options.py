"""Options that several commands share, each defined once.

An option of a single command is defined in that command's row.
"""

from typing import Final

from ganeti.base.constants import disks
from ganeti.commands.cli.model import Option


def without_effect(option: Option, reason: str) -> Option:
    """Return an option that a command accepts, and ignores with a warning."""
    text = f"no effect, {reason}"
    return option._replace(help=text, warns=text)


#: Option of every listing and info command; see `ganeti.commands.cli.output.listing`.
JSON: Final = Option(("--json",), "print a JSON document instead of text", dest="json")
ACTION: Final = Option(
    ("--action",),
    "action of the rule: ACCEPT, PAUSE, REJECT, CONTINUE or 'RATE_LIMIT n'",
    dest="action",
    kind="filteraction",
    default="CONTINUE",
)
ALLOC_POLICY: Final = Option(
    ("--alloc-policy",),
    "allocation policy of the group: preferred, last_resort or unallocable",
    dest="alloc_policy",
    kind="string",
)
ALL_INSTANCES: Final = Option(
    ("--all",),
    "select every instance of the cluster; excludes instance names",
    dest="multi_mode",
    kind="const",
    sets="cluster",
)
AUTO_PROMOTE: Final = Option(
    ("--auto-promote",),
    "lock all nodes, and promote other nodes to master candidate if the pool became"
    " too small",
    dest="auto_promote",
)
BACKEND_PARAMETERS: Final = Option(
    ("-B", "--backend-parameters"),
    "backend parameters key=value,...",
    dest="beparams",
    kind="keyval",
    default={},
)
BY_TAGS: Final = Option(
    ("--tags",),
    "select instances by their tags",
    dest="multi_mode",
    kind="const",
    sets="instances-by-tags",
)
CANDIDATE_POOL_SIZE: Final = Option(
    ("-C", "--candidate-pool-size"),
    "wanted number of master candidates",
    dest="candidate_pool_size",
    kind="int",
)
CLEANUP: Final = Option(
    ("--cleanup",),
    "recover from an earlier interrupted migration/failover "
    "instead of starting a new one",
    dest="cleanup",
)
CLOUD_INIT: Final = Option(
    ("--cloud-init",),
    "files that cloud-init reads in the guest: user-data=FILE,meta-data=FILE,"
    "network-config=FILE",
    dest="cloud_init",
    kind="keyval",
    default={},
)
CLUSTER_FILE_STORAGE_DIR: Final = Option(
    ("--file-storage-dir",),
    "cluster-wide default directory for file disks",
    dest="file_storage_dir",
    kind="string",
)
COMMUNICATION: Final = Option(
    ("-c", "--communication"),
    "enable the metadata communication NIC",
    dest="instance_communication",
    kind="bool",
)
COMPRESSION_TOOLS: Final = Option(
    ("--compression-tools",),
    "comma-separated list of allowed compression tools; empty restores the default"
    " list",
    dest="compression_tools",
    kind="string",
)
DEFAULT_IALLOCATOR: Final = Option(
    ("-I", "--default-iallocator"),
    "default allocators as NAME,... or by type of request as TYPE=NAME,...:...; empty"
    " removes them",
    dest="default_iallocator",
    kind="string",
)
DEFAULT_IALLOCATOR_PARAMS: Final = Option(
    ("--default-iallocator-params",),
    "additional parameters for the default allocator",
    dest="default_iallocator_params",
    kind="keyval",
)
DISK: Final = Option(
    ("--disk",),
    "disk as INDEX:key=value,...; modify also accepts INDEX or one of add, attach,"
    " remove and detach before the colon",
    dest="disks",
    kind="identkeyval",
    repeat=True,
)
DISK_PARAMETERS: Final = Option(
    ("-D", "--disk-parameters"),
    "disk parameters as TEMPLATE:key=value,...",
    dest="diskparams",
    kind="identkeyval",
    repeat=True,
)
DISK_STATE: Final = Option(
    ("--disk-state",),
    "disk state as STORAGETYPE/IDENT:key=value,...; stored but not used",
    dest="disk_state",
    kind="identkeyval",
    repeat=True,
)
DISK_TEMPLATE: Final = Option(
    ("-t", "--disk-template"),
    "disk template",
    dest="disk_template",
    kind="choice",
    choices=disks.DISK_TEMPLATES,
    suggested=disks.OFFERED_DISK_TEMPLATES,
)
DRBD_USERMODE_HELPER: Final = Option(
    ("--drbd-usermode-helper",),
    "path of the DRBD usermode helper; empty removes it",
    dest="drbd_helper",
    kind="string",
)
DRY_RUN: Final = Option(
    ("--dry-run",),
    "only run the checks; the job ends before it changes anything",
    dest="dry_run",
)
EARLY_RELEASE: Final = Option(
    ("--early-release",),
    "release the node locks as early as possible",
    dest="early_release",
)
ENABLED_DISK_TEMPLATES: Final = Option(
    ("--enabled-disk-templates",),
    "comma-separated list of the disk templates allowed in the cluster",
    dest="enabled_disk_templates",
    kind="string",
)
ENABLED_HYPERVISORS: Final = Option(
    ("--enabled-hypervisors",),
    "comma-separated list of hypervisors; the first one is the default",
    dest="enabled_hypervisors",
    kind="string",
)
FILE_DRIVER: Final = without_effect(
    Option(
        ("--file-driver",),
        "",
        dest="file_driver",
        kind="choice",
        choices=("blktap", "blktap2", "loop"),
    ),
    "hypervisors choose how they open files",
)
FILTER: Final = Option(
    ("-F", "--filter"),
    "treat the only argument as a filter expression",
    dest="force_filter",
)
FORCE: Final = Option(
    ("-f", "--force"), "do not ask, and override soft checks", dest="force"
)
FORCE_MULTIPLE: Final = Option(
    ("--force-multiple",),
    "do not ask even if several instances are selected",
    dest="force_multi",
)
FORCE_VARIANT: Final = Option(
    ("--force-variant",),
    "accept an OS variant that the OS does not declare",
    dest="force_variant",
)
FROM: Final = Option(
    ("--from",),
    "read further tags from this file, one per line; '-' is standard input",
    dest="tags_source",
    kind="string",
)
HYPERVISOR_PARAMETERS: Final = Option(
    ("-H", "--hypervisor-parameters"),
    "hypervisor parameters as HYPERVISOR:key=value,...",
    dest="hvparams",
    kind="identkeyval",
    repeat=True,
)
HYPERVISOR_STATE: Final = Option(
    ("--hypervisor-state",),
    "hypervisor state as HYPERVISOR:key=value,...; stored but not used",
    dest="hv_state",
    kind="identkeyval",
    repeat=True,
)
IALLOCATOR: Final = Option(
    ("-I", "--iallocator"),
    "name of the allocator that chooses nodes; '.' is the cluster's default",
    dest="iallocator",
    kind="string",
)
IGNORE_CONSISTENCY: Final = Option(
    ("--ignore-consistency",),
    "continue even if the disks on the other node are degraded",
    dest="ignore_consistency",
)
IGNORE_IPOLICY: Final = Option(
    ("--ignore-ipolicy",),
    "allow values outside of the instance policy",
    dest="ignore_ipolicy",
)
IGNORE_OFFLINE: Final = Option(
    ("--ignore-offline",),
    "accept an offline primary node, and only record the new state",
    dest="ignore_offline",
)
INSTALL_IMAGE: Final = Option(
    ("--install-image",),
    "image of helper machines that install untrusted operating systems",
    dest="install_image",
    kind="string",
)
INSTANCE: Final = Option(
    ("--instance",),
    "select instances by name (default)",
    dest="multi_mode",
    kind="const",
    sets="instances",
)
INSTANCE_FILE_STORAGE_DIR: Final = Option(
    ("--file-storage-dir",),
    "subdirectory of the file storage directory for the instance's disks",
    dest="file_storage_dir",
    kind="string",
)
IPOLICY_BOUNDS_SPECS: Final = Option(
    ("--ipolicy-bounds-specs",),
    "min:key=value,.../max:key=value,... pairs joined by //; each part needs all six"
    " keys",
    dest="ipolicy_bounds_specs",
    kind="multilistidentkeyval",
)
IPOLICY_DISK_TEMPLATES: Final = Option(
    ("--ipolicy-disk-templates",),
    "comma-separated list of allowed disk templates; in a group also 'default'",
    dest="ipolicy_disk_templates",
    kind="list",
)
IPOLICY_SPINDLE_RATIO: Final = Option(
    ("--ipolicy-spindle-ratio",),
    "largest ratio of instance spindles to node spindles; in a group also 'default'",
    dest="ipolicy_spindle_ratio",
    kind="maybefloat",
)
IPOLICY_STD_SPECS: Final = Option(
    ("--ipolicy-std-specs",),
    "standard instance size as key=value,... (cluster only)",
    dest="ipolicy_std_specs",
    kind="keyval",
)
IPOLICY_VCPU_RATIO: Final = Option(
    ("--ipolicy-vcpu-ratio",),
    "largest ratio of virtual to physical CPUs; in a group also 'default'",
    dest="ipolicy_vcpu_ratio",
    kind="maybefloat",
)
IP_CHECK: Final = Option(
    ("--ip-check",),
    "ping the instance's IP address first, and refuse if it answers",
    dest="ip_check",
)
MAC_PREFIX: Final = Option(
    ("-m", "--mac-prefix"),
    "first three bytes of generated MAC addresses",
    dest="mac_prefix",
    kind="string",
)
MAINTAIN_NODE_HEALTH: Final = Option(
    ("--maintain-node-health",),
    "allow the watcher to stop stray instances and DRBD devices",
    dest="maintain_node_health",
    kind="bool",
)
MASTER_CAPABLE: Final = Option(
    ("--master-capable",),
    "whether the node may become a master candidate",
    dest="master_capable",
    kind="bool",
)
MASTER_NETDEV: Final = Option(
    ("--master-netdev",),
    "network interface for the master IP address",
    dest="master_netdev",
    kind="string",
)
MASTER_NETMASK: Final = Option(
    ("--master-netmask",),
    "prefix length of the master IP address",
    dest="master_netmask",
    kind="string",
)
MIGRATION_MODE: Final = Option(
    ("--migration-mode",),
    "migration mode instead of the hypervisor's default; excludes --non-live",
    dest="migration_mode",
    kind="choice",
    choices=("live", "non-live"),
)
NAME_CHECK: Final = Option(
    ("--name-check",),
    "resolve the instance name, and use the full name from DNS",
    dest="name_check",
)
NET: Final = Option(
    ("--net",),
    "NIC as INDEX:key=value,...; modify also accepts add or remove before the colon",
    dest="nics",
    kind="identkeyval",
    repeat=True,
)
NEW_SECONDARY: Final = Option(
    ("-n", "--new-secondary"), "new secondary node", dest="dst_node", kind="string"
)
NIC_PARAMETERS: Final = Option(
    ("-N", "--nic-parameters"),
    "NIC parameters key=value,...",
    dest="nicparams",
    kind="keyval",
    default={},
)
NODE: Final = Option(
    ("--node",),
    "select instances by node (primary or secondary)",
    dest="multi_mode",
    kind="const",
    sets="nodes",
)
NODE_GROUP: Final = Option(
    ("-g", "--node-group"), "node group name or UUID", dest="nodegroup", kind="string"
)
NODE_PARAMETERS: Final = Option(
    ("--node-parameters",),
    "node parameters key=value,...",
    dest="ndparams",
    kind="keyval",
)
NODE_TAGS: Final = Option(
    ("--node-tags",),
    "select instances by tags of the node (primary or secondary)",
    dest="multi_mode",
    kind="const",
    sets="nodes-by-tags",
)
NON_LIVE: Final = Option(
    ("--non-live",),
    "suspend the instance during the migration",
    dest="live",
    sets=False,
    default=True,
)
NO_CONFLICTS_CHECK: Final = Option(
    ("--no-conflicts-check",),
    "skip the check whether the IP address belongs to a network",
    dest="conflicts_check",
    sets=False,
    default=True,
)
NO_HEADERS: Final = Option(("--no-headers",), "omit the header line", dest="no_headers")
NO_REMEMBER: Final = Option(
    ("--no-remember",),
    "do not record the new state in the configuration",
    dest="no_remember",
)
NO_RUNTIME_CHANGES: Final = Option(
    ("--no-runtime-changes",),
    "do not change the instance's memory (ballooning) during migration",
    dest="allow_runtime_chgs",
    sets=False,
    default=True,
)
NO_WAIT_FOR_SYNC: Final = Option(
    ("--no-wait-for-sync",),
    "do not wait until the mirror is in sync",
    dest="wait_for_sync",
    sets=False,
    default=True,
)
ONLY_NODES: Final = Option(
    ("-n", "--node"),
    "only this node",
    dest="nodes",
    kind="string",
    repeat=True,
)
OOB_TIMEOUT: Final = Option(
    ("--oob-timeout",),
    "time limit of the out-of-band helper in seconds",
    dest="oob_timeout",
    kind="int",
    default=60,
)
OS_PARAMETERS: Final = Option(
    ("-O", "--os-parameters"),
    "OS parameters key=value,...",
    dest="osparams",
    kind="keyval",
    default={},
)
OS_PARAMETERS_PRIVATE: Final = Option(
    ("--os-parameters-private",),
    "OS parameters that are stored but never logged; @FILE or @- reads key=value lines",
    dest="osparams_private",
    kind="keyprivateval",
    default={},
)
OS_PARAMETERS_SECRET: Final = Option(
    ("--os-parameters-secret",),
    "OS parameters that are neither logged nor stored; @FILE or @- reads key=value"
    " lines",
    dest="osparams_secret",
    kind="keyprivateval",
    default={},
)
OS_TYPE: Final = Option(
    ("-o", "--os-type"),
    "operating system, optionally with +VARIANT",
    dest="os",
    kind="string",
)
OTHER_NODE: Final = Option(("-n", "--node"), "target node", dest="node", kind="string")
OUTPUT: Final = Option(
    ("-o", "--output"),
    "comma-separated list of fields; a leading + adds them to the default fields",
    dest="output",
    kind="string",
)
PENDING: Final = Option(
    ("--pending",),
    "only jobs in state queued, waiting or canceling",
    dest="status_filter",
    kind="const",
    sets=("canceling", "queued", "waiting"),
)
PLAIN_HYPERVISOR_PARAMETERS: Final = Option(
    ("-H", "--hypervisor-parameters"),
    "hypervisor parameters key=value,... (without the hypervisor's name)",
    dest="hvparams",
    kind="keyval",
    default={},
)
EXPLAIN: Final = Option(
    ("--explain",),
    "with --dry-run: print the nodes that an allocator chooses, and why not others",
    dest="explain",
)
PLAN: Final = Option(
    ("--plan",),
    "only show the locks, steps and configuration changes of the jobs",
    dest="plan",
)
PLAN_JSON: Final = Option(
    ("--json",), "with --plan or --explain: print a JSON document", dest="json"
)
POWER_DELAY: Final = Option(
    ("--power-delay",),
    "seconds between two power-on commands",
    dest="power_delay",
    kind="float",
    default=2.0,
)
PREALLOC_WIPE_DISKS: Final = Option(
    ("--prealloc-wipe-disks",),
    "wipe new disk space before use",
    dest="prealloc_wipe_disks",
    kind="bool",
)
PREDICATES: Final = Option(
    ("--predicates",),
    "predicates of the rule as JSON",
    dest="predicates",
    kind="json",
    default=[],
)
PRIMARY: Final = Option(
    ("--primary",),
    "select instances by primary node",
    dest="multi_mode",
    kind="const",
    sets="nodes-pri",
)
PRIMARY_AND_SECONDARY: Final = Option(
    ("-n", "--node"), "PRIMARY[:SECONDARY]", dest="node", kind="string"
)
PRINT_JOBID: Final = Option(
    ("--print-jobid",),
    "print the job id as the first line",
    dest="print_jobid",
)
PRIORITY: Final = Option(
    ("--priority",),
    "opcode priority: low=10, normal=0, high=-10",
    dest="priority",
    kind="choice",
    choices=("low", "normal", "high"),
)
PRI_NODE_TAGS: Final = Option(
    ("--pri-node-tags",),
    "select instances by tags of the primary node",
    dest="multi_mode",
    kind="const",
    sets="nodes-pri-by-tags",
)
QUEUED: Final = Option(
    ("--queued",),
    "only jobs in state queued",
    dest="status_filter",
    kind="const",
    sets=("queued",),
)
ROMAN: Final = Option(
    ("--roman",),
    "print integers as Roman numerals where possible",
    dest="roman_integers",
)
RULE_PRIORITY: Final = Option(
    ("--priority",),
    "priority of the rule; smaller numbers are evaluated first",
    dest="priority",
    kind="int",
    default=0,
)
SECONDARY: Final = Option(
    ("--secondary",),
    "select instances by secondary node",
    dest="multi_mode",
    kind="const",
    sets="nodes-sec",
)
SECONDARY_IP: Final = Option(
    ("-s", "--secondary-ip"),
    "address of the node in the replication network",
    dest="secondary_ip",
    kind="string",
)
SEC_NODE_TAGS: Final = Option(
    ("--sec-node-tags",),
    "select instances by tags of the secondary node",
    dest="multi_mode",
    kind="const",
    sets="nodes-sec-by-tags",
)
SEPARATOR: Final = Option(
    ("--separator",),
    "separator between columns; the columns are not aligned",
    dest="separator",
    kind="string",
)
SHARED_FILE_STORAGE_DIR: Final = Option(
    ("--shared-file-storage-dir",),
    "cluster-wide default directory for sharedfile disks",
    dest="shared_file_storage_dir",
    kind="string",
)
SHOW_MACHINE_NAMES: Final = Option(
    ("-M", "--show-machine-names"),
    "begin each output line with the node's name",
    dest="show_machine_names",
)
SHUTDOWN_TIMEOUT: Final = Option(
    ("--shutdown-timeout",),
    "seconds to wait for the instance to stop",
    dest="shutdown_timeout",
    kind="int",
    default=120,
)
SUBMIT: Final = Option(
    ("--submit",), "submit the job, print its id, and do not wait", dest="submit_only"
)
TAGS: Final = Option(
    ("--tags",), "comma-separated list of tags", dest="tags", kind="string"
)
TARGET_NODE: Final = Option(
    ("-n", "--target-node"), "target node", dest="dst_node", kind="string"
)
TO: Final = Option(
    ("--to",), "destination group", dest="to", kind="string", repeat=True
)
UID_POOL: Final = Option(
    ("--uid-pool",),
    "comma-separated list of uids or LOW-HIGH ranges",
    dest="uid_pool",
    kind="string",
)
UNITS: Final = Option(
    ("--units",),
    "unit of sizes: h (scaled), m (MiB), g (GiB) or t (TiB)",
    dest="units",
    kind="choice",
    choices=("g", "h", "m", "t"),
)
USER_SHUTDOWN: Final = Option(
    ("--user-shutdown",),
    "detect shutdowns from inside the instance",
    dest="enabled_user_shutdown",
    kind="bool",
)
USE_EXTERNAL_MIP_SCRIPT: Final = Option(
    ("--use-external-mip-script",),
    "use the administrator's script to set up the master IP address",
    dest="use_external_mip_script",
    kind="bool",
)
VERBOSE: Final = Option(("-v", "--verbose"), "print more details", dest="verbose")
VG_NAME: Final = Option(
    ("--vg-name",),
    "LVM volume group; empty disables LVM",
    dest="vg_name",
    kind="string",
)
VM_CAPABLE: Final = Option(
    ("--vm-capable",),
    "whether the node may host instances",
    dest="vm_capable",
    kind="bool",
)
WAITING: Final = Option(
    ("--waiting",),
    "only jobs in state waiting",
    dest="status_filter",
    kind="const",
    sets=("waiting",),
)
YES: Final = Option(("--yes",), "do not ask", dest="confirm")
YES_DO_IT: Final = Option(
    ("--yes-do-it", "--ya-rly"),
    "confirm the dangerous operation without a question",
    dest="yes_do_it",
)
ZEROING_IMAGE: Final = Option(
    ("--zeroing-image",),
    "OS image of the zeroing helper VM",
    dest="zeroing_image",
    kind="string",
)

# Groups of options
#: For commands that change something only through jobs.
PLANNED: Final = (PLAN, PLAN_JSON)
JOB: Final = (SUBMIT, PRINT_JOBID, PRIORITY, *PLANNED)
TABLE: Final = (NO_HEADERS, SEPARATOR)
QUERY: Final = (OUTPUT, VERBOSE)
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
    Option(
        ("-H", "--hypervisor-parameters"),
        "HYPERVISOR[:key=value,...]",
        dest="hypervisor",
        kind="identkeyval",
    ),
    IALLOCATOR,
    NET,
    PRIMARY_AND_SECONDARY,
    NODE_GROUP,
    IP_CHECK,
    Option(
        ("--no-ip-check",),
        "no effect any more; prints a warning",
        warns="checks are off by default; this option has no effect",
    ),
    NAME_CHECK,
    Option(
        ("--no-name-check",),
        "no effect any more; prints a warning",
        warns="checks are off by default; this option has no effect",
    ),
    NO_CONFLICTS_CHECK,
    Option(("--no-nics",), "create the instance without NICs", dest="no_nics"),
    NO_WAIT_FOR_SYNC,
    OS_PARAMETERS,
    OS_PARAMETERS_PRIVATE,
    CLOUD_INIT,
    OS_PARAMETERS_SECRET,
    Option(
        ("-s", "--os-size"),
        "size of a single disk",
        dest="sd_size",
        kind="unit",
    ),
    Option(
        ("--opportunistic-locking",),
        "only lock nodes that are free; needs an allocator",
        dest="opportunistic_locking",
    ),
    TAGS,
    DRY_RUN,
)
HELPER_TIMES: Final = (
    Option(
        ("--helper-startup-timeout",),
        "seconds until a helper machine that installs an OS has begun its work",
        dest="helper_startup_timeout",
        kind="int",
    ),
    Option(
        ("--helper-shutdown-timeout",),
        "seconds from then until it has powered itself off",
        dest="helper_shutdown_timeout",
        kind="int",
    ),
)
#: The same of an import, whose disks the import script of the OS fills.
IMPORT_HELPER_TIMES: Final = tuple(
    without_effect(option, "an import needs no helper machine")
    for option in HELPER_TIMES
)

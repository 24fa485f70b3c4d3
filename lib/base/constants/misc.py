"""Constants without another topic."""

from typing import Final

UUID_REGEX: Final = "^[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}$"
#: Shown in place of private values.
REDACTED: Final = "<redacted>"
PRIVATE_PARAMETERS_BLACKLIST: Final = (
    "osparams_private",
    "osparams_secret",
    "osparams_private_cluster",
)
VERIFY_OPTIONAL_CHECKS: Final = ("hvparam_assessment", "nplusone_mem")
ETC_HOSTS_ADD: Final = "add"
ETC_HOSTS_REMOVE: Final = "remove"
V_CLUSTER_ROOTDIR_ENVNAME: Final = "GANETI_ROOTDIR"
V_CLUSTER_HOSTNAME_ENVNAME: Final = "GANETI_HOSTNAME"
V_CLUSTER_VIRT_PATH_PREFIX: Final = "/###-VIRTUAL-PATH-###,"
V_CLUSTER_VPATH_WHITELIST: Final = ("/etc/hosts",)
RUNPARTS_SKIP: Final = 0
RUNPARTS_RUN: Final = 1
RUNPARTS_ERR: Final = 2
SYSLOG_NO: Final = "no"
SYSLOG_YES: Final = "yes"
SYSLOG_ONLY: Final = "only"
GNT_SCRIPTS: Final = (
    "gnt-backup",
    "gnt-cluster",
    "gnt-debug",
    "gnt-group",
    "gnt-instance",
    "gnt-job",
    "gnt-network",
    "gnt-node",
    "gnt-os",
    "gnt-storage",
    "gnt-filter",
)
HTOOLS_PROGS: Final = (
    "harep",
    "hbal",
    "hscan",
    "hspace",
    "hinfo",
    "hcheck",
    "hroller",
    "hsqueeze",
    "hail",
)
#: Environment variable, legacy.
LUXI_OVERRIDE: Final = "FORCE_LUXI_SOCKET"
#: Files of the state directory with secrets that only master candidates have.
CANDIDATE_FILES: Final = (
    "cluster-domain-secret",
    "rapi.pem",
    "rapi/users",
    "server-key.pem",
    # A store in etcd, see `ganeti.store.choice`: the address last.
    "etcd-ca.pem",
    "etcd-client.pem",
    "store-engine",
)

"""All node calls: name, arguments, result, time limit and offline policy.

One row per procedure; client calls, server dispatch and simulated nodes are made
from it. `spec/rpc` in ``test/data`` is the contract it is compared with.
"""

from typing import Final, NamedTuple

#: Time limits of a whole call, in seconds, by class.
TIMEOUTS: Final = {
    "urgent": 60,
    "fast": 300,
    "normal": 900,
    "slow": 3600,
    "4h": 14400,
    "1d": 86400,
    "duration": 5,
}


#: Calls that never change anything on a node.
READING: Final = (
    "all_instances_info",
    "bdev_sizes",
    "blockdev_find",
    "blockdev_getdimensions",
    "blockdev_getmirrorstatus",
    "blockdev_getmirrorstatus_multi",
    "bridges_exist",
    "drbd_helper",
    "drbd_needs_activation",
    "export_info",
    "export_list",
    "extstorage_diagnose",
    "get_file_info",
    "get_watcher_pause",
    "hotplug_supported",
    "hypervisor_validate_params",
    "iallocator_runner",
    "impexp_status",
    "instance_console_info",
    "instance_info",
    "instance_list",
    "instance_migratable",
    "lv_list",
    "master_node_name",
    "migration_info",
    "node_has_ip_address",
    "node_info",
    "node_verify",
    "node_verify_light",
    "node_volumes",
    "os_diagnose",
    "os_validate",
    "storage_list",
    "store_status",
    "version",
    "vg_list",
)


class Procedure(NamedTuple):
    """One call.

    ``args`` are names in wire order, ``result`` is a description of the payload,
    ``timeout`` a key of `TIMEOUTS`, ``multi`` whether many nodes may be asked at
    once, ``accept_offline`` whether a node marked offline is asked all the same.
    """

    name: str
    args: tuple[str, ...]
    result: str
    timeout: str
    multi: bool
    accept_offline: bool


_ROWS: Final = (
    Procedure(
        "accept_instance",
        ("instance", "info", "target"),
        "null",
        "normal",
        False,
        False,
    ),
    Procedure(
        "all_instances_info",
        ("hypervisor_list", "all_hvparams"),
        "{instance: {memory, vcpus, state, time}}",
        "urgent",
        True,
        False,
    ),
    Procedure("bdev_sizes", ("devices",), "{device: size MiB}", "urgent", True, False),
    Procedure(
        "blockdev_addchildren", ("bdev", "ndevs"), "null", "normal", False, False
    ),
    Procedure(
        "blockdev_assemble",
        ("disk", "instance", "on_primary", "idx"),
        "[device path, symlink path, uri] on the primary; elsewhere [device path, null, null], or [true, true] when nothing had to be done",
        "normal",
        False,
        False,
    ),
    Procedure(
        "blockdev_close", ("instance_name", "disks"), "null", "normal", False, False
    ),
    Procedure(
        "blockdev_convert", ("bdev_src", "bdev_dest"), "null", "slow", False, False
    ),
    Procedure(
        "blockdev_convert_part",
        ("bdev_src", "bdev_dest", "offset", "size"),
        "null",
        "slow",
        False,
        False,
    ),
    Procedure(
        "blockdev_create",
        ("bdev", "size", "owner", "on_primary", "info", "exclusive_storage"),
        "new unique id or null",
        "normal",
        False,
        False,
    ),
    Procedure(
        "blockdev_find", ("disk",), "BlockDevStatus or null", "normal", False, False
    ),
    Procedure(
        "blockdev_getdimensions",
        ("disks",),
        "[[size bytes, spindles or null] or null]",
        "normal",
        False,
        False,
    ),
    Procedure(
        "blockdev_getmirrorstatus",
        ("disks",),
        "[BlockDevStatus]",
        "normal",
        False,
        False,
    ),
    Procedure(
        "blockdev_getmirrorstatus_multi",
        ("disks",),
        "[[true, BlockDevStatus] or [false, text]]",
        "normal",
        True,
        False,
    ),
    Procedure(
        "blockdev_grow",
        ("cf_bdev", "amount", "dryrun", "backingstore", "es_flag"),
        "null",
        "normal",
        False,
        False,
    ),
    Procedure(
        "blockdev_image", ("bdev", "image", "size"), "null", "slow", False, False
    ),
    Procedure(
        "blockdev_open",
        ("instance_name", "disks", "exclusive"),
        "null",
        "normal",
        False,
        False,
    ),
    Procedure(
        "blockdev_pause_resume_sync",
        ("disks", "pause"),
        "[[ok, text or null] per disk]",
        "normal",
        False,
        False,
    ),
    Procedure("blockdev_remove", ("bdev",), "null", "normal", False, False),
    Procedure(
        "blockdev_removechildren", ("bdev", "ndevs"), "null", "normal", False, False
    ),
    Procedure("blockdev_rename", ("devlist",), "null", "normal", False, False),
    Procedure("blockdev_setinfo", ("disk", "info"), "null", "normal", False, False),
    Procedure("blockdev_shutdown", ("disk",), "null", "normal", False, False),
    Procedure(
        "blockdev_snapshot",
        ("cf_bdev", "snap_name", "snap_size"),
        "[vg, lv] or driver specific id",
        "normal",
        False,
        False,
    ),
    Procedure(
        "blockdev_wipe", ("bdev", "offset", "size"), "null", "slow", False, False
    ),
    Procedure(
        "bridges_exist",
        ("bridges_list",),
        "null; a missing bridge is a failure",
        "urgent",
        False,
        False,
    ),
    Procedure(
        "drbd_attach_net", ("disks", "multimaster"), "null", "normal", True, False
    ),
    Procedure("drbd_disconnect_net", ("disks",), "null", "normal", True, False),
    Procedure("drbd_helper", (), "helper path", "urgent", True, False),
    Procedure(
        "drbd_needs_activation", ("disks",), "[disk uuid]", "normal", False, False
    ),
    Procedure(
        "drbd_wait_sync", ("disks",), "[all done, lowest percent]", "slow", True, False
    ),
    Procedure(
        "etc_hosts_modify", ("mode", "name", "ip"), "true", "normal", False, False
    ),
    Procedure(
        "export_info",
        ("path",),
        "INI text of the export description",
        "fast",
        False,
        False,
    ),
    Procedure("export_list", (), "[export name]", "fast", True, False),
    Procedure("export_remove", ("export",), "null", "fast", False, False),
    Procedure(
        "export_start",
        ("opts", "host", "port", "instance", "component", "source"),
        "daemon name",
        "normal",
        False,
        False,
    ),
    Procedure(
        "extstorage_diagnose",
        (),
        "[[name, path, ok, message, [[param, text]]]]",
        "fast",
        True,
        False,
    ),
    Procedure(
        "file_storage_dir_create", ("file_storage_dir",), "null", "fast", False, False
    ),
    Procedure(
        "file_storage_dir_remove", ("file_storage_dir",), "null", "fast", False, False
    ),
    Procedure(
        "file_storage_dir_rename",
        ("old_file_storage_dir", "new_file_storage_dir"),
        "null",
        "fast",
        False,
        False,
    ),
    Procedure(
        "finalize_export", ("instance", "snap_disks"), "null", "normal", False, False
    ),
    Procedure(
        "get_file_info",
        ("file_path",),
        "[true, {size}] or [false, {}]",
        "fast",
        False,
        False,
    ),
    Procedure("get_watcher_pause", (), "unix time or null", "urgent", False, False),
    Procedure(
        "hooks_runner",
        ("hpath", "phase", "env"),
        "[[script path relative to the hooks dir, 0 skipped / 1 failed / 2 ok, output]]",
        "normal",
        True,
        False,
    ),
    Procedure(
        "hotplug_device",
        ("instance", "action", "dev_type", "device", "extra", "seq"),
        "device information or null",
        "normal",
        False,
        False,
    ),
    Procedure(
        "hotplug_supported",
        ("instance",),
        "null; unsupported is a failure",
        "normal",
        False,
        False,
    ),
    Procedure(
        "hypervisor_validate_params",
        ("hvname", "hvfull"),
        "null",
        "normal",
        True,
        False,
    ),
    Procedure(
        "iallocator_runner",
        ("name", "idata", "default_iallocator_params"),
        "stdout of the plugin",
        "normal",
        False,
        False,
    ),
    Procedure("impexp_abort", ("name",), "null", "normal", False, False),
    Procedure("impexp_cleanup", ("name",), "null", "normal", False, False),
    Procedure(
        "impexp_status",
        ("names",),
        "[ImportExportStatus or null]",
        "fast",
        False,
        False,
    ),
    Procedure(
        "import_start",
        ("opts", "instance", "component", "dest"),
        "daemon name",
        "normal",
        False,
        False,
    ),
    Procedure(
        "instance_balloon_memory",
        ("instance", "memory"),
        "null",
        "normal",
        False,
        False,
    ),
    Procedure(
        "instance_console_info",
        ("(body is an object, not an array) {instance name",),
        "{instance: console object}",
        "urgent",
        True,
        False,
    ),
    Procedure(
        "instance_finalize_migration_dst",
        ("instance", "info", "success"),
        "null",
        "normal",
        False,
        False,
    ),
    Procedure(
        "instance_finalize_migration_src",
        ("instance", "success", "live"),
        "null",
        "slow",
        False,
        False,
    ),
    Procedure(
        "instance_get_migration_status",
        ("instance",),
        "MigrationStatus",
        "slow",
        False,
        False,
    ),
    Procedure(
        "instance_info",
        ("instance", "hname", "hvparams"),
        "{memory, vcpus, state, time}, empty when not running",
        "urgent",
        False,
        False,
    ),
    Procedure(
        "instance_list",
        ("hypervisor_list", "hvparams"),
        "[name]",
        "urgent",
        True,
        False,
    ),
    Procedure(
        "instance_metadata_modify", ("instance",), "null", "urgent", False, False
    ),
    Procedure(
        "instance_migratable",
        ("instance",),
        "null; not migratable is a failure",
        "normal",
        False,
        False,
    ),
    Procedure(
        "instance_migrate",
        ("cluster_name", "instance", "target", "live"),
        "null",
        "slow",
        False,
        False,
    ),
    Procedure(
        "instance_os_add",
        ("instance_osp", "reinstall", "debug"),
        "null",
        "1d",
        False,
        False,
    ),
    Procedure(
        "instance_reboot",
        ("inst", "reboot_type", "shutdown_timeout", "reason"),
        "null",
        "normal",
        False,
        False,
    ),
    Procedure(
        "instance_run_rename",
        ("instance", "old_name", "debug"),
        "null",
        "slow",
        False,
        False,
    ),
    Procedure(
        "instance_shutdown",
        ("instance", "timeout", "reason"),
        "null",
        "normal",
        False,
        False,
    ),
    Procedure(
        "instance_start",
        ("instance_hvp_bep", "startup_paused", "reason"),
        "null",
        "normal",
        False,
        False,
    ),
    Procedure("jobqueue_purge", (), "null", "normal", False, False),
    Procedure("jobqueue_rename", ("rename",), "[null per file]", "urgent", True, False),
    Procedure("jobqueue_set_drain_flag", ("flag",), "null", "urgent", True, False),
    Procedure(
        "jobqueue_update", ("file_name", "content"), "null", "urgent", True, False
    ),
    Procedure(
        "lv_list",
        ("vg_name",),
        '{"vg/lv": [size text MiB, inactive, online]}',
        "urgent",
        True,
        False,
    ),
    Procedure("master_node_name", (), "node name", "urgent", True, False),
    Procedure(
        "migration_info",
        ("instance",),
        "hypervisor specific, handed to the target",
        "normal",
        False,
        False,
    ),
    Procedure(
        "node_activate_master_ip",
        ("master_params", "use_external_mip_script"),
        "null",
        "fast",
        False,
        False,
    ),
    Procedure(
        "node_change_master_netmask",
        ("old_netmask", "netmask", "master_ip", "master_netdev"),
        "null",
        "fast",
        False,
        False,
    ),
    Procedure(
        "node_configure_ovs", ("ovs_name", "ovs_link"), "null", "normal", False, False
    ),
    Procedure(
        "node_crypto_tokens",
        ("token_request",),
        "[[token type, token]]",
        "slow",
        False,
        False,
    ),
    Procedure(
        "node_deactivate_master_ip",
        ("master_params", "use_external_mip_script"),
        "null",
        "fast",
        False,
        False,
    ),
    Procedure("node_demote_from_mc", (), "null", "fast", False, False),
    Procedure("node_ensure_daemon", ("daemon", "run"), "bool", "urgent", True, False),
    Procedure("node_has_ip_address", ("address",), "bool", "fast", False, False),
    Procedure(
        "node_info",
        ("storage_units", "hv_specs"),
        "[boot id, [{type, name, storage_free, storage_size}] or null, [{memory_total, memory_free, memory_dom0, cpu_total, cpu_dom0, cpu_nodes, cpu_sockets, hv_version}] or null]",
        "urgent",
        True,
        False,
    ),
    Procedure(
        "node_leave_cluster",
        ("modify_ssh_setup",),
        '"Shutdown scheduled", after which the node daemon ends',
        "normal",
        False,
        False,
    ),
    Procedure(
        "node_powercycle", ("hypervisor", "hvparams"), "text", "normal", False, True
    ),
    Procedure(
        "node_ssh_key_add",
        (
            "node_uuid",
            "node_name",
            "potential_master_candidates",
            "to_authorized_keys",
            "to_public_keys",
            "get_public_keys",
        ),
        "[[node name, message]] for nodes that failed",
        "fast",
        True,
        False,
    ),
    Procedure(
        "node_ssh_key_remove",
        (
            "node_uuid",
            "node_name",
            "master_candidate_uuids",
            "potential_master_candidates",
            "from_authorized_keys",
            "from_public_keys",
            "clear_authorized_keys",
            "clear_public_keys",
            "readd",
        ),
        "[warning]",
        "fast",
        True,
        False,
    ),
    Procedure(
        "node_ssh_keys_renew",
        (
            "node_uuids",
            "node_names",
            "master_candidate_uuids",
            "potential_master_candidates",
            "old_key_type",
            "new_key_type",
            "new_key_bits",
        ),
        "null",
        "4h",
        True,
        False,
    ),
    Procedure(
        "node_start_master_daemons", ("no_voting",), "null", "fast", False, False
    ),
    Procedure("node_stop_master", (), "null", "fast", False, False),
    Procedure(
        "node_verify",
        ("checkdict", "cluster_name", "all_hvparams"),
        "object with an answer per requested check",
        "normal",
        True,
        False,
    ),
    Procedure(
        "node_verify_light",
        ("checkdict", "cluster_name", "hvparams"),
        "as node_verify",
        "normal",
        True,
        False,
    ),
    Procedure("node_volumes", (), "[{name, size, dev, vg}]", "fast", True, False),
    Procedure(
        "os_diagnose",
        (),
        "[[name, path, ok, message, [variant], [[param, text]], [api version], trusted]]",
        "fast",
        True,
        False,
    ),
    Procedure(
        "os_export", ("instance", "override_env"), "archive path", "fast", False, False
    ),
    Procedure(
        "os_validate",
        ("required", "name", "checks", "params", "force_variant"),
        "bool",
        "fast",
        True,
        False,
    ),
    Procedure("repair_command", ("cmd", "inp"), "output", "slow", False, False),
    Procedure(
        "resize_disk", ("instance", "disk", "new_size"), "null", "normal", False, False
    ),
    Procedure("restricted_command", ("cmd",), "output", "slow", True, False),
    Procedure(
        "run_oob",
        ("oob_program", "command", "remote_node", "timeout"),
        "parsed JSON output, or null when empty",
        "normal",
        False,
        False,
    ),
    Procedure("set_watcher_pause", ("until",), "null", "urgent", True, False),
    Procedure(
        "storage_execute",
        ("su_name", "su_args", "name", "op"),
        "null",
        "normal",
        False,
        False,
    ),
    Procedure(
        "storage_list",
        ("su_name", "su_args", "name", "fields"),
        "[[value per field]]",
        "normal",
        True,
        False,
    ),
    Procedure(
        "storage_modify",
        ("su_name", "su_args", "name", "changes"),
        "null",
        "normal",
        False,
        False,
    ),
    Procedure("test_delay", ("duration",), "null", "duration", True, False),
    Procedure("upload_file", ("file_name",), "null", "normal", True, False),
    Procedure(
        "upload_file_single",
        ("file_name", "content", "mode", "uid", "gid", "atime", "mtime"),
        "null",
        "normal",
        True,
        False,
    ),
    Procedure(
        "store_apply",
        ("term", "base", "data"),
        "{revision, term, digest, cluster, applied}",
        "urgent",
        True,
        False,
    ),
    Procedure(
        "store_install",
        ("term", "data"),
        "{revision, term, digest, cluster}",
        "fast",
        True,
        False,
    ),
    Procedure("store_purge", (), "null", "urgent", True, False),
    Procedure(
        "store_status", (), "{revision, term, digest, cluster}", "urgent", True, False
    ),
    Procedure("version", (), "protocol version number", "urgent", True, True),
    Procedure("vg_list", (), "{vg: size MiB}", "urgent", True, False),
    Procedure("write_ssconf_files", ("values",), "null", "normal", True, False),
    Procedure(
        "x509_cert_create",
        ("validity",),
        "[name, certificate PEM]",
        "normal",
        False,
        False,
    ),
    Procedure("x509_cert_remove", ("name",), "null", "normal", False, False),
)

#: Procedures by name.
PROCEDURES: Final[dict[str, Procedure]] = {row.name: row for row in _ROWS}

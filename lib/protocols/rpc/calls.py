"""All node calls: arguments, answer, time limit, offline policy, dry runs, lane.

One declaration per procedure; `ganeti.protocols.rpc.procedure` explains the options.
Callers, server dispatch, simulated nodes and dry runs use it. ``spec/rpc`` in
``test/data`` is the contract that the tests compare the declarations with.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from msgspec import Meta

from ganeti.protocols.rpc.answers import (
    BlockDevice,
    DeviceRow,
    Facts,
    Firmware,
    Guest,
    Heartbeat,
    HelperAnswer,
    HelperResult,
    Migration,
    NodeInfo,
    NodeStatus,
    Number,
    OsDefinition,
    Provider,
    Reached,
    Scalar,
    ScriptResult,
    Size,
    Transfer,
    Volume,
)
from ganeti.protocols.rpc.procedure import (
    LANE_POWER,
    LANE_STORAGE,
    LANE_STORE,
    MANY,
    MIB,
    STORE,
    Procedure,
    procedure,
)

#: A record in the form that `ganeti.protocols.rpc.encode` makes.
Wire = Mapping[str, Any]
#: Who asked for a change and why, oldest first: source, reason, time in nanoseconds.
Reason = Sequence[tuple[str, str, int]]
#: Number and owner of a master term.
Term = tuple[int, str]
#: UUID, name and address of a node.
Place = tuple[str, str, str]
#: Parameters by hypervisor.
HvParams = Mapping[str, Mapping[str, Any]]


# Instances, their exports and operating systems
@procedure("normal", shown="instance target", starts=True)
def accept_instance(instance: Wire, info: Any, target: str) -> None: ...
@procedure("urgent", multi=True, reads=True, max_answer=MANY)
def all_instances_info(
    hypervisor_list: Sequence[str], all_hvparams: HvParams
) -> dict[str, Guest]: ...
@procedure("urgent", reads=True)
def bridges_exist(bridges_list: Sequence[str]) -> None: ...
@procedure("urgent")
def console_ticket(request: Wire) -> None: ...
@procedure("fast", reads=True)
def export_info(path: str) -> str: ...
@procedure("fast", multi=True, reads=True)
def export_list() -> list[str]: ...
@procedure("fast", shown="export")
def export_remove(export: str) -> None: ...
@procedure(
    "normal",
    names_its_base=True,
    answer="planned-export",
    shown="instance",
    private=True,
)
def export_start(
    opts: Mapping[str, Any],
    host: str,
    port: int,
    instance: Wire,
    component: str,
    source: tuple[str, Sequence[Any]],
) -> Any: ...
@procedure("normal", shown="instance", private=True)
def finalize_export(instance: Wire, snap_disks: Sequence[Any]) -> None: ...
@procedure("fast", reads=True)
def guest_addresses(hypervisor: str, names: Sequence[str]) -> dict[str, list[Any]]: ...
@procedure("fast", reads=True)
def guest_firmware(instance: Wire) -> Firmware: ...
@procedure("fast", shown="instance limit")
def guest_freeze(instance: Wire, limit: float) -> None: ...
@procedure("fast", answer=True, shown="instance")
def guest_thaw(instance: Wire) -> bool: ...
@procedure("normal", shown="instance")
def helper_end(instance: Wire) -> None: ...
@procedure("1d", runs_programs=True, answer=1024, shown="instance")
def helper_image_add(instance: Wire, image: str) -> int: ...
@procedure("fast", answer=["ended", 0, []], shown="instance_name")
def helper_result(instance_name: str) -> HelperResult: ...
@procedure("normal", shown="instance installs")
def helper_start(instance: Wire, installs: bool, reason: Reason) -> None: ...
@procedure("normal", shown="instance action dev_type device seq")
def hotplug_device(
    instance: Wire,
    action: str,
    dev_type: str,
    device: Mapping[str, Any],
    extra: Any,
    seq: int,
) -> None: ...
@procedure("normal", reads=True)
def hotplug_supported(instance: Wire) -> None: ...
@procedure("normal", multi=True, reads=True)
def hypervisor_validate_params(hvname: str, hvfull: Mapping[str, Any]) -> None: ...
@procedure("normal", shown="name")
def impexp_abort(name: str) -> None: ...
@procedure("normal", shown="name")
def impexp_cleanup(name: str) -> None: ...
@procedure("fast", reads=True)
def impexp_status(
    names: Sequence[str],
) -> Annotated[list[Transfer | None], Meta(min_length=1)]: ...
@procedure("normal", names_its_base=True, shown="instance", private=True)
def import_start(
    opts: Mapping[str, Any],
    instance: Wire,
    component: str,
    dest: tuple[str, Sequence[Any]],
) -> Any: ...
@procedure(
    "normal", shown="instance memory", waits_for="the change of the memory of the guest"
)
def instance_balloon_memory(instance: Wire, memory: int) -> None: ...
@procedure("urgent", multi=True, reads=True)
def instance_console_info(requests: Mapping[str, Wire]) -> Any: ...
@procedure("normal", shown="instance success")
def instance_finalize_migration_dst(
    instance: Wire, info: Any, success: bool
) -> None: ...
@procedure("slow", shown="instance success live")
def instance_finalize_migration_src(
    instance: Wire, success: bool, live: bool
) -> None: ...
@procedure("slow", answer={"status": "completed"}, shown="instance")
def instance_get_migration_status(instance: Wire) -> Migration: ...
@procedure("urgent", reads=True)
def instance_info(instance: str, hname: str, hvparams: Mapping[str, Any]) -> Guest: ...
@procedure("urgent", accept_offline=True, reads=True)
def instance_left(instance: str, hname: str, hvparams: Mapping[str, Any]) -> Guest: ...
@procedure("urgent", multi=True, reads=True)
def instance_list(hypervisor_list: Sequence[str], hvparams: HvParams) -> list[str]: ...
@procedure("urgent", shown="instance")
def instance_metadata_modify(instance: Any) -> None: ...
@procedure("normal", reads=True)
def instance_migratable(instance: Wire) -> None: ...
@procedure(
    "slow",
    shown="cluster_name instance target live",
    waits_for="the migration of the guest",
)
def instance_migrate(
    cluster_name: str, instance: Wire, target: str, live: bool
) -> None: ...
@procedure(
    "1d",
    runs_programs=True,
    shown="instance_osp reinstall",
    private=True,
    waits_for="the script of the operating system",
)
def instance_os_add(instance_osp: Wire, reinstall: bool, debug: int) -> None: ...
@procedure(
    "normal",
    shown="inst reboot_type shutdown_timeout",
    starts=True,
    waits_for="the reboot of the guest",
)
def instance_reboot(
    inst: Wire, reboot_type: str, shutdown_timeout: float, reason: Reason
) -> None: ...
@procedure(
    "slow",
    runs_programs=True,
    shown="instance old_name",
    private=True,
    waits_for="the script of the operating system",
)
def instance_run_rename(instance: Wire, old_name: str, debug: int) -> None: ...
@procedure("normal", shown="instance timeout", waits_for="the shutdown of the guest")
def instance_shutdown(instance: Wire, timeout: float, reason: Reason) -> None: ...
@procedure(
    "normal", shown="instance_hvp_bep", starts=True, waits_for="the start of the guest"
)
def instance_start(
    instance_hvp_bep: Wire, startup_paused: bool, reason: Reason
) -> None: ...
@procedure("normal", reads=True)
def migration_info(instance: Wire) -> Any: ...
@procedure("fast", multi=True, reads=True, max_answer=MANY)
def os_diagnose() -> list[OsDefinition]: ...
@procedure("fast", answer="planned-archive", shown="instance", private=True)
def os_export(instance: Wire, override_env: Mapping[str, Any]) -> str: ...
@procedure("fast", multi=True, runs_programs=True, reads=True)
def os_validate(
    required: bool,
    name: str,
    checks: Sequence[str],
    params: Mapping[str, Any],
    force_variant: bool,
) -> bool: ...
@procedure("normal", answer=["planned-certificate", ""])
def x509_cert_create(validity: int) -> tuple[str, str]: ...
@procedure("normal", shown="name")
def x509_cert_remove(name: str) -> None: ...


# Nodes, their files, keys and copies of the store
@procedure("urgent", multi=True, answer=False)
def call_abort(call_id: str) -> bool: ...
@procedure("urgent")
def callers_adopt(term: Term, callers: Mapping[str, str]) -> None: ...
@procedure("urgent", multi=True)
def callers_relay(term: Term, target: Place, callers: Mapping[str, str]) -> None: ...
@procedure("normal", answer=True, shown="mode name ip")
def etc_hosts_modify(mode: str, name: str, ip: str | None) -> Any: ...
@procedure("fast", reads=True)
def get_file_info(file_path: str) -> tuple[bool, Facts]: ...
@procedure("urgent", reads=True)
def get_watcher_pause() -> Number | None: ...
@procedure(
    "normal",
    multi=True,
    runs_programs=True,
    answer=[],
    shown="hpath phase",
    max_answer=MANY,
    waits_for="hooks",
)
def hooks_runner(
    hpath: str, phase: str, env: Mapping[str, str]
) -> list[ScriptResult]: ...
@procedure("normal", runs_programs=True, reads=True, max_answer=80 * MIB)
def iallocator_runner(
    name: str, idata: str, default_iallocator_params: Mapping[str, str | None] | None
) -> str: ...
@procedure("normal")
def jobqueue_purge() -> None: ...
@procedure("urgent", multi=True, answer_from="null_per_file")
def jobqueue_rename(rename: Any) -> None: ...
@procedure("urgent", multi=True)
def jobqueue_set_drain_flag(flag: Any) -> None: ...
@procedure("urgent", multi=True, shown="file_name")
def jobqueue_update(file_name: Any, content: Any) -> None: ...
@procedure("urgent", multi=True, reads=True)
def master_node_name() -> str: ...
@procedure("fast")
def node_activate_master_ip(
    master_params: Mapping[str, Any], use_external_mip_script: bool
) -> None: ...
@procedure("fast", shown="netmask")
def node_change_master_netmask(
    old_netmask: int, netmask: int, master_ip: str, master_netdev: str
) -> None: ...
@procedure("normal")
def node_configure_ovs(ovs_name: str, ovs_link: str | None) -> None: ...
@procedure("slow", reads_if="gets_all_tokens", answer_from="new_tokens")
def node_crypto_tokens(
    token_request: Sequence[tuple[str, str, Mapping[str, Any] | None]],
) -> list[tuple[str, str]]: ...
@procedure("fast")
def node_deactivate_master_ip(
    master_params: Mapping[str, Any], use_external_mip_script: bool
) -> None: ...
@procedure("fast")
def node_demote_from_mc() -> None: ...
@procedure("urgent", multi=True, answer=True, shown="daemon")
def node_ensure_daemon(daemon: str, run: bool) -> Any: ...
@procedure("fast", reads=True)
def node_has_ip_address(address: str) -> bool: ...
@procedure("urgent", multi=True, own_lane=LANE_STORAGE, reads=True)
def node_info(
    storage_units: Sequence[tuple[str, str, Sequence[Any]]] | None,
    hv_specs: Sequence[tuple[str, Mapping[str, Any]]] | None,
) -> NodeInfo: ...
@procedure("urgent", multi=True, reads=True)
def node_heartbeats(nodes: Sequence[str]) -> list[Heartbeat | None]: ...
@procedure("normal", answer="Shutdown scheduled")
def node_leave_cluster(modify_ssh_setup: bool) -> Any: ...
@procedure(
    "normal", accept_offline=True, own_lane=LANE_POWER, answer="Reboot scheduled"
)
def node_powercycle(hypervisor: str, hvparams: Mapping[str, Any]) -> Any: ...
@procedure("urgent", multi=True, reads=True)
def node_reaches(nodes: Sequence[tuple[str, int, int]]) -> list[Reached]: ...
@procedure("fast", multi=True, answer=[], shown="node_name")
def node_ssh_key_add(
    node_uuid: str,
    node_name: str,
    potential_master_candidates: Sequence[str],
    to_authorized_keys: bool,
    to_public_keys: bool,
    get_public_keys: bool,
) -> list[tuple[str, str]]: ...
@procedure("fast", multi=True, answer=[], shown="node_name")
def node_ssh_key_remove(
    node_uuid: str,
    node_name: str,
    master_candidate_uuids: Sequence[str],
    potential_master_candidates: Sequence[str],
    from_authorized_keys: bool,
    from_public_keys: bool,
    clear_authorized_keys: bool,
    clear_public_keys: bool,
    readd: bool,
) -> list[str]: ...
@procedure("4h", multi=True)
def node_ssh_keys_renew(
    node_uuids: Sequence[str],
    node_names: Sequence[str],
    master_candidate_uuids: Sequence[str],
    potential_master_candidates: Sequence[str],
    old_key_type: str,
    new_key_type: str,
    new_key_bits: int,
) -> None: ...
@procedure("fast")
def node_start_master_daemons(no_voting: bool) -> None: ...
@procedure("urgent", multi=True, reads=True)
def node_status(hypervisor_list: Sequence[str]) -> NodeStatus: ...
@procedure("fast")
def node_stop_master() -> None: ...
@procedure("normal", multi=True, reads=True, max_answer=MANY)
def node_verify(
    checkdict: Mapping[str, Any],
    cluster_name: str,
    all_hvparams: Mapping[str, Any] | None,
) -> dict[str, Any]: ...
@procedure("normal", multi=True, reads=True, max_answer=MANY)
def node_verify_light(
    checkdict: Mapping[str, Any], cluster_name: str, hvparams: Mapping[str, Any] | None
) -> dict[str, Any]: ...
@procedure("slow", answer="", max_answer=MANY)
def repair_command(cmd: str, inp: Any) -> str: ...
@procedure("slow", multi=True, runs_programs=True, answer="", max_answer=MANY)
def restricted_command(cmd: str) -> str: ...
@procedure(
    "normal",
    runs_programs=True,
    reads_if="is_oob_question",
    shown="command remote_node timeout",
    waits_for="the out-of-band helper",
)
def run_oob(
    oob_program: str, command: str, remote_node: str, timeout: float
) -> Any: ...
@procedure(
    "normal",
    runs_programs=True,
    reads_if="is_oob_question",
    answer_from="success_per_helper",
    shown="helpers command timeout pause",
    max_answer=MANY,
    waits_for="out-of-band helpers",
)
def run_oob_many(
    helpers: Sequence[tuple[str, str]], command: str, timeout: float, pause: float
) -> list[HelperAnswer]: ...
@procedure("urgent", multi=True)
def set_watcher_pause(until: float | None) -> None: ...
@procedure("urgent", multi=True, own_lane=LANE_STORE, names_its_base=True)
def store_apply(term: int | Term, base: int, data: str) -> Facts: ...
@procedure("fast", reads=True, max_answer=STORE)
def store_changes(revision: int, digest: str) -> str | None: ...
@procedure("fast", reads=True, max_answer=STORE)
def store_dump() -> str: ...
@procedure("fast", multi=True)
def store_install(term: int | Term, data: str) -> Facts: ...
@procedure("urgent", multi=True, own_lane=LANE_STORE)
def store_promise(term: int | Term) -> Facts: ...
@procedure("urgent", multi=True, own_lane=LANE_STORE)
def store_purge() -> None: ...
@procedure("fast", reads=True, max_answer=STORE)
def store_scan(table: str, after: str | None) -> str: ...
@procedure("urgent", multi=True, own_lane=LANE_STORE, reads=True)
def store_status() -> Facts: ...
@procedure("urgent", multi=True)
def term_confirm(term: Term, voucher: str, review: str, target: Place) -> bool: ...
@procedure("urgent")
def term_review(term: Term) -> str: ...
@procedure("urgent")
def term_vouch(voucher: str, review: str) -> bool: ...
@procedure("duration", multi=True, shown="duration", waits_for="the end of a delay")
def test_delay(duration: float) -> None: ...
@procedure("normal", multi=True, shown="file_name")
def upload_file(file_name: Sequence[Any]) -> None: ...
@procedure("normal", multi=True, shown="file_name")
def upload_file_single(
    file_name: str,
    content: Sequence[Any],
    mode: int | None,
    uid: str,
    gid: str,
    atime: float,
    mtime: float,
) -> None: ...
@procedure("urgent", multi=True, accept_offline=True, reads=True)
def version() -> int: ...
@procedure("normal", multi=True)
def write_ssconf_files(values: Mapping[str, str]) -> None: ...


# Disks and storage
@procedure("urgent", multi=True, own_lane=LANE_STORAGE, reads=True, max_answer=MANY)
def bdev_sizes(devices: Sequence[str]) -> dict[str, Number]: ...
@procedure("normal", shown="bdev")
def blockdev_addchildren(bdev: Wire, ndevs: Sequence[Wire]) -> None: ...
@procedure(
    "normal",
    answer_from="assembled_device",
    shown="disk instance on_primary idx",
    waits_for="the assembly of a disk",
)
def blockdev_assemble(
    disk: Wire, instance: Wire, on_primary: bool | str, idx: int
) -> list[Scalar]: ...
@procedure("normal", shown="instance_name disks")
def blockdev_close(instance_name: str, disks: Sequence[Wire]) -> None: ...
@procedure("slow", runs_programs=True, shown="bdev_src bdev_dest")
def blockdev_convert(bdev_src: Wire, bdev_dest: Wire) -> None: ...
@procedure("slow", shown="bdev_src bdev_dest offset size")
def blockdev_convert_part(
    bdev_src: Wire, bdev_dest: Wire, offset: int, size: int
) -> None: ...
@procedure("normal", shown="bdev size on_primary", waits_for="the creation of a disk")
def blockdev_create(
    bdev: Wire,
    size: int,
    owner: str,
    on_primary: bool,
    info: str,
    exclusive_storage: bool,
) -> Any: ...
@procedure("normal", reads=True)
def blockdev_find(disk: Wire) -> BlockDevice | None: ...
@procedure("normal", reads=True)
def blockdev_getdimensions(
    disks: Sequence[Wire],
) -> list[Size | None]: ...
@procedure("normal", reads=True)
def blockdev_getmirrorstatus(disks: Sequence[Wire]) -> Any: ...
@procedure("normal", multi=True, reads=True, max_answer=MANY)
def blockdev_getmirrorstatus_multi(
    disks: Sequence[Wire],
) -> list[DeviceRow]: ...
@procedure(
    "normal",
    reads_if="is_tried_only",
    shown="cf_bdev amount",
    waits_for="the growth of a disk",
)
def blockdev_grow(
    cf_bdev: Wire, amount: int, dryrun: bool, backingstore: bool, es_flag: bool
) -> None: ...
@procedure("slow", runs_programs=True, shown="bdev size")
def blockdev_image(bdev: Wire, image: str, size: int) -> None: ...
@procedure("normal", shown="instance_name disks")
def blockdev_open(
    instance_name: str, disks: Sequence[Wire], exclusive: bool
) -> None: ...
@procedure("normal", answer_from="success_per_disk", shown="disks")
def blockdev_pause_resume_sync(disks: Sequence[Wire], pause: bool) -> Any: ...
@procedure("normal", shown="bdev", waits_for="the removal of a disk")
def blockdev_remove(bdev: Wire) -> None: ...
@procedure("normal", shown="bdev")
def blockdev_removechildren(bdev: Wire, ndevs: Sequence[Wire]) -> None: ...
@procedure("normal")
def blockdev_rename(devlist: Sequence[tuple[Wire, Sequence[Any]]]) -> None: ...
@procedure("normal", shown="disk")
def blockdev_setinfo(disk: Wire, info: str) -> None: ...
@procedure("normal", shown="disk")
def blockdev_shutdown(disk: Wire) -> None: ...
@procedure("normal", answer_from="snapshot_volume", shown="cf_bdev snap_name")
def blockdev_snapshot(
    cf_bdev: Wire, snap_name: str | None, snap_size: int | None
) -> Any: ...
@procedure(
    "slow", runs_programs=True, shown="bdev offset size", waits_for="the wipe of a disk"
)
def blockdev_wipe(bdev: Wire, offset: int, size: int) -> None: ...
@procedure("normal", multi=True, shown="disks")
def drbd_attach_net(disks: Sequence[Wire], multimaster: bool) -> None: ...
@procedure("normal", multi=True, shown="disks")
def drbd_disconnect_net(disks: Sequence[Wire]) -> None: ...
@procedure("urgent", multi=True, own_lane=LANE_STORAGE, reads=True)
def drbd_helper() -> str: ...
@procedure("normal", reads=True)
def drbd_needs_activation(disks: Sequence[Wire]) -> list[str]: ...
@procedure(
    "slow",
    multi=True,
    answer=[True, 100],
    shown="disks",
    waits_for="the synchronisation of disks",
)
def drbd_wait_sync(disks: Sequence[Wire]) -> Any: ...
@procedure("fast", multi=True, reads=True, max_answer=MANY)
def extstorage_diagnose() -> list[Provider]: ...
@procedure("fast", shown="file_storage_dir")
def file_storage_dir_create(file_storage_dir: str) -> None: ...
@procedure("fast", shown="file_storage_dir")
def file_storage_dir_remove(file_storage_dir: str) -> None: ...
@procedure("fast", shown="old_file_storage_dir new_file_storage_dir")
def file_storage_dir_rename(
    old_file_storage_dir: str, new_file_storage_dir: str
) -> None: ...
@procedure("urgent", multi=True, own_lane=LANE_STORAGE, reads=True, max_answer=MANY)
def lv_list(
    vg_name: str | Sequence[str],
) -> dict[str, Volume]: ...
@procedure("fast", multi=True, reads=True, max_answer=MANY)
def node_volumes() -> list[Facts]: ...
@procedure("normal", shown="instance disk new_size")
def resize_disk(instance: Wire, disk: Wire, new_size: int) -> None: ...
@procedure("normal", shown="name op")
def storage_execute(
    su_name: str, su_args: Sequence[Any], name: str | None, op: str
) -> None: ...
@procedure("normal", multi=True, reads=True, max_answer=MANY)
def storage_list(
    su_name: str, su_args: Sequence[Any], name: str | None, fields: Sequence[str]
) -> list[list[Scalar]]: ...
@procedure("normal", shown="name")
def storage_modify(
    su_name: str, su_args: Sequence[Any], name: str | None, changes: Mapping[str, Any]
) -> None: ...
@procedure("urgent", multi=True, own_lane=LANE_STORAGE, reads=True)
def vg_list() -> dict[str, Number]: ...


#: Procedures by name.
PROCEDURES: Final[dict[str, Procedure[..., Any]]] = {
    row.name: row
    for row in sorted(
        (each for each in list(globals().values()) if isinstance(each, Procedure)),
        key=lambda each: each.name,
    )
}

"""Rights of users, and parameters that mean root on nodes."""

import pytest

from ganeti.daemons.rapi import access
from ganeti.protocols.rapi import resource_table as resources

TABLE = {(each.path, each.method): each for each in resources.RESOURCES}
STARTUP = TABLE["/2/instances/[instance_name]/startup", "PUT"]
CREATE = TABLE["/2/instances", "POST"]
QUERY = TABLE["/2/query/[resource]", "PUT"]
LIST = TABLE["/2/instances", "GET"]


MODIFY = "/2/instances/web1/modify"
SET = {"OP_ID": "OP_INSTANCE_SET_PARAMS"}
UUID = "db000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (f"/2/instances/{UUID}", "/2/instances/instance-a%20b"),
        (f"/2/nodes/{UUID}/role", "/2/nodes/node-a%20b/role"),
        (f"/2/disks/{UUID}", "/2/disks/disk-a%20b"),
        (f"/2/jobs/{UUID}", f"/2/jobs/{UUID}"),
        ("/2/instances/db1/tags", "/2/instances/db1/tags"),
        ("/2/instances", "/2/instances"),
    ],
)
def test_a_uuid_counts_as_the_name_of_its_object(path, named):
    assert access.named_path(path, lambda kind, uuid: f"{kind}-a b") == named


def allowed(options, resource, *paths):
    return access.parse_rights(options).allow(resource, paths)


@pytest.mark.parametrize(
    ("options", "resource", "paths", "wanted"),
    [
        ([], LIST, ["/2/instances"], True),
        ([], STARTUP, ["/2/instances/web1/startup"], False),
        (["read"], STARTUP, ["/2/instances/web1/startup"], False),
        (["write"], STARTUP, ["/2/instances/web1/startup"], True),
        (["writer", "root"], STARTUP, ["/2/instances/web1/startup"], False),
        (["read"], QUERY, ["/2/query/node"], True),
        (["write"], QUERY, ["/2/query/node"], True),
        (["read:/2/query/*"], QUERY, ["/2/query/node"], True),
        (["write:/2/instances/web*"], STARTUP, ["/2/instances/web1/startup"], True),
        (["write:/2/instances/web*"], STARTUP, ["/2/instances/db1/startup"], False),
        (["write:/2/instances/web*"], STARTUP, ["/2/instances/WEB1/startup"], False),
        (["put:*"], STARTUP, ["/2/instances/db1/startup"], True),
        (["post:*", "get:*"], STARTUP, ["/2/instances/db1/startup"], False),
        (["write:/2/instances/web*"], CREATE, ["/2/instances/web9"], True),
        (["write:/2/instances/web*"], CREATE, ["/2/instances/web9", "/2/instances/db"], False),
        (["write:/2/*", "read:x"][:1], CREATE, ["/2/instances/db"], True),
    ],
)  # fmt: skip
def test_words_and_rules(options, resource, paths, wanted):
    assert allowed(options, resource, *paths) is wanted


@pytest.mark.parametrize(
    ("path", "ops", "wanted"),
    [
        ("/2/tags", [{"OP_ID": "OP_TAGS_SET"}], ["/2/tags"]),
        ("/2/instances", [{"OP_ID": "OP_INSTANCE_CREATE", "instance_name": "a"}], ["/2/instances/a"]),
        ("/2/instances/a/rename", [{"OP_ID": "OP_INSTANCE_RENAME", "new_name": "b"}], ["/2/instances/a/rename", "/2/instances/b"]),
        ("/2/groups", [{"OP_ID": "OP_GROUP_ADD", "group_name": "g"}], ["/2/groups/g"]),
        ("/2/instances-multi-alloc", [{"OP_ID": "OP_INSTANCE_MULTI_ALLOC", "instances": [{"OP_ID": "OP_INSTANCE_CREATE", "instance_name": n} for n in "ab"]}], ["/2/instances/a", "/2/instances/b"]),
        ("/2/instances-multi-alloc", [{"OP_ID": "OP_INSTANCE_MULTI_ALLOC", "instances": []}], ["/2/instances-multi-alloc"]),
        (MODIFY, [{**SET, "disks": [["attach", {"uuid": "u", "name": "n"}]]}], [MODIFY, "/2/disks/u"]),
        (MODIFY, [{**SET, "disks": [["attach", -1, {"name": "n/1"}]]}], [MODIFY, "/2/disks/n%2F1"]),
        (MODIFY, [{**SET, "disks": [["attach", "n", {}], ["attach", "m", {"mode": "ro"}]]}], [MODIFY, "/2/disks/n", "/2/disks/m"]),
        (MODIFY, [{**SET, "disks": [["attach", {}], ["add", {"name": "n"}], ["detach", "n", {}], 7]}], [MODIFY, "/2/disks/"]),
        ("/2/groups/g/assign-nodes", [{"OP_ID": "OP_GROUP_ASSIGN_NODES", "group_name": "g", "nodes": ["n1", "n2"]}], ["/2/groups/g/assign-nodes", "/2/nodes/n1", "/2/nodes/n2"]),
        ("/2/networks/lan/connect", [{"OP_ID": "OP_NETWORK_CONNECT", "group_name": "g"}], ["/2/networks/lan/connect", "/2/groups/g"]),
        ("/2/networks/lan/disconnect", [{"OP_ID": "OP_NETWORK_DISCONNECT", "group_name": "g"}], ["/2/networks/lan/disconnect", "/2/groups/g"]),
    ],
)  # fmt: skip
def test_new_objects_need_a_right_too(path, ops, wanted):
    assert access.paths_of(path, ops) == wanted


@pytest.mark.parametrize(
    ("op", "names"),
    [
        ({"hvparams": {"kvm_path": "/x", "acpi": True}}, ["kvm_path"]),
        ({"hvparams": {"kvm": {"kvm_extra": "-x", "usb_devices": "a"}}}, ["kvm_extra", "usb_devices"]),
        ({"os_hvp": {"tiny": {"kvm": {"kernel_path": "/x"}}}}, ["kernel_path"]),
        ({"hvparams": {"kernel_path": "", "kvm_path": "default", "cdrom_image_path": None}}, []),
        ({"ndparams": {"oob_program": "/x"}}, ["oob_program"]),
        ({"iallocator": "mine"}, ["iallocator"]),
        ({"iallocator": "hail"}, []),
        ({"iallocator": None}, []),
        ({"osparams": {"kernel_path": "/x"}}, []),
        ({"disks": [["add", {"adopt": "lv", "size": 1}]]}, ["adopt"]),
        ({"instances": [{"hvparams": {"kvm_path": "/x"}}]}, ["kvm_path"]),
        ({"hvparams": {"vnc_bind_address": "0.0.0.0"}}, []),
        ({"hvparams": {"vnc_bind_address": "/etc"}}, ["vnc_bind_address"]),
        ({"hvparams": {"machine_version": "pc-i440fx-7.2"}}, []),
        ({"hvparams": {"machine_version": "pc,initrd=/root/.ssh/id_rsa"}}, ["machine_version"]),
        ({"hvparams": {"spice_tls_ciphers": "HIGH:-DES"}}, []),
        ({"hvparams": {"spice_tls_ciphers": "HIGH,unix=on,addr=/x"}}, []),
        ({"hvparams": {"use_chroot": False}}, ["use_chroot"]),
        ({"hvparams": {"use_chroot": "true", "soundhw": "hda"}}, []),
        ({"hvparams": {"drop_capabilities": ""}}, ["drop_capabilities"]),
        ({"hvparams": {"drop_capabilities": None}}, ["drop_capabilities"]),
        ({"hvparams": {"drop_capabilities": "default"}}, []),
        ({"hypervisor": "kvm", "enabled_hypervisors": ["kvm", "lxc"]}, []),
        ({"hypervisor": "chroot"}, ["hypervisor"]),
        ({"enabled_hypervisors": ["kvm", "chroot"]}, ["enabled_hypervisors"]),
        ({"hypervisor": None, "enabled_hypervisors": 7}, []),
        ({"use_external_mip_script": True, "default_iallocator": "x"}, ["default_iallocator", "use_external_mip_script"]),
    ],
)  # fmt: skip
def test_parameters_that_mean_root_are_found(op, names):
    assert access.root_parameters([{"OP_ID": "x"}, op]) == names


def test_root_is_a_right_of_its_own():
    assert access.parse_rights(["root"]).allow_root(["/2/modify"])
    assert not access.parse_rights(["write"]).allow_root(["/2/modify"])
    rights = access.parse_rights(["root:/2/instances/lab*", "write"])
    assert rights.allow_root(["/2/instances/lab1/modify"])
    assert not rights.allow_root(["/2/instances/web1/modify"])


def test_parameters_that_name_files_of_nodes_are_known():
    from ganeti.base.constants.parameters import hvparams

    for table in hvparams.HYPERVISOR.values():
        for name, param in table.items():
            if "absolute" in str(param.allowed):
                assert name in access.ROOT_VALUES, name


@pytest.mark.parametrize(
    ("value", "present", "names"),
    [
        ("/x", "/x", []),
        ("/x", "/y", ["kernel_path"]),
        (["/x"], "/x", ["kernel_path"]),
        ("/x", None, ["kernel_path"]),
    ],
)
def test_a_value_that_is_there_needs_no_right(value, present, names):
    op = {"OP_ID": "x", "hvparams": {"kernel_path": value}}
    there = {"hvparams": {"kernel_path": present}}
    assert access.root_parameters([op], there) == names
    # It is another parameter of the same name elsewhere.
    assert access.root_parameters([op], {"kernel_path": value}) == ["kernel_path"]
    assert access.root_parameters([op, op], None) == ["kernel_path"]


def test_texts_are_truth_values():
    op = {"hvparams": {"use_chroot": "False"}}
    assert access.root_parameters([op], {"hvparams": {"use_chroot": False}}) == []
    assert access.root_parameters([op], {"hvparams": {"use_chroot": True}})


def test_what_is_there_is_left_out_of_a_request():
    op = {
        "OP_ID": "x",
        "hvparams": {"kernel_path": "/x", "acpi": True},
        "osparams": {"kernel_path": "/y"},
        "disks": [["modify", 0, {"adopt": "lv", "name": "data"}]],
        "depends": None,
    }
    rest = {
        "OP_ID": "x",
        "hvparams": {"acpi": True},
        "osparams": {"kernel_path": "/y"},
        "disks": [["modify", 0, {"name": "data"}]],
        "depends": None,
    }
    assert access.without_root([op]) == [rest]
    assert access.without_root([rest]) == [rest]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ([0, {"image": "/etc/shadow"}], ["ext_params"]),
        (["modify", 0, {"image": "default"}], ["ext_params"]),
        (["add", -1, {"size": 1, "image": "x"}], ["ext_params"]),
        (["modify", 0, {"name": "data", "mode": "ro"}], []),
        (["attach", {"uuid": "u"}], []),
        (["add", {"size": 1, "vg": "xenvg"}], []),
    ],
)
def test_parameters_of_a_provider_mean_root_in_a_disk_too(change, names):
    op = {"OP_ID": "OP_INSTANCE_SET_PARAMS", "disks": [change]}
    assert access.root_parameters([op]) == names
    again = {"OP_ID": "OP_INSTANCE_RECREATE_DISKS", "disks": [[0, change[-1]], 1]}
    assert access.root_parameters([again]) == names

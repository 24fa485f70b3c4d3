"""Rights, limits of rates and refusals of the remote API, with exact values."""

import pytest

from ganeti.daemons.rapi import access, authentication, problems
from ganeti.protocols.rapi.model import Resource

#: Parameters that need the right ``root``: whoever sets one controls nodes. A parameter
#: that leaves this list gives that control to everybody who may write.
ROOT = [
    "add_uids",
    "adopt",
    "bootloader_args",
    "bootloader_path",
    "cdrom2_image_path",
    "cdrom_image_path",
    "default_iallocator",
    "default_iallocator_params",
    "device_model",
    "devices",
    "diagnose_data_collector_filename",
    "disk-custom",
    "drbd_helper",
    "drop_capabilities",
    "ext_params",
    "extra_cgroups",
    "extra_config",
    "file_storage_dir",
    "floppy_image_path",
    "gluster_storage_dir",
    "host",
    "init_script",
    "initrd_path",
    "install_image",
    "kernel_path",
    "kvm_extra",
    "kvm_path",
    "mem_path",
    "net-custom",
    "oob_program",
    "pci_pass",
    "provider",
    "remove_uids",
    "security_domain",
    "security_model",
    "shared_directories",
    "shared_file_storage_dir",
    "spice_password_file",
    "src_path",
    "swtpm_path",
    "uefi_code_path",
    "uefi_vars_path",
    "uid_pool",
    "usb_devices",
    "use_external_mip_script",
    "vif_script",
    "virtiofsd_path",
    "vnc_password_file",
    "vnc_x509_path",
    "zeroing_image",
]
#: The empty list permits everything.
SPECIAL = {"drop_capabilities"}


@pytest.mark.parametrize("name", ROOT)
def test_control_of_nodes_needs_its_own_right(name):
    for place in (
        {name: "x"},
        {"hvparams": {"kvm": {name: "x"}}},
        {"list": [{name: 5}]},
    ):
        assert access.root_parameters([place]) == [name]
    for unset in () if name in SPECIAL else (None, "", "default", [], {}):
        assert access.root_parameters([{name: unset}]) == []
    for free in ("osparams", "osparams_private", "osparams_secret", "tags", "reason"):
        assert access.root_parameters([{free: {name: "x"}}]) == []


def test_no_other_parameter_needs_it():
    special = {"hypervisor", "enabled_hypervisors", "iallocator", "machine_version"}
    special |= {"vnc_bind_address", "use_chroot"}
    assert {*ROOT, *special} == access.ROOT_VALUES.keys()
    assert access.root_parameters([{"memory": 5, "name": "x"}]) == []
    # Each is named once, in order.
    ops = [{"src_path": "/x", "adopt": "a"}, {"adopt": "b"}]
    assert access.root_parameters(ops) == ["adopt", "src_path"]


@pytest.mark.parametrize(
    ("value", "names"),
    [("hail", []), (".", []), (None, []), ("", ["iallocator"]), ("x", ["iallocator"])],
)
def test_programs_of_an_administrator_are_no_allocators_for_everybody(value, names):
    assert access.root_parameters([{"iallocator": value}]) == names


def resource(method="POST", rights=("write",)):
    return Resource(path="/2/x", method=method, about="x", result=int, access=rights)


def test_options_of_one_path_have_a_known_right_and_a_path():
    rights = access.parse_rights(["read", "odd", "write:/2/a*", "get:*b", "root:/"])
    assert rights.words == {"read", "odd"}
    assert [(rule.right, rule.pattern) for rule in rights.rules] == [
        ("write", "/2/a*"),
        ("get", "*b"),
        ("root", "/"),
    ]
    for word in ("admin:/2", "write:2/a", "write:"):
        with pytest.raises(access.RightsError) as caught:
            access.parse_rights([word])
        assert caught.value.args == (
            (
                f"option {word!r}: wanted RIGHT:/PATH, the right one of delete, get, post,"
                " put, read, root, write"
            ),
        )


@pytest.mark.parametrize(
    ("words", "method", "rights", "paths", "expected"),
    [
        ([], "GET", (), ["/2/a"], True),
        (["write"], "POST", ("write",), ["/2/a"], True),
        (["read"], "POST", ("write",), ["/2/a"], False),
        (["read"], "GET", ("read", "write"), ["/2/a"], True),
        (["write:/2/a"], "POST", ("write",), ["/2/a"], True),
        (["write:/2/a"], "POST", ("write",), ["/2/A"], False),
        (["write:/2/a"], "POST", ("write",), ["/2/a", "/2/b"], False),
        (["write:/2/a", "post:/2/b"], "POST", ("write",), ["/2/a", "/2/b"], True),
        (["put:/2/*"], "POST", ("write",), ["/2/a"], False),
        (["post:/2/*"], "POST", ("write",), ["/2/a/b"], True),
    ],
)
def test_a_right_covers_every_path_of_a_request(words, method, rights, paths, expected):
    given = access.parse_rights(words)
    assert given.allow(resource(method, rights), paths) is expected


def test_rights_of_roles_are_joined():
    one = access.parse_rights(["read", "write:/2/a"])
    other = access.parse_rights(["root", "get:/2/b"])
    both = one.joined(other)
    assert both.words == {"read", "root"}
    assert [rule.pattern for rule in both.rules] == ["/2/a", "/2/b"]


@pytest.mark.parametrize(
    ("path", "ops", "paths"),
    [
        ("/2/nodes/n1", [{"OP_ID": "OP_NODE_REMOVE"}], ["/2/nodes/n1"]),
        (
            "/2/instances",
            [{"OP_ID": "OP_INSTANCE_CREATE", "instance_name": "a"}],
            ["/2/instances/a"],
        ),
        ("/2/instances", [{"OP_ID": "OP_INSTANCE_CREATE"}], ["/2/instances/"]),
        (
            "/2/instances/a/rename",
            [{"OP_ID": "OP_INSTANCE_RENAME", "new_name": "b"}],
            ["/2/instances/a/rename", "/2/instances/b"],
        ),
        ("/2/groups", [{"OP_ID": "OP_GROUP_ADD", "group_name": "g"}], ["/2/groups/g"]),
        (
            "/2/groups/g/rename",
            [{"OP_ID": "OP_GROUP_RENAME", "new_name": "h"}],
            ["/2/groups/g/rename", "/2/groups/h"],
        ),
        (
            "/2/networks",
            [{"OP_ID": "OP_NETWORK_ADD", "network_name": "n"}],
            ["/2/networks/n"],
        ),
        (
            "/2/networks/n/rename",
            [{"OP_ID": "OP_NETWORK_RENAME", "new_name": "m"}],
            ["/2/networks/n/rename", "/2/networks/m"],
        ),
        (
            "/2/instances-multi-alloc",
            [
                {
                    "OP_ID": "OP_INSTANCE_MULTI_ALLOC",
                    "instances": [
                        {"OP_ID": "OP_INSTANCE_CREATE", "instance_name": "a"},
                        "odd",
                    ],
                }
            ],
            ["/2/instances/a"],
        ),
        (
            "/2/instances-multi-alloc",
            [{"OP_ID": "OP_INSTANCE_MULTI_ALLOC", "instances": None}],
            ["/2/instances-multi-alloc"],
        ),
    ],
)
def test_a_request_concerns_the_objects_that_it_creates(path, ops, paths):
    assert access.paths_of(path, ops) == paths


def test_events_come_back_at_a_constant_rate():
    buckets = authentication.Buckets(2, 0.5)
    assert buckets.wait_s("a", 100.0) == 0
    buckets.take("a", 100.0)
    assert buckets.wait_s("a", 100.0) == 0
    buckets.take("a", 100.0)
    assert buckets.wait_s("a", 100.0) == 2.0
    assert buckets.wait_s("b", 100.0) == 0
    # An event that is counted although it was not permitted costs nothing more.
    buckets.take("a", 100.0)
    assert buckets.wait_s("a", 101.0) == 1.0
    assert buckets.wait_s("a", 102.0) == 0
    # A bucket holds no more than its size, however long nothing happens.
    for _ in range(2):
        buckets.take("a", 10_000.0)
    assert buckets.wait_s("a", 10_000.0) == 2.0


def test_keys_are_bounded():
    buckets = authentication.Buckets(1, 1.0, keys=2)
    for key in "abc":
        buckets.take(key, 0.0)
    assert [buckets.wait_s(key, 0.0) for key in "abc"] == [0.0, 1.0, 1.0]


def test_refusals_have_the_documented_body():
    refused = problems.bad_request("no name")
    assert refused.status == 400
    assert refused.body() == {
        "code": 400,
        "message": "no name",
        "explain": "Bad request syntax or unsupported method",
    }
    assert problems.forbidden("no").status == 403
    bare = problems.Refused(401, headers={"A": "b"})
    assert bare.headers == {"A": "b"}
    assert bare.body()["message"] == "Unauthorized"
    assert bare.body()["explain"] == "No permission -- see authorization schemes"
    # Clients compare the text of this status.
    assert problems.Refused(404, "instance 'x' not known").body() == {
        "code": 404,
        "message": "Not Found",
        "explain": "Nothing matches the given URI",
        "detail": "instance 'x' not known",
    }
    # A status without a description explains itself by its phrase.
    assert problems.Refused(409).body()["explain"] == "Request conflict"
    assert problems.Refused(418).body()["message"] == "I'm a Teapot"
    assert problems.Refused(404).headers == {}

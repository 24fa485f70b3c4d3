"""Requests that clients of Ganeti know: what is accepted, and what is refused."""

import pytest

from fakes import clusters
from fakes.engine import Engine, creation
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.base import errors
from ganeti.master.locking import Level
from ganeti.operations.instance.disks import disk_specs
from ganeti.operations.parameters import typed_params


def create(**changes):
    return creation(os_type="tiny+default", ignore_ipolicy=True) | changes


def engine(**cluster):
    script = {
        **SUCCESSFUL_ACTS,
        "node_info": ["boot", [], [{"memory_free": 4096, "hv_version": "7.2"}]],
        "instance_info": {},
        "blockdev_assemble": ["/dev/x", "/link", None],
        "hooks_runner": [],
    }
    return Engine(clusters.snapshot(instances=0, **cluster), script)


@pytest.mark.parametrize("name", ["tiny", "tiny+default"])
def test_a_blacklisted_os_takes_no_new_instance(name):
    eng = engine(blacklisted_os=(name,))
    with pytest.raises(errors.OpPrereqError, match="is blacklisted"):
        eng.run(create())
    engine(blacklisted_os=("tiny+other", "tin")).run(create())
    eng = engine()
    eng.run(create(start=False))
    eng.run({"OP_ID": "OP_CLUSTER_SET_PARAMS", "blacklisted_os": [["add", name]]})
    with pytest.raises(errors.OpPrereqError, match="is blacklisted"):
        eng.run({"OP_ID": "OP_INSTANCE_REINSTALL", "instance_name": "web1"})


@pytest.mark.parametrize(("offline", "word"), [(False, "online"), (True, "offline")])
def test_an_instance_that_is_marked_as_up_goes_neither_online_nor_offline(
    offline, word
):
    eng = engine(instance_info={})
    eng.run(create())
    assert [item.admin_state for item in eng.snapshot.instances.values()] == ["up"]
    before = eng.snapshot.instances
    request = {
        "OP_ID": "OP_INSTANCE_SET_PARAMS",
        "instance_name": "web1",
        "offline": offline,
    }
    with pytest.raises(
        errors.OpPrereqError, match=f"is marked up, .* to be marked {word}"
    ):
        eng.run(request)
    assert eng.snapshot.instances == before


def test_only_changes_of_the_offline_mark_are_reported():
    eng = Engine(
        clusters.snapshot(
            instances=0, extra=[clusters.instance(1, admin_state="down")]
        ),
        {**SUCCESSFUL_ACTS, "instance_info": {}, "hooks_runner": []},
    )
    online = {
        "OP_ID": "OP_INSTANCE_SET_PARAMS",
        "instance_name": "inst1.example.com",
        "offline": False,
    }
    assert eng.run(online) == []
    offline = {**online, "offline": True}
    assert eng.run(offline) == [("admin_state", "offline")]
    assert eng.run(offline) == []
    assert eng.run(online) == [("admin_state", "down")]


def test_memory_sets_both_limits():
    filled = typed_params.backend({"memory": "1g", "minmem": 128})
    assert filled == {"minmem": 1024, "maxmem": 1024}


@pytest.mark.parametrize("value", ["1", "yes", "0", "no", "on", 2, 0.5, []])
def test_truth_values_are_true_or_false(value):
    with pytest.raises(errors.TypeEnforcementError, match="wanted true or false"):
        typed_params.backend({"auto_balance": value})
    with pytest.raises(errors.TypeEnforcementError, match="acpi: wanted true or false"):
        typed_params.hypervisor("kvm", {"acpi": value})


@pytest.mark.parametrize("value", ["nan", "inf", "x", pytest.param(10**400, id="huge")])
def test_numbers_have_a_form_in_json(value):
    with pytest.raises(errors.TypeEnforcementError, match="cpu_speed: wanted a number"):
        typed_params.node({"cpu_speed": value})


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("True", True), ("FALSE", False), ("", False), (True, True), (0, False)],
)
def test_truth_values_in_any_case_and_as_json(value, wanted):
    assert typed_params.backend({"auto_balance": value}) == {"auto_balance": wanted}
    assert typed_params.hypervisor("kvm", {"acpi": value}) == {"acpi": wanted}


@pytest.mark.parametrize("name", ["0", "12", "-1"])
def test_names_of_devices_are_not_numbers(name):
    with pytest.raises(errors.OpPrereqError, match="looks like an index"):
        disk_specs.check_name(name, "disk 0")
    assert disk_specs.check_name("12a", "disk 0") == "12a"


def test_spindles_need_exclusive_storage():
    with pytest.raises(errors.OpPrereqError, match="with exclusive storage"):
        disk_specs.parse({"size": 1024, "spindles": 1}, "disk 0", template="plain")


def test_standard_values_are_merged():
    eng = engine()
    std = dict(eng.snapshot.cluster.ipolicy["std"])
    least = eng.snapshot.cluster.ipolicy["minmax"][0]["min"]["memory-size"]
    change = {"std": {"memory-size": least}}
    eng.run({"OP_ID": "OP_CLUSTER_SET_PARAMS", "ipolicy": change})
    assert eng.snapshot.cluster.ipolicy["std"] == std | change["std"]


def test_a_delay_on_the_master_locks_it():
    eng = engine()
    op = {"OP_ID": "OP_TEST_DELAY", "duration": 0.1, "no_locks": False}
    eng.run(op | {"on_nodes": ["node2"]})
    wanted = {clusters.node_uuid(1), clusters.node_uuid(2)}
    assert eng.locks.modes()[Level.NODE] == (wanted, False)
    eng.run(op | {"no_locks": True})
    assert Level.NODE not in eng.locks.modes()


IMAGES = "OS parameter os-image: wanted an absolute path or a URL"


@pytest.mark.parametrize("image", ["debian", "ssh://x/y", "./image", "images/x"])
def test_an_os_image_is_a_path_or_a_url(image):
    eng = engine()
    with pytest.raises(errors.OpPrereqError, match=f"instance web1.*: {IMAGES}"):
        eng.run(create(osparams={"os-image": image}))
    eng.run(create())
    change = {"instance_name": "web1", "osparams": {"os-image": image}}
    for op_id in ("OP_INSTANCE_SET_PARAMS", "OP_INSTANCE_REINSTALL"):
        with pytest.raises(errors.OpPrereqError, match=f"instance web1.*: {IMAGES}"):
            eng.run({"OP_ID": op_id, **change})
    of_cluster = {"osparams": {"tiny": {"os-image": image}}}
    with pytest.raises(errors.OpPrereqError, match=f"OS tiny: {IMAGES}"):
        eng.run({"OP_ID": "OP_CLUSTER_SET_PARAMS", **of_cluster})


@pytest.mark.parametrize("image", ["/srv/image", "https://x/y", "default"])
def test_other_os_images_are_for_the_os_to_judge(image):
    eng = engine()
    eng.run(create())
    op = {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "web1"}
    eng.run({**op, "osparams": {"os-image": image}})
    (record,) = eng.snapshot.instances.values()
    assert record.osparams == ({} if image == "default" else {"os-image": image})


def test_an_os_image_needs_no_os_but_a_disk():
    params = {"os-image": "/srv/image"}
    eng = engine()
    with pytest.raises(errors.OpPrereqError, match="no operating system given"):
        eng.run(create(os_type=None))
    diskless = {"disks": [], "disk_template": "diskless"}
    with pytest.raises(errors.OpPrereqError, match="an image needs a disk"):
        eng.run(create(os_type=None, osparams=params, **diskless))
    eng.run(create(os_type=None, osparams=params, start=False))
    ((_node, args),) = eng.rpc.called("os_validate")
    assert args[1:4] == ("", ["parameters", "install"], params)
    ((_node, args),) = eng.rpc.called("instance_os_add")
    assert (args[0]["os"], args[0]["osparams"]) == ("", params)
    eng.run({"OP_ID": "OP_INSTANCE_REINSTALL", "instance_name": "web1"})
    ((_node, args),) = eng.rpc.called("instance_os_add")
    assert (args[0]["os"], args[1]) == ("", True)


@pytest.mark.parametrize("kind", ["osparams", "osparams_private", "osparams_secret"])
def test_all_kinds_of_parameters_have_os_images(kind):
    with pytest.raises(errors.OpPrereqError, match=IMAGES):
        engine().run(create(**{kind: {"os-image": "debian"}}))
    eng = engine()
    eng.run(create(os_type=None, **{kind: {"os-image": "/srv/image"}}))
    assert eng.rpc.called("instance_os_add")

"""Seeds of cloud-init: who gets them, and which parameters are refused."""

import pytest

from fakes import clusters
from fakes.engine import Engine, creation
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.base import errors

SECRET = "#cloud-config\npassword: hush\n"
USER_DATA = {"cloud-init-user-data": SECRET}
KEY = {"cloud-init-ssh-key": "ssh-ed25519 AAAA me@here"}
#: Calls that start a guest or prepare for one.
STARTS = ("accept_instance", "instance_reboot", "instance_start")


def create(**changes):
    return creation(os_type="tiny+default", ignore_ipolicy=True) | changes


def engine(**script):
    script = {
        **SUCCESSFUL_ACTS,
        "node_info": ["boot", [], [{"memory_free": 4096, "hv_version": "7.2"}]],
        "instance_info": {},
        "blockdev_assemble": ["/dev/x", "/link", None],
        "hooks_runner": [],
        **script,
    }
    return Engine(
        clusters.snapshot(instances=0, enabled_hypervisors=("kvm", "fake")), script
    )


def op(name, **fields):
    return {"OP_ID": name, "instance_name": "web1", **fields}


def seeds(eng):
    calls = [call for call in eng.rpc.calls if call[0] in STARTS]
    return [(name, args[0].get("cloud_init")) for name, _node, args in calls]


def test_only_calls_that_start_a_guest_have_its_seed():
    eng = engine()
    # The fake refuses other calls with a seed, and other calls with private parameters.
    eng.run(create(hypervisor="kvm", osparams_private=USER_DATA, osparams=KEY))
    got = seeds(eng)
    running = {"memory": 128, "vcpus": 1, "state": 0, "time": 1.0}
    eng.rpc.script["instance_info"] = running
    for kind in ("soft", "hard"):
        eng.run(op("OP_INSTANCE_REBOOT", reboot_type=kind))
        got += seeds(eng)
    assert [name for name, _ in got] == [
        "instance_start",
        "instance_reboot",
        "instance_reboot",
    ]
    for _, files in got:
        assert files["user-data"] == SECRET
        assert "ssh-ed25519" in files["meta-data"]


def test_scripts_and_their_checks_get_no_seed_parameters():
    eng = engine()
    osparams = {"motd": "x", **KEY}
    eng.run(create(hypervisor="kvm", osparams=osparams, osparams_private=USER_DATA))
    ((_, args),) = eng.rpc.called("os_validate")
    assert args[3] == {"motd": "x"}


def test_an_instance_without_these_parameters_is_sent_as_before():
    eng = engine()
    eng.run(create(hypervisor="kvm"))
    assert seeds(eng) == [("instance_start", None)]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"cloud-init-userdata": "x"}, "cloud-init-userdata: unknown"),
        ({"cloud-init-user-data": "x" * 65537}, "at most 65536 bytes, found 65537"),
        ({"cloud-init-meta-data": "\xe9" * 8193}, "at most 16384 bytes, found 16386"),
        ({"cloud-init-user-data": "hush\0"}, "without NUL"),
        ({"cloud-init-user-data": 5}, "wanted a text"),
        ({"cloud-init-user-data": "hush\ud800"}, "UTF-8"),
        ({"a=b": "hush"}, "'a=b': wanted a name without '='"),
        ({"a\0b": "hush"}, "wanted a name without '=' and control"),
        ({"a\nb": "hush"}, "wanted a name without '=' and control"),
        ({"motd": "hush\0"}, "'motd': wanted a value without NUL"),
        ({"cloud-init-ssh-key": "hush"}, "line 1: wanted a public key"),
        ({"cloud-init-ssh-key": "command=x ssh-rsa AA"}, "wanted a public key"),
    ],
)
def test_wrong_parameters_are_refused_unseen(params, text):
    eng = engine()
    with pytest.raises(errors.OpPrereqError, match=text) as caught:
        eng.run(create(hypervisor="kvm", osparams_private=params))
    assert "instance web1" in str(caught.value)
    assert "hush" not in str(caught.value)
    eng.run(create(hypervisor="kvm"))
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(op("OP_INSTANCE_SET_PARAMS", osparams_private=params))
    of_cluster = {"osparams": {"tiny": params}}
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run({"OP_ID": "OP_CLUSTER_SET_PARAMS", **of_cluster})


def test_other_hypervisors_have_no_seed():
    eng = engine()
    text = "need hypervisor kvm, found fake"
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(create(hypervisor="fake", hvparams={}, osparams_private=USER_DATA))
    eng.run(create(hypervisor="fake", hvparams={}))
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(op("OP_INSTANCE_SET_PARAMS", osparams_private=USER_DATA))


def test_metadata_and_a_key_exclude_each_other():
    private = {"cloud-init-meta-data": "a: b"}
    with pytest.raises(errors.OpPrereqError, match="exclude each other"):
        engine().run(create(hypervisor="kvm", osparams=KEY, osparams_private=private))


def test_what_is_not_stored_is_refused():
    eng = engine()
    with pytest.raises(errors.OpPrereqError, match="has to be stored"):
        eng.run(create(hypervisor="kvm", osparams_secret=USER_DATA))
    eng.run(create(hypervisor="kvm", start=False))
    with pytest.raises(errors.OpPrereqError, match="has to be stored"):
        eng.run(op("OP_INSTANCE_REINSTALL", osparams_secret=USER_DATA))
    eng.run(op("OP_INSTANCE_REINSTALL", osparams_private=USER_DATA))
    (record,) = eng.snapshot.instances.values()
    assert record.osparams_private == USER_DATA


def test_a_file_of_the_seed_can_be_removed():
    eng = engine()
    eng.run(create(hypervisor="kvm", osparams_private=USER_DATA))
    change = {"cloud-init-user-data": "default"}
    report = eng.run(op("OP_INSTANCE_SET_PARAMS", osparams_private=change))
    assert "hush" not in str(report)
    (record,) = eng.snapshot.instances.values()
    assert record.osparams_private == {}

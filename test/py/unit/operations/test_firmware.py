"""Copies of UEFI variables and TPMs: when they are taken, and who gets them."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors
from ganeti.master.config import config_data

TPM = {"tpm": True, "kernel_path": ""}
UEFI = {"firmware": "uefi", "kernel_path": ""}
NAME = "inst1.example.com"
RUNS = {"memory": 128, "vcpus": 1, "state": 0, "time": 1.0}


def on_node1(node, _args):
    """Return that the guest runs on its primary node alone."""
    return RUNS if node == clusters.node_uuid(1) else {}


def engine(hvparams=UEFI, admin_state="up", **script):
    host = clusters.instance(
        1,
        hypervisor="kvm",
        hvparams=hvparams,
        admin_state=admin_state,
        disk_template="diskless",
    )
    script = {
        **SUCCESSFUL_ACTS,
        "instance_info": on_node1,
        "node_info": ["boot", [], [{"memory_free": 4096, "hv_version": "7.2"}]],
        "hooks_runner": [],
        **script,
    }
    return Engine(clusters.snapshot(instances=0, extra=[host]), script)


def stop(eng):
    eng.run({"OP_ID": "OP_INSTANCE_SHUTDOWN", "instance_name": NAME})


def state(eng):
    (record,) = eng.snapshot.instances.values()
    return record.firmware_state


def test_a_stopped_guest_is_saved_and_its_next_start_has_the_copy():
    eng = engine(guest_firmware=["eJwAAA==", ""])
    stop(eng)
    assert [c[0] for c in eng.rpc.calls].index("guest_firmware") > 0
    assert state(eng) == "eJwAAA=="
    eng.rpc.script["instance_info"] = {}
    eng.run({"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": NAME})
    ((_, args),) = eng.rpc.called("instance_start")
    assert args[0]["firmware_state"] == "eJwAAA=="
    others = [c for c in eng.rpc.calls if c[0] != "instance_start"]
    assert "eJwAAA==" not in str(others)


def test_a_guest_with_a_bios_has_no_variables():
    eng = engine(hvparams={"kernel_path": ""})
    stop(eng)
    assert not eng.rpc.called("guest_firmware")


@pytest.mark.parametrize(
    "answer",
    [
        failure("no answer"),
        ["evil !", ""],
        ["AAAB", "evil !"],
        ["A" * 600_000, ""],
        ["", ""],
        ["AAAA\n", ""],
    ],
)
def test_a_bad_answer_keeps_the_copy_of_before(answer):
    eng = engine(guest_firmware=["AAAA", ""])
    stop(eng)
    eng.rpc.script["guest_firmware"] = answer
    stop(eng)
    assert state(eng) == "AAAA"
    lines = [str(entry) for entry in eng.callbacks.entries]
    assert any("could not be saved" in line for line in lines) == (answer != ["", ""])


def test_the_tpm_of_a_guest_is_saved_and_only_its_next_start_has_it():
    eng = engine(TPM, guest_firmware=["", "c2VjcmV0"])
    stop(eng)
    (saved,) = eng.snapshot.instances.values()
    assert (saved.firmware_state, saved.tpm_state) == ("", "c2VjcmV0")
    eng.rpc.script["instance_info"] = {}
    eng.run({"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": NAME})
    ((_, args),) = eng.rpc.called("instance_start")
    assert args[0]["tpm_state"] == "c2VjcmV0"
    others = [c for c in eng.rpc.calls if c[0] != "instance_start"]
    assert "c2VjcmV0" not in str(others)


def rename(eng):
    return eng.run(
        {
            "OP_ID": "OP_INSTANCE_RENAME",
            "instance_name": NAME,
            "new_name": "new.example.com",
            "name_check": False,
            "ip_check": False,
        }
    )


def test_a_rename_takes_a_copy_before_the_files_of_the_old_name_go():
    eng = engine(TPM, "down", guest_firmware=["", "c2VjcmV0"], instance_info={})
    rename(eng)
    (saved,) = eng.snapshot.instances.values()
    assert (saved.name, saved.tpm_state) == ("new.example.com", "c2VjcmV0")


@pytest.mark.parametrize("answer", [failure("no answer"), ["", "evil !"]])
def test_a_rename_without_a_copy_is_refused_as_the_files_would_be_lost(answer):
    eng = engine(TPM, "down", guest_firmware=answer, instance_info={})
    with pytest.raises(errors.OpExecError, match="TPM data could not be saved; as new"):
        rename(eng)
    (record,) = eng.snapshot.instances.values()
    assert record.name == NAME
    assert not eng.rpc.called("file_storage_dir_rename")


def test_an_export_to_ganeti_has_neither_parameters_nor_copies():
    eng = engine(guest_firmware=["QkxPQg==", ""])
    stop(eng)
    exported = config_data.export_config(eng.snapshot, eng.config.header())
    text = str(exported)
    for word in ("firmware", "uefi_code_path", "QkxPQg=="):
        assert word not in text
    assert exported["instances"]

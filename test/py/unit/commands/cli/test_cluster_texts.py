"""``gnt-cluster verify --json``, and the parts of a cluster that are off."""

import json
from types import SimpleNamespace

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.base.constants.daemons import DAEMONS
from ganeti.commands.cluster import info


class _Verifying(FakeMaster):
    """A master whose job 1 submits the jobs 2 and 3."""

    def __init__(self, result):
        super().__init__()
        self.results["OP_CLUSTER_VERIFY_CONFIG"] = True
        self.results["OP_CLUSTER_VERIFY_GROUP"] = result
        self.results["OP_CLUSTER_VERIFY"] = self._verify

    def _verify(self, operation):
        assert operation.error_codes
        names = ("OP_CLUSTER_VERIFY_CONFIG", "OP_CLUSTER_VERIFY_GROUP")
        parameters = ({}, {"group_name": "default"})
        ids = [
            self._SubmitJob([{"OP_ID": name, **given}])
            for name, given in zip(names, parameters, strict=True)
        ]
        return {"jobs": [[True, job_id] for job_id in ids]}


def _verify(result):
    master = _Verifying(result)
    master.messages["OP_CLUSTER_VERIFY_CONFIG"] = [
        "* Verifying cluster config",
        "  - ERROR:ECLUSTERCERT:cluster:None:certificate: expired\nyesterday",
    ]
    master.messages["OP_CLUSTER_VERIFY_GROUP"] = [
        "  - WARNING:ENODESSH:node:n1.tst:cannot reach n2",
        "  - NOTICE: 1 offline node(s) found.",
    ]
    done = commands.run("gnt-cluster verify --json", master)
    return done.code, json.loads(done.out)


def test_findings_are_objects() -> None:
    code, document = _verify(False)
    assert (code, document["success"], document["failed_jobs"]) == (1, False, [])
    assert [tuple(row.values()) for row in document["findings"]] == [
        ("ERROR", "ECLUSTERCERT", "cluster", None, "certificate: expired\nyesterday"),
        ("WARNING", "ENODESSH", "node", "n1.tst", "cannot reach n2"),
    ]
    assert document["notices"] == ["1 offline node(s) found."]


def test_success_is_success_and_a_failed_job_is_not() -> None:
    code, document = _verify(True)
    assert (code, document["success"]) == (0, True)
    code, document = _verify(errors.OpExecError("node n1 is gone"))
    assert (code, document["success"]) == (1, False)
    (failure,) = document["failed_jobs"]
    assert failure["id"] == 3
    assert "node n1 is gone" in failure["error"]


CLUSTER = {
    "default_iallocator": "hail",
    "enabled_user_shutdown": True,
    "maintain_node_health": True,
    "modify_ssh_setup": True,
    "rapi_require_authentication": True,
    "enabled_data_collectors": {"lv": True, "drbd": True},
}


@pytest.mark.parametrize(
    ("changes", "flags", "begin"),
    [
        ({}, (True, None), "job queue (drained; gnt-cluster queue undrain)"),
        ({}, (False, 1_700_000_000), "watcher (paused until 2023-11-14 "),
        ({"default_iallocator": ""}, (False, None), "placement without -n or -I"),
        ({"enabled_user_shutdown": False}, (False, None), "shutdown from inside"),
        ({"maintain_node_health": False}, (False, None), "maintenance of node health"),
        ({"modify_ssh_setup": False}, (False, None), "management of SSH keys"),
        (
            {"enabled_data_collectors": {"lv": False, "drbd": False, "x": True}},
            (False, None),
            "data collectors drbd, lv",
        ),
    ],
)
def test_info_lists_each_part_that_is_off(changes, flags, begin) -> None:
    (text,) = info.parts_off({**CLUSTER, **changes}, *flags)
    assert text.startswith(begin)


def test_daemons_that_are_not_installed_are_parts_that_are_off(tmp_path) -> None:
    (tmp_path / "ganeti-confd").touch()
    absent = info.absent_daemons(str(tmp_path))
    assert "remote API (ganeti-rapi is not part of this installation)" in absent
    assert not any("confd" in text for text in absent)
    for name, _ in info._DAEMONS:
        assert name in DAEMONS
        (tmp_path / name).touch()
    assert info.absent_daemons(str(tmp_path)) == []


def test_a_cluster_with_everything_on_has_no_part_off() -> None:
    assert info.parts_off(CLUSTER, drained=False, pause=None) == []


@pytest.mark.parametrize(("command", "is_shown"), [("", False), ("health", True)])
def test_the_diagnose_command_is_shown_where_one_is_set(command, is_shown) -> None:
    plain = dict.fromkeys(("reserved_lvs", "uid_pool", "enabled_disk_templates"), ())
    document = {**plain, "compression_tools": (), info._DIAGNOSE: command}
    context = SimpleNamespace(
        paths=SimpleNamespace(os_search_path=(), es_search_path=())
    )
    pairs = dict(info._parameters(context, document))
    assert pairs.get("diagnose command") == (command if is_shown else None)
    assert ("diagnose command" in pairs) == is_shown

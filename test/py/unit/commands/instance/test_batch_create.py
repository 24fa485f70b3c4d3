"""gnt-instance batch-create: the request that a file means, and how the jobs ended."""

import json

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster

WEB1 = {
    "instance_name": "web1",
    "mode": "create",
    "disk_template": "file",
    "disks": [{"size": 1024}],
    "nics": [],
    "os_type": "tiny",
}


def run(tmp_path, entries, master, *options):
    (tmp_path / "file").write_text(json.dumps(entries))
    words = ["gnt-instance", "batch-create", *options, str(tmp_path / "file")]
    return commands.run(words, master)


def submitted(master):
    return [args[0][0] for method, args in master.calls if method == "SubmitJob"]


def creating(fake, *names, failed=()):
    """Let the allocation submit one creation per name."""
    fake.results["OP_INSTANCE_CREATE"] = ["n1.tst"]
    jobs = [
        [True, fake._SubmitJob([WEB1 | {"OP_ID": "OP_INSTANCE_CREATE"}])] for _ in names
    ]
    fake.calls.clear()
    result = {"jobs": jobs, "allocatable": list(names), "failed": list(failed)}
    fake.results["OP_INSTANCE_MULTI_ALLOC"] = result


def test_all_instances_are_one_request(tmp_path):
    master = FakeMaster()
    creating(master, "web1", "web2")
    second = WEB1 | {"instance_name": "web2"}
    done = run(tmp_path, [WEB1, second], master, "-I", "hail")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "All instances created successfully."
    (op,) = submitted(master)
    assert (op["OP_ID"], op["iallocator"]) == ("OP_INSTANCE_MULTI_ALLOC", "hail")
    create = {"OP_ID": "OP_INSTANCE_CREATE"}
    assert op["instances"] == [WEB1 | create, second | create]


def test_an_instance_without_a_place_is_an_error_beside_the_others(tmp_path):
    master = FakeMaster()
    creating(master, "web1", failed=["web2"])
    done = run(tmp_path, [WEB1, WEB1 | {"instance_name": "web2"}], master)
    assert done.code == 1
    assert done.err == "Instance web2: the allocator found no nodes\n"
    assert done.out.splitlines()[-1] == "There were 1 errors during the creation."


def test_submission_alone_waits_for_nothing(tmp_path):
    master = FakeMaster()
    creating(master, "web1", failed=["web2"])
    done = run(tmp_path, [WEB1], master, "--submit")
    assert (done.code, done.out, done.err) == (0, "", "JobID: 2\n")


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({}, "wanted a list of objects"),
        ([WEB1, "web2"], "entry 1: wanted an object, found 'web2'"),
        (
            [WEB1 | {"colour": 1, "age": 2}],
            "entry 0: unknown parameters age, colour",
        ),
    ],
)
def test_a_file_without_requests_is_refused(tmp_path, entries, text):
    master = FakeMaster()
    done = run(tmp_path, entries, master)
    assert done.code == 1
    assert text in " ".join(done.err.split())
    assert master.calls == []


def test_a_file_that_is_not_json_is_refused(tmp_path):
    (tmp_path / "file").write_text("{")
    words = ["gnt-instance", "batch-create", str(tmp_path / "file")]
    done = commands.run(words, FakeMaster())
    assert done.code == 1
    assert f"{tmp_path}/file: not JSON" in done.err

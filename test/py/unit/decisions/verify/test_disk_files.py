"""Disk files that nobody knows, and sizes that are not as recorded."""

from fakes import clusters
from ganeti.decisions.verify import Report, storage
from ganeti.model import objects

N1, N2 = clusters.node_uuid(1), clusters.node_uuid(2)
LOCAL = "/srv/ganeti/file-storage/inst1/a.file.disk0"
SHARED = "/srv/ganeti/shared-file-storage/inst1/b.sharedfile.disk0"
MIB = 1 << 20


def disk(uuid, path, kind):
    return objects.Disk(
        uuid=uuid,
        dev_type=kind,
        logical_id=("loop", path),
        size=64,
        serial_no=1,
        iv_name=f"disk/{uuid[-1]}",
        nodes=(N1,) if kind == "file" else (),
    )


def actual(files, *extra):
    snapshot = clusters.snapshot(
        nodes=2,
        extra=[
            disk("d0", LOCAL, "file"),
            disk("d1", SHARED, "sharedfile"),
            clusters.instance(1, disks=["d0", "d1"]),
            *extra,
        ],
        shared_file_storage_dir="/srv/ganeti/shared-file-storage",
    )
    report = Report()
    storage.judge_disk_files(report, snapshot, files)
    return [(f.severity, f.code, f.name, f.text) for f in report.take()]


def test_what_is_recorded_is_fine_shared_files_everywhere():
    files = {LOCAL: 64 * MIB, SHARED: 64 * MIB}
    assert actual({N1: files, N2: {SHARED: 64 * MIB}}) == []


def test_a_file_on_a_node_that_should_not_have_it_is_a_stray():
    ((level, code, node, text),) = actual({N2: {LOCAL: 64 * MIB}})
    assert (level, code, node) == ("ERROR", "ENODEORPHANLV", "node2.example.com")
    assert text.endswith(f"remove it there: rm {LOCAL}")


def test_a_shared_stray_is_found_once():
    stray = f"{SHARED}.old"
    files = {stray: MIB}
    assert [row[2] for row in actual({N1: files, N2: files})] == ["node1.example.com"]


def test_a_shared_stray_may_be_in_the_making_where_there_are_several_groups():
    other = clusters.group(name="other", uuid="00000000-0000-4000-8000-0000000000b0")
    ((level, *_rest),) = actual({N1: {f"{SHARED}.new": MIB}}, other)
    assert level == "WARNING"


def test_sizes_are_compared_and_the_repair_is_named():
    ((level, code, name, text),) = actual({N1: {LOCAL: 96 * MIB}})
    assert (level, code, name) == (
        "WARNING",
        "EINSTANCEFAULTYDISK",
        "inst1.example.com",
    )
    assert "disk/0 has 96 MiB, recorded are 64 MiB" in text
    assert "gnt-cluster repair-disk-sizes inst1.example.com" in text
    ((level, *_rest),) = actual({N1: {LOCAL: 32 * MIB}})
    assert level == "ERROR"

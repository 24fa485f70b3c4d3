"""Verification judges whatever a node answers; it never breaks on it."""

import hypothesis
import pytest
from hypothesis import strategies as st

from fakes import clusters
from fakes.seeds import examples
from ganeti.base.constants import versions
from ganeti.decisions.verify import Report, files, nodes, storage
from ganeti.decisions.verify import instances as where
from ganeti.decisions.verify import node_answer as forms

SNAPSHOT = clusters.snapshot(nodes=2, instances=2)
MIRRORED = clusters.snapshot(
    nodes=2,
    extra=[clusters.drbd_disk("d0", 1, 2), clusters.instance(1, disks=["d0"])],
    enabled_disk_templates=["drbd"],
    volume_group_name="xenvg",
    drbd_usermode_helper="/bin/true",
    reserved_lvs=["a+"],
    ndparams={"exclusive_storage": True},
)
N1, N2 = clusters.node_uuid(1), clusters.node_uuid(2)
EXPECTED = nodes.Expected(1000.0, 1001.0, "192.0.2.100")
GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)
    ),
    max_leaves=6,
)
KEYS = [
    "client-cert",
    "nodelist",
    "node-net-test",
    "master-ip",
    "hypervisor",
    "hvparms",
    "nodesetup",
    "time",
    "oslist",
    "bridges",
    "user-scripts",
    "oob-paths",
    "allowed-file-storage-paths",
    "file-storage-path",
    "shared-file-storage-path",
    "ssh-setup",
    "ssh-clutter",
    "vglist",
    "lvlist",
    "pvlist",
    "exclusive-pvs",
    "drbd-list",
    "drbd-helper",
    "version",
]
VERSION = [versions.PROTOCOL_VERSION, versions.RELEASE_VERSION]


@hypothesis.settings(max_examples=examples(200), deadline=None)
@hypothesis.given(key=st.sampled_from(KEYS), value=GARBAGE)
def test_no_answer_of_a_node_breaks_its_judgement(key, value):
    answer, _ = forms.clean({"version": VERSION, "time": [1000, 0], key: value})
    node = SNAPSHOT.nodes[N1]
    report = Report()
    nodes.judge(report, node, answer, EXPECTED)
    nodes.volume_groups(report, node, answer, "xenvg")
    storage.judge_volumes(report, MIRRORED, node, answer)
    nodes.digests(report, SNAPSHOT, {N1: answer})
    good, wrong = forms.clean(
        {"oslist": [["tiny", "/os", True, "", [], [], [20], False]]}
    )
    assert not wrong
    nodes.operating_systems(report, {N1: "a", N2: "b"}, {N1: answer, N2: good})
    for finding in report.take():
        assert finding.line()
        assert finding.line(error_codes=True)


@hypothesis.settings(max_examples=examples(100), deadline=None)
@hypothesis.given(sums=GARBAGE, other=GARBAGE)
def test_no_checksums_break_the_comparison_of_files(sums, other):
    report = Report()
    answers = {
        uuid: forms.clean({"filelist": item})[0].get("filelist")
        for uuid, item in ((N1, sums), (N2, other))
    }
    files.compare(
        report, SNAPSHOT, answers, vm_only=["a"], candidates_only=["c"], optional=["b"]
    )
    files.missing_everywhere(
        report, ["c"], {uuid: item for uuid, item in answers.items() if item}
    )


@hypothesis.settings(max_examples=examples(100), deadline=None)
@hypothesis.given(rows=GARBAGE)
def test_no_disk_status_breaks_the_judgement_of_an_instance(rows):
    instance = SNAPSHOT.instances[clusters.instance_uuid(1)]
    pairs = forms.disk_rows(rows, 2, None)
    assert len(pairs) == 2
    seen = where.Observations({N1: frozenset()}, {instance.uuid: {N1: pairs}})
    where.judge(Report(), SNAPSHOT, instance, seen, [])


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_answer_is_no_crash(key):
    answer = {"version": VERSION, "time": [1000, 0]}
    answer.pop(key, None)
    nodes.judge(Report(), SNAPSHOT.nodes[N1], forms.clean(answer)[0], EXPECTED)


@hypothesis.settings(max_examples=examples(50), deadline=None)
@hypothesis.given(raw=GARBAGE)
def test_an_answer_that_is_no_object_is_left_out_whole(raw):
    good, wrong = forms.clean(raw)
    assert isinstance(good, dict)
    assert isinstance(raw, dict) or wrong

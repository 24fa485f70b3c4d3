"""The files that nodes share: each difference is named once, with its nodes."""

import msgspec
import pytest

from fakes import clusters
from ganeti.base.constants.misc import V_CLUSTER_VIRT_PATH_PREFIX
from ganeti.decisions.verify import Report, files

ONE, TWO, THREE = (clusters.node_uuid(n) for n in (1, 2, 3))
NAMES = {uuid: f"node{n}.example.com" for n, uuid in enumerate((ONE, TWO, THREE), 1)}
CODE = "ECLUSTERFILECHECK"


def snapshot(**changes):
    """Three nodes, the first is the master; changes apply to the last one."""
    third = clusters.snapshot().nodes[THREE]
    return clusters.snapshot(extra=[msgspec.structs.replace(third, **changes)])


def findings(answers, *, vm_only=(), candidates_only=(), optional=(), **changes):
    report = Report()
    files.compare(
        report,
        snapshot(**changes),
        answers,
        vm_only=vm_only,
        candidates_only=candidates_only,
        optional=optional,
    )
    return [(each.code, each.name, each.text) for each in report.take()]


def everywhere(checksum="a", path="/etc/x", **others):
    """Answers of all nodes; others by the number of the node."""
    sums = dict.fromkeys(NAMES, checksum)
    for uuid, number in zip(NAMES, ["one", "two", "three"], strict=True):
        sums[uuid] = others.get(number, checksum)
    return {uuid: {} if text is None else {path: text} for uuid, text in sums.items()}


def test_equal_files_are_not_mentioned():
    assert findings(everywhere()) == []
    assert findings(everywhere(), optional=["/etc/x"]) == []
    assert findings({}) == []


def test_a_file_that_differs_is_named_with_the_nodes_that_differ_from_the_master():
    text = "file /etc/x found with 2 different checksums (variant 1 on {})"
    one = findings(everywhere(two="b"))
    assert one == [(CODE, None, text.format(NAMES[TWO]))]
    both = findings(everywhere(two="b", three="b"))
    assert both == [(CODE, None, text.format(f"{NAMES[TWO]}, {NAMES[THREE]}"))]
    of_the_master = findings(everywhere(one="b"))
    assert of_the_master == both


def test_each_other_variant_is_counted_by_itself():
    text = "file /etc/x found with 3 different checksums (variant {} on {})"
    assert findings(everywhere(two="b", three="c")) == [
        (CODE, None, text.format(1, NAMES[TWO])),
        (CODE, None, text.format(2, NAMES[THREE])),
    ]


def test_a_missing_file_is_named_with_the_nodes_that_lack_it():
    text = f"file /etc/x is missing from node(s) {NAMES[TWO]}, {NAMES[THREE]}"
    assert findings(everywhere(two=None, three=None)) == [(CODE, None, text)]
    at_master = findings(everywhere(one=None))
    assert at_master == [
        (CODE, None, f"file /etc/x is missing from node(s) {NAMES[ONE]}")
    ]


def test_without_the_masters_file_all_variants_are_named():
    texts = [text for _, _, text in findings(everywhere(one=None, three="b"))][1:]
    text = "file /etc/x found with 2 different checksums (variant {} on {})"
    assert texts == [text.format(1, NAMES[TWO]), text.format(2, NAMES[THREE])]


def test_an_optional_file_is_on_all_nodes_or_on_none():
    some = findings(everywhere(two=None), optional=["/etc/x"])
    text = (
        "file /etc/x is optional, but it must exist on all or no nodes (not found"
        f" on {NAMES[TWO]})"
    )
    assert some == [(CODE, None, text)]
    none = everywhere(one=None, two=None, three=None)
    assert findings(none, optional=["/etc/x"]) == []


def test_a_node_that_answered_nothing_is_named_and_not_compared():
    answers = everywhere() | {TWO: None}
    text = "node did not return file checksum data"
    assert findings(answers) == [("ENODEFILECHECK", NAMES[TWO], text)]


def test_files_of_instances_are_expected_only_where_instances_are():
    answers = everywhere(three=None)
    options = {"vm_only": ["/etc/x"]}
    assert findings(answers, vm_capable=False, **options) == []
    assert len(findings(answers, vm_capable=True, **options)) == 1
    assert findings(everywhere(three="b"), vm_capable=False, **options) == []


def test_a_secret_of_candidates_is_an_error_elsewhere():
    options = {"candidates_only": ["/etc/x"]}
    assert findings(everywhere(three=None), master_candidate=False, **options) == []
    ((code, name, text),) = findings(everywhere(), master_candidate=False, **options)
    assert (code, name) == (CODE, NAMES[THREE])
    assert text.startswith("file /etc/x is a secret of master candidates")
    assert findings(everywhere(), master_candidate=True, **options) == []


def of_the_master(answers, path="/lib/secret", **options):
    reported = findings(answers, candidates_only=[path], **options)
    return [text for code, name, text in reported if (code, name) == (CODE, NAMES[ONE])]


def test_a_secret_that_the_master_lacks_is_copied_from_a_candidate():
    text = (
        "file /lib/secret is missing on the master, which sends it to others; run"
        f" there: ssh {NAMES[TWO]} tar -C / -cf - lib/secret | tar -C / -xpf -"
    )
    path = "/lib/secret"
    assert of_the_master(everywhere(path=path, one=None)) == [text]
    assert of_the_master(everywhere(path=path, one=None, three=None)) == [text]
    # Nothing is to be done at the master if it has the file, or if nobody has it.
    assert of_the_master(everywhere(path=path, two=None)) == []
    nobody = {**everywhere(path=path, one=None, two=None), THREE: {path: "a"}}
    assert of_the_master(nobody, master_candidate=False) == []
    silent = everywhere(path=path) | {ONE: None}
    assert of_the_master(silent) == []
    # It may have none of an optional file, for instance of a store that is not used.
    assert of_the_master(everywhere(path=path, one=None), optional=[path]) == []


def test_no_copy_of_a_secret_is_chosen_if_the_copies_differ():
    (text,) = of_the_master(everywhere(path="/lib/secret", one=None, three="b"))
    assert text.endswith(
        f"; the copies of {NAMES[TWO]}, {NAMES[THREE]} differ: copy the right one there"
    )


def test_paths_are_shown_as_administrators_know_them():
    path = f"{V_CLUSTER_VIRT_PATH_PREFIX}/etc/x"
    ((_code, _name, text),) = findings(everywhere(two="b", path=path))
    assert text.startswith("file /etc/x found")


def test_a_file_that_no_node_has_is_missing_on_all():
    report = Report()
    answers = {ONE: {"/a": "1"}, TWO: {"/b": "1"}}
    files.missing_everywhere(report, ["/d", "/a", "/c", "/b"], answers)
    assert [each.text for each in report.take()] == [
        "file /c is missing on all nodes",
        "file /d is missing on all nodes",
    ]


@pytest.mark.parametrize("answers", [{}, {ONE: {}}])
def test_no_file_counts_as_missing_while_no_node_answers(answers):
    report = Report()
    files.missing_everywhere(report, ["/a"], answers)
    assert report.take() == []

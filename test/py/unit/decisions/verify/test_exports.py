"""Remains beside complete exports in the export directories of nodes."""

from fakes import clusters
from ganeti.decisions.verify import Report, exports

N1, N2 = clusters.node_uuid(1), clusters.node_uuid(2)


def test_remains_are_warnings_with_the_path_to_remove():
    report = Report()
    remains = {N2: {"web1.new": "unfinished", "notes.txt": "foreign"}, N1: {}}
    exports.judge(report, clusters.snapshot(nodes=2), remains)
    foreign, unfinished = report.take()
    for each in (foreign, unfinished):
        assert (each.severity, each.name) == ("WARNING", "node2.example.com")
    assert foreign.text.startswith("/srv/ganeti/export/notes.txt is no export")
    assert unfinished.text.startswith("/srv/ganeti/export/web1.new was not finished")
    assert report.is_clean

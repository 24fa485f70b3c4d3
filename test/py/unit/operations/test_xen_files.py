"""Files of Xen that the nodes of a cluster share."""

import pytest

from fakes import clusters
from ganeti.base import pathutils
from ganeti.operations import ancillary_files

SETTINGS = "/etc/xen/xl.conf"


@pytest.mark.parametrize(
    ("enabled", "is_shared"),
    [(("kvm",), False), (("kvm", "xen-pvm"), True), (("xen-hvm",), True)],
)
def test_settings_of_xl_are_shared_where_xen_is_enabled(tmp_path, enabled, is_shared):
    paths = pathutils.Paths(str(tmp_path), "n1")
    snapshot = clusters.snapshot(enabled_hypervisors=enabled)
    sets = ancillary_files.file_sets(snapshot, paths)
    path = paths.at(SETTINGS)
    assert (path in sets.vm_nodes) is is_shared
    # A node without Xen's package has none.
    assert (path in sets.optional) is is_shared

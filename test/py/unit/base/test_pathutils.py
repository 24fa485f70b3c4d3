"""Where things are on this machine, and on virtual nodes."""

from ganeti.base.pathutils import Paths


def test_a_virtual_node_has_its_own_allocators_before_the_installed_ones():
    real = Paths(root="", hostname="n1").iallocator_search_path
    virtual = Paths(root="/srv/n1", hostname="n1").iallocator_search_path
    assert virtual == (*(f"/srv/n1{path}" for path in real), *real)

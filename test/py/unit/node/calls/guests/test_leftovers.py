"""Files of instances that are gone; the list of instances decides."""

import os

import pytest

from fakes import nodes
from ganeti.node.calls.guests import leftovers
from ganeti.protocols import ssconf

HOUR_S = 3600.0


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path)
    for name in ("instance-disks", "instance-reason"):
        os.makedirs(f"{made.paths.run_dir}/{name}")
    os.makedirs(made.paths.data_dir, exist_ok=True)
    return made


def listing(node, *names):
    ssconf.write(node.paths, {"instance_list": "\n".join(names)})


def link(node, name, target, age_s=0.0):
    path = f"{node.paths.run_dir}/instance-disks/{name}"
    os.symlink(target, path)
    when = node.clock.time() - age_s
    os.utime(path, (when, when), follow_symlinks=False)
    return path


def trail(node, name, age_s=0.0):
    path = f"{node.paths.run_dir}/instance-reason/{name}"
    with open(path, "w") as out:
        out.write("[]")
    when = node.clock.time() - age_s
    os.utime(path, (when, when))
    return path


def test_old_files_of_unknown_instances_go(node, tmp_path):
    listing(node, "web1", "web2")
    old = HOUR_S + 1
    gone = [link(node, "web3:0", str(tmp_path), old), trail(node, "web3", old)]
    kept = [link(node, "web1:0", str(tmp_path), old), trail(node, "web1", old)]
    assert sorted(leftovers.sweep(node)) == sorted(gone)
    assert all(os.path.lexists(path) for path in kept)
    assert leftovers.sweep(node) == []


def test_files_of_a_new_instance_stay_although_the_list_is_behind(node, tmp_path):
    listing(node, "web1")
    link(node, "new1:0", str(tmp_path))
    trail(node, "new1")
    assert leftovers.sweep(node) == []


def test_links_to_nothing_and_trails_of_removed_instances_go_at_once(node, tmp_path):
    listing(node, "web1")
    gone = [link(node, "web3:0", "/nowhere"), trail(node, "web3")]
    link(node, "web3:1", str(tmp_path))
    link(node, "web1:0", "/nowhere")
    trail(node, "web4")
    assert sorted(leftovers.sweep(node, {"web3"})) == sorted(gone)


def test_without_a_list_everything_stays(node, tmp_path):
    link(node, "web3:0", "/nowhere", 2 * HOUR_S)
    trail(node, "web3", 2 * HOUR_S)
    assert leftovers.sweep(node, {"web3"}) == []


def test_an_instance_that_leaves_the_list_takes_its_files_along(node):
    listing(node, "web1", "web3")
    gone, kept = trail(node, "web3"), trail(node, "web1")
    nodes.call(node, "write_ssconf_files", {"instance_list": "web1\n"})
    assert not os.path.exists(gone)
    assert os.path.exists(kept)


def test_with_a_damaged_list_everything_stays(node, caplog):
    link(node, "web1:0", "/nowhere")
    with open(ssconf.SimpleStore(node.paths).path("instance_list"), "wb") as out:
        out.write(b"\xff\xfe")
    assert leftovers.listed(node) is None
    assert leftovers.sweep(node) == []
    assert "cannot read the list of instances" in caplog.text


def test_a_node_that_never_had_an_instance_has_nothing_to_remove(node):
    listing(node)
    for name in ("instance-disks", "instance-reason"):
        os.rmdir(f"{node.paths.run_dir}/{name}")
    assert leftovers.sweep(node) == []


def test_a_file_that_goes_by_itself_is_no_error(node, monkeypatch):
    listing(node)
    path = link(node, "web1:0", "/nowhere")
    assert leftovers._age_s(node, f"{path}.none") == 0.0
    kept = list(leftovers._instance_files(node))
    os.unlink(path)
    monkeypatch.setattr(leftovers, "_instance_files", lambda _node: kept)
    assert leftovers.sweep(node) == []


def variables(node, name):
    path = f"{node.paths.data_dir}/kvm/{name}"
    os.makedirs(path)
    with open(f"{path}/efi-vars.fd", "w") as out:
        out.write("x")
    return path


def test_uefi_variables_go_with_their_instance(node):
    listing(node, "web1")
    kept, gone, young = (variables(node, name) for name in ("web1", "web2", "new1"))
    assert leftovers.sweep(node, removed=["web2"]) == [gone]
    assert os.path.isdir(kept)
    assert os.path.isdir(young)
    assert not os.path.exists(gone)

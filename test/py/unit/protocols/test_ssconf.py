"""ssconf files: written whole, read typed."""

import os
import stat

import pytest

from ganeti.base import errors, pathutils
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.protocols import ssconf


@pytest.fixture
def paths(tmp_path):
    made = Paths(root=str(tmp_path / "n1"), hostname="n1")
    os.makedirs(made.data_dir)
    return made


def test_values_come_back_typed(paths):
    ssconf.write(
        paths,
        {
            "cluster_name": "c1.tst",
            "master_netmask": "32",
            "node_list": "n1\nn2\n",
            "offline_nodes": "",
            "node_primary_ips": "n1 127.0.0.1\nn2 127.0.0.2",
            "node_vm_capable": "n1=True\nn2=False",
            "master_candidates_certs": "u1=AA:BB",
            "maintain_node_health": "False",
            "ssh_ports": "n1=22",
            "hvparams_xen-pvm": "kernel_path=/boot/x",
            "primary_ip_family": "10",
            "uid_pool": "8000-8019\n9100",
        },
    )
    store = ssconf.SimpleStore(paths)
    assert store.cluster_name() == "c1.tst"
    assert store.master_netmask() == 32
    assert store.node_list() == ["n1", "n2"]
    assert store.offline_nodes() == []
    assert store.node_primary_ips() == {"n1": "127.0.0.1", "n2": "127.0.0.2"}
    assert store.node_vm_capable() == {"n1": True, "n2": False}
    assert store.master_candidates_certs() == {"u1": "AA:BB"}
    assert not store.maintain_node_health()
    assert store.ssh_ports() == {"n1": 22}
    assert store.hvparams("xen-pvm") == {"kernel_path": "/boot/x"}
    assert int(store.primary_ip_family()) == 10
    assert store.GetUidPool() == "8000-8019\n9100"


def test_files_end_with_one_newline_and_are_read_only(paths):
    ssconf.write(paths, {"cluster_name": "c1", "offline_nodes": ""})
    path = ssconf.SimpleStore(paths).path("cluster_name")
    assert files.read_file(path) == b"c1\n"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o444
    assert files.read_file(paths.data("ssconf_offline_nodes")) == b""


def test_only_what_is_not_right_is_written(paths, monkeypatch):
    values = {"cluster_name": "c1", "node_list": "n1", "offline_nodes": "n1"}
    ssconf.write(paths, values)
    os.chmod(paths.data("ssconf_offline_nodes"), 0o600)
    written, write_file = [], files.write_file

    def noting(path, data, **options):
        written.append(os.path.basename(path))
        write_file(path, data, **options)

    monkeypatch.setattr(files, "write_file", noting)
    ssconf.write(paths, values | {"node_list": "n1\nn2"})
    assert written == ["ssconf_node_list", "ssconf_offline_nodes"]
    os.unlink(paths.data("ssconf_cluster_name"))
    os.symlink("ssconf_node_list", paths.data("ssconf_cluster_name"))
    ssconf.write(paths, values | {"node_list": "c1"})
    assert written[2:] == ["ssconf_cluster_name", "ssconf_node_list"]
    store = ssconf.SimpleStore(paths)
    assert store.cluster_name() == "c1"
    assert not os.path.islink(store.path("cluster_name"))


def test_an_old_file_that_is_too_large_is_replaced(paths):
    path = paths.data("ssconf_node_list")
    with open(path, "wb") as file:
        file.truncate(files.MAX_READ + 1)
    os.chmod(path, 0o444)
    ssconf.write(paths, {"node_list": "n1"})
    assert ssconf.SimpleStore(paths).node_list() == ["n1"]


@pytest.mark.parametrize(
    "values", [{"nonsense": "x"}, {"node_list": "x" * (ssconf.MAX_SIZE + 1)}]
)
def test_wrong_values_keep_no_other_from_being_written(paths, values):
    (key,) = values
    with pytest.raises(errors.ConfigurationError, match=key):
        ssconf.write(paths, {**values, "cluster_name": "c1"}, dry_run=True)
    assert not os.path.exists(paths.data("ssconf_cluster_name"))
    with pytest.raises(errors.ConfigurationError, match=key):
        ssconf.write(paths, {**values, "cluster_name": "c1"})
    assert ssconf.SimpleStore(paths).cluster_name() == "c1"
    assert not os.path.exists(paths.data(f"ssconf_{key}"))


def test_every_key_has_a_reader(paths):
    store = ssconf.SimpleStore(paths)
    for key in ssconf.KEYS:
        if key.startswith("hvparams_"):
            continue
        name = "GetUidPool" if key == "uid_pool" else key
        assert callable(getattr(store, name)), key


def test_files_that_are_too_large_or_no_text_are_damaged(paths, monkeypatch):
    store = ssconf.SimpleStore(paths)
    files.write_file(store.path("node_list"), b"\xff")
    with pytest.raises(errors.ConfigurationError, match="node_list: wanted UTF-8"):
        store.node_list()
    monkeypatch.setattr(ssconf, "MAX_SIZE", 5)
    files.write_file(store.path("node_list"), b"n1\nn2")
    assert store.node_list() == ["n1", "n2"]
    files.write_file(store.path("node_list"), b"n1\nn2\n")
    with pytest.raises(errors.ConfigurationError, match="node_list: larger than 5"):
        store.node_list()
    assert store.get_or("node_list", "none") == "none"


def test_missing_and_damaged_files_are_named(paths):
    store = ssconf.SimpleStore(paths)
    assert store.master_candidates_certs() == {}
    with pytest.raises(errors.ConfigurationError, match="ssconf_master_node"):
        store.master_node()
    ssconf.write(paths, {"node_primary_ips": "n1-without-address"})
    with pytest.raises(errors.ConfigurationError, match="n1-without-address"):
        store.node_primary_ips()


def test_only_root_can_reach_lock_files(tmp_path):
    paths = pathutils.Paths(str(tmp_path / "n1"), "n1")
    os.makedirs(paths.data_dir)
    ssconf.write(paths, {"cluster_name": "c"})
    locks = [
        os.path.join(top, name)
        for top, _, names in os.walk(tmp_path)
        for name in names
        if name.endswith(".lock")
    ]
    assert locks == [f"{paths.lock_dir}/ganeti-ssconf.lock"]
    assert stat.S_IMODE(os.stat(paths.lock_dir).st_mode) == 0o700
    assert paths.lock_dir.startswith(f"{paths.run_dir}/")

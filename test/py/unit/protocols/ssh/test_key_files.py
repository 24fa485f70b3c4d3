import os
import stat

import paramiko
import pytest

from fakes import clusters
from ganeti.base import errors
from ganeti.model.objects import Update
from ganeti.protocols.ssh import authorized_keys, host_keys, keys


@pytest.mark.parametrize(
    ("kind", "bits"), [("rsa", 1024), ("ecdsa", 384), ("ed25519", None)]
)
def test_generated_keys_are_readable_by_an_ssh_implementation(tmp_path, kind, bits):
    path = str(tmp_path / "key")
    pair = keys.generate(kind, bits, "root@node1")
    keys.save(pair, path)
    loaded = paramiko.PKey.from_path(path)
    assert loaded.get_base64() == keys.body(pair.public)
    assert pair.public.endswith("root@node1\n")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert keys.load(path) == pair
    assert keys.kind_of(pair.public) == kind


def test_saving_other_keys_keeps_the_old_ones_aside(tmp_path):
    path = str(tmp_path / "key")
    old = keys.generate("ed25519")
    keys.save(old, path)
    keys.save(old, path)
    assert len(os.listdir(tmp_path)) == 2
    keys.save(keys.generate("ed25519"), path)
    copies = [name for name in os.listdir(tmp_path) if ".backup-" in name]
    assert len(copies) == 2


@pytest.mark.parametrize(
    ("kind", "bits"), [("dsa", None), ("rsa", 512), ("ecdsa", 300), ("x", None)]
)
def test_keys_that_ssh_servers_refuse_are_not_made(kind, bits):
    with pytest.raises(errors.OpPrereqError, match="SSH key type"):
        keys.generate(kind, bits)


def test_a_private_key_is_not_in_the_repr():
    pair = keys.generate("ed25519")
    assert "PRIVATE" not in repr(pair)


def test_authorized_keys_are_added_once_and_removed_whatever_their_comment(tmp_path):
    path = str(tmp_path / ".ssh" / "authorized_keys")
    first, second = keys.generate("ed25519"), keys.generate("ecdsa")
    assert authorized_keys.add(path, [first.public, second.public]) == 2
    assert authorized_keys.add(path, [f"{first.public.strip()} other comment"]) == 0
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert authorized_keys.remove(path, [f"{first.public.strip()} x"]) == 1
    assert authorized_keys.read(path) == [second.public.strip()]


def test_lines_of_the_administrator_stay(tmp_path):
    path = tmp_path / "authorized_keys"
    other, ours = keys.generate("ed25519").public, keys.generate("ed25519").public
    # One line is not even UTF-8.
    lines = f'# J\xf6rg\nno-pty,from="10.0.0.1" {other}'.encode("latin-1")
    path.write_bytes(lines)
    authorized_keys.add(str(path), [ours, other])
    assert authorized_keys.remove(str(path), [ours]) == 1
    assert path.read_bytes() == lines


def test_public_keys_of_nodes(tmp_path):
    path = str(tmp_path / "ganeti_pub_keys")
    authorized_keys.update_node_keys(
        path, "add", {"u1": ["ssh-rsa A"], "u2": ["ssh-rsa B"]}
    )
    authorized_keys.update_node_keys(path, "add", {"u1": ["ssh-rsa A", "ssh-rsa C"]})
    assert authorized_keys.read_node_keys(path) == {
        "u1": ["ssh-rsa A", "ssh-rsa C"],
        "u2": ["ssh-rsa B"],
    }
    authorized_keys.update_node_keys(path, "replace_or_add", {"u1": ["ssh-rsa D"]})
    authorized_keys.update_node_keys(path, "remove", {"u2": []})
    assert authorized_keys.read_node_keys(path) == {"u1": ["ssh-rsa D"]}
    authorized_keys.update_node_keys(path, "override", {"u3": ["ssh-rsa E"]})
    assert authorized_keys.read_node_keys(path) == {"u3": ["ssh-rsa E"]}
    authorized_keys.update_node_keys(path, "clear", {})
    assert authorized_keys.read_node_keys(path) == {}
    with pytest.raises(errors.SshUpdateError, match="bogus"):
        authorized_keys.update_node_keys(path, "bogus", {})


def test_known_hosts_has_one_alias_for_all_nodes(tmp_path):
    path = str(tmp_path / "known_hosts")
    pair = keys.generate("rsa", 1024, "root@n")
    host_keys.write_known_hosts(path, "cluster1", [pair.public])
    hosts = paramiko.HostKeys(path)
    assert list(hosts) == ["cluster1"]
    assert hosts["cluster1"]["ssh-rsa"].get_base64() == keys.body(pair.public)


def test_known_hosts_has_the_keys_of_each_node_under_its_name_and_the_alias(tmp_path):
    path = str(tmp_path / "known_hosts")
    one, two = (keys.generate("ed25519").public for _ in range(2))
    host_keys.write_known_hosts(path, "cluster1", [one], {"node2": [two], "node1": []})
    lines = [" ".join(line.split()[:2]) for line in (one, two)]
    assert host_keys.read_known_hosts(path) == [
        (("cluster1",), lines[0]),
        (("node2", "cluster1"), lines[1]),
    ]
    assert host_keys.read_known_hosts(str(tmp_path / "none")) == []
    with open(path, "a") as out:
        out.write(
            "# text here too\n|1|aa|bb ssh-rsa AAAA\n@revoked * ssh-rsa AAAA\n\nx\n"
        )
    assert len(host_keys.read_known_hosts(path)) == 2


@pytest.mark.parametrize(
    "name", ["*", "a,b", "a b", "!a", "a\nb ssh-rsa AAAA", "", "?"]
)
def test_no_name_in_known_hosts_can_match_another(name):
    pair = keys.generate("ed25519")
    with pytest.raises(errors.ProgrammerError, match="is not a host name"):
        host_keys.format_known_hosts("cluster1", [], {name: [pair.public]})


def test_host_keys_of_a_node_are_few_and_written_again():
    lines = [keys.generate("ed25519").public for _ in range(host_keys.MAX_KEYS)]
    plain = [" ".join(line.split()[:2]) for line in lines]
    assert host_keys.checked([f"{lines[0].strip()} a b c\n", *lines[1:]]) == tuple(
        plain
    )
    assert host_keys.checked([lines[0], lines[0]]) == (plain[0],)
    assert host_keys.checked([]) == ()
    with pytest.raises(errors.OpPrereqError, match="at most 9 of one node, found 10"):
        host_keys.checked([*lines, lines[0]])


@pytest.mark.parametrize(
    "line",
    [
        "{key}\n{key}",
        "{key}\x0b{key}",
        'command="x" {key}',
        "* {key}",
        "ssh-ed25519 " + "A" * 20000,
        "ssh-ed25519 !!!!",
        "ssh-rsa {body}",
        "ssh-dss AAAA",
        "ssh-ed25519",
        "\n",
    ],
)
def test_a_host_key_of_a_node_is_exactly_one_key(line):
    key = " ".join(keys.generate("ed25519").public.split()[:2])
    with pytest.raises(errors.OpPrereqError, match="SSH public key: wanted"):
        host_keys.checked([line.format(key=key, body=key.split()[1])])


def test_keys_of_a_machine_are_those_of_its_files(tmp_path):
    assert host_keys.own(str(tmp_path)) == ()
    pair = keys.generate("ecdsa", comment="root@machine")
    keys.save(pair, keys.host_key_path(str(tmp_path), "ecdsa"))
    assert host_keys.own(str(tmp_path)) == (" ".join(pair.public.split()[:2]),)
    (tmp_path / "ssh_host_rsa_key.pub").write_text("ssh-rsa AAAA\n")
    with pytest.raises(errors.OpPrereqError):
        host_keys.own(str(tmp_path))


def test_a_new_master_has_the_host_keys_of_the_configuration(tmp_path):
    path = str(tmp_path / "known_hosts")
    snapshot = clusters.snapshot(nodes=2)
    assert not host_keys.refresh(path, snapshot)
    assert not (tmp_path / "known_hosts").exists()
    key = " ".join(keys.generate("ed25519").public.split()[:2])
    node = next(iter(snapshot.nodes.values())).replace(ssh_host_keys=(key,))
    snapshot = snapshot.apply([Update("nodes", node.uuid, node)])
    assert host_keys.refresh(path, snapshot)
    assert (
        (node.name, snapshot.cluster.cluster_name),
        key,
    ) in host_keys.read_known_hosts(path)
    assert not host_keys.refresh(path, snapshot)
    host_keys.write_known_hosts(path, "old", [key])
    assert host_keys.refresh(path, snapshot)

"""OP_CLUSTER_RENEW_CRYPTO: who makes what, and in which order nodes learn of it."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti import errors, pathutils
from ganeti.utils import authority, x509

MASTER = clusters.node_uuid(1)
OTHER = clusters.node_uuid(2)


@pytest.fixture
def machine(tmp_path):
    """A master with a certificate, and the one that its node daemon makes."""
    data = tmp_path / "n1/var/lib/ganeti"
    data.mkdir(parents=True)
    (data / "client.pem").write_text("old")
    (data / "client.pem.tmp").write_text("new")
    return tmp_path / "n1"


def engine_of(machine, **script):
    tokens = {
        "write_ssconf_files": None,
        "node_crypto_tokens": [["ssl", "AA:BB"]],
        **script,
    }
    return Engine(clusters.snapshot(nodes=2), tokens, root=str(machine))


def run(engine, **parameters):
    return engine.run({"OP_ID": "OP_CLUSTER_RENEW_CRYPTO", **parameters})


def test_nodes_know_the_masters_next_certificate_before_it_is_used(machine):
    engine = engine_of(machine)
    seen = []

    def write(_node, args):
        own = (machine / "var/lib/ganeti/client.pem").read_text()
        seen.append((own, args[0]["master_candidates_certs"]))

    engine.rpc.script["write_ssconf_files"] = write
    assert run(engine, node_certificates=True) is None
    assert [own for own, _ in seen] == ["old", "old", "new", "new"]
    assert all(f"{MASTER}-next=AA:BB" in listed for _, listed in seen[:2])
    assert all("-next" not in listed for _, listed in seen[2:])
    assert (machine / "var/lib/ganeti/client.pem").read_text() == "new"
    certs = engine.snapshot.cluster.candidate_certs
    assert certs[MASTER] == "AA:BB"
    assert f"{MASTER}-next" not in certs
    kept = list((machine / "var/backups").glob("client.pem.backup-*"))
    assert [path.read_text() for path in kept] == ["old"]


def test_the_master_issues_certificates_for_keys_of_the_nodes(machine):
    paths = pathutils.Paths(str(machine), "node1")
    issuer = authority.create()
    authority.write(issuer, server_pem=paths.server_pem, key_path=paths.server_key_pem)
    engine = engine_of(machine)
    installed = {}

    def tokens(node, args):
        ((_kind, action, options),) = args[0]
        if action == "request":
            if node == clusters.node_uuid(3):
                return [["ssl", "no request"]]
            return [["ssl", authority.new_request("liar.example.com")[1].decode()]]
        assert action == "install"
        made = x509.parse_certificate(options["certificate"].encode(), node)
        installed[node] = authority.names_of(made)
        return [["ssl", x509.digest(made)]]

    engine = Engine(
        clusters.snapshot(nodes=3),
        SUCCESSFUL_ACTS | {"node_crypto_tokens": tokens},
        root=str(machine),
    )
    with pytest.raises(errors.OpExecError, match=r"node3.*certificate request"):
        run(engine, node_certificates=True)
    names = {uuid: node.name for uuid, node in engine.snapshot.nodes.items()}
    assert installed == {uuid: (uuid, names[uuid]) for uuid in (MASTER, OTHER)}


def test_a_node_that_cannot_be_informed_keeps_the_master_at_its_certificate(machine):
    engine = engine_of(machine, write_ssconf_files=failure("disk full"))
    before = engine.snapshot.cluster.candidate_certs.get(MASTER)
    with pytest.raises(errors.OpExecError, match=r"disk full.*again"):
        run(engine, node_certificates=True)
    assert (machine / "var/lib/ganeti/client.pem").read_text() == "old"
    assert not (machine / "var/lib/ganeti/client.pem.tmp").exists()
    assert engine.snapshot.cluster.candidate_certs.get(MASTER) == before


def test_a_node_that_makes_none_is_named_and_the_others_go_on(machine):
    engine = engine_of(machine)
    engine.rpc.script["node_crypto_tokens"] = lambda node, _request: (
        failure("no entropy") if node == OTHER else [["ssl", "AA:BB"]]
    )
    with pytest.raises(errors.OpExecError, match=r"node2.*no entropy"):
        run(engine, node_certificates=True)
    assert engine.snapshot.cluster.candidate_certs[MASTER] == "AA:BB"


def test_ssh_keys_are_renewed_by_the_master_and_recorded(machine):
    engine = engine_of(machine, node_ssh_keys_renew=None)
    with engine.config.edit("test") as edit:
        edit.update_cluster(modify_ssh_setup=True, ssh_key_type="rsa")
    run(engine, renew_ssh_keys=True, ssh_key_type="ecdsa", ssh_key_bits=384)
    ((node, args),) = engine.rpc.called("node_ssh_keys_renew")
    assert node == MASTER
    assert args[0] == [MASTER, OTHER]
    assert args[4:] == ("rsa", "ecdsa", 384)
    cluster = engine.snapshot.cluster
    assert (cluster.ssh_key_type, cluster.ssh_key_bits) == ("ecdsa", 384)


def test_keys_that_cannot_be_made_are_refused_before_anything_happens(machine):
    engine = engine_of(machine)
    with engine.config.edit("test") as edit:
        edit.update_cluster(modify_ssh_setup=True)
    with pytest.raises(errors.OpPrereqError, match="dsa"):
        run(engine, renew_ssh_keys=True, ssh_key_type="dsa")
    with engine.config.edit("test") as edit:
        edit.update_cluster(modify_ssh_setup=False)
    with pytest.raises(errors.OpPrereqError, match="not managed"):
        run(engine, renew_ssh_keys=True)
    assert not engine.rpc.calls

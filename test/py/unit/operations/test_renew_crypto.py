"""OP_CLUSTER_RENEW_CRYPTO: who makes what, and in which order nodes learn of it."""

import contextlib
import glob
import itertools

import pytest

from fakes import clusters
from fakes.certified import Site
from fakes.engine import Engine
from ganeti.base import errors
from ganeti.base.tls import authority, x509
from ganeti.master.config import topology

MASTER = clusters.node_uuid(1)
OTHER = clusters.node_uuid(2)
PLAIN = clusters.node_uuid(3)
EVERYONE = (MASTER, OTHER, PLAIN)


@pytest.fixture
def site(tmp_path, monkeypatch):
    return Site(tmp_path, monkeypatch)


def digests(site):
    return {uuid: site.digest(uuid) for uuid in EVERYONE}


def assert_all_new(site, before):
    """All certificates are new, recorded, and nothing is in between."""
    after = digests(site)
    assert not set(after.values()) & set(before.values())
    certs = site.engine.snapshot.cluster.candidate_certs
    assert certs == {uuid: after[uuid] for uuid in (MASTER, OTHER)}
    for uuid, node in site.nodes.items():
        assert node.ssconf.master_candidates_certs() == certs
        assert authority.names_of(site.certificate(uuid)) == (uuid, site.names[uuid])


def test_all_nodes_get_new_certificates_and_the_old_are_kept(site):
    before = digests(site)
    site.renew()
    assert_all_new(site, before)
    for uuid, node in site.nodes.items():
        (path,) = glob.glob(f"{node.paths.backup_dir}/client.pem.backup-*")
        assert x509.digest(x509.load_certificate(path)) == before[uuid]


def steps_of(site):
    """Return the number of steps of a whole renewal."""
    site.steps.end_at(None)
    site.renew()
    return site.steps.count


def test_an_end_at_any_step_leaves_all_nodes_reachable_and_can_be_repeated(site):
    """The master daemon ends at a commit or call, or a node daemon while it writes."""
    total = steps_of(site)
    assert total > 60
    for number in range(1, total + 1):
        before = digests(site)
        with site.ending_at(number), contextlib.suppress(errors.OpExecError):
            site.renew()
        where = f"step {number}: {site.steps.kinds[-1:]}"
        site.assert_reachable()
        middle = digests(site)
        site.renew()
        assert_all_new(site, middle), where
        assert before != digests(site)


def test_a_second_end_does_not_lock_the_master_out(site):
    """The second run begins where two certificates are recorded."""
    total = steps_of(site)
    for first, second in zip(
        range(total // 2, total + 1, 2), itertools.cycle(range(1, total, 7))
    ):
        for number in (first, second):
            with site.ending_at(number), contextlib.suppress(errors.OpExecError):
                site.renew()
        site.assert_reachable()
    before = digests(site)
    site.renew()
    assert_all_new(site, before)


@pytest.mark.parametrize("silent", EVERYONE[1:])
def test_a_silent_node_keeps_the_master_at_its_certificate(site, silent):
    before = digests(site)
    site.engine.rpc.silent = {silent}
    with pytest.raises(
        errors.OpExecError, match=rf"{site.names[silent]}.*no answer.*again"
    ):
        site.renew()
    assert site.digest(MASTER) == before[MASTER]
    site.assert_reachable()
    site.engine.rpc.silent = set()
    middle = digests(site)
    site.renew()
    assert_all_new(site, middle)


def test_no_name_in_a_request_of_a_node_is_used(site, monkeypatch):
    actual = authority.new_request
    monkeypatch.setattr(authority, "new_request", lambda _name: actual("liar.example"))
    site.renew()
    for uuid, name in site.names.items():
        assert authority.names_of(site.certificate(uuid)) == (uuid, name)


def test_an_answer_that_is_no_digest_is_refused_by_name(tmp_path):
    engine = Engine(
        clusters.snapshot(nodes=2),
        {
            "write_ssconf_files": None,
            "node_crypto_tokens": [["ssl", f"{clusters.DIGEST}\n{OTHER}=x"]],
        },
        root=str(tmp_path),
    )
    with pytest.raises(errors.OpExecError, match=r"node1.*wanted the digest"):
        engine.run({"OP_ID": "OP_CLUSTER_RENEW_CRYPTO", "node_certificates": True})
    assert not engine.snapshot.cluster.candidate_certs


def test_a_request_that_is_damaged_is_named_and_the_others_go_on(site, monkeypatch):
    run = site.engine.rpc._run

    def damaged(procedure, uuid, args):
        if uuid == PLAIN and "request" in str(args):
            return [["ssl", "no request"]]
        return run(procedure, uuid, args)

    monkeypatch.setattr(site.engine.rpc, "_run", damaged)
    before = digests(site)
    with pytest.raises(errors.OpExecError, match=r"node3.*certificate request"):
        site.renew()
    after = digests(site)
    assert [u for u in EVERYONE if after[u] != before[u]] == [MASTER, OTHER]


def test_a_demoted_or_removed_node_keeps_no_entry(site):
    certs = site.engine.snapshot.cluster.candidate_certs
    for change in ({"master_candidate": False}, None):
        with site.engine.config.edit("test") as edit:
            both = {OTHER: certs[OTHER], f"{OTHER}-next": clusters.DIGEST}
            edit.update_cluster(candidate_certs={MASTER: certs[MASTER], **both})
        if change:
            node = {"node_name": site.names[OTHER], "auto_promote": True}
            site.engine.run({"OP_ID": "OP_NODE_SET_PARAMS", **node, **change})
        else:
            with site.engine.config.edit("test") as edit:
                topology.remove_node(edit, OTHER)
        listed = site.engine.snapshot.cluster.candidate_certs
        assert MASTER in listed
        assert not [key for key in listed if key.startswith(OTHER)]


def test_ssh_keys_are_renewed_by_the_master_and_recorded(tmp_path):
    engine = engine_of(tmp_path, node_ssh_keys_renew=None)
    with engine.config.edit("test") as edit:
        edit.update_cluster(modify_ssh_setup=True, ssh_key_type="rsa")
    run(engine, renew_ssh_keys=True, ssh_key_type="ecdsa", ssh_key_bits=384)
    ((node, args),) = engine.rpc.called("node_ssh_keys_renew")
    assert node == MASTER
    assert args[0] == [MASTER, OTHER]
    assert args[4:] == ("rsa", "ecdsa", 384)
    cluster = engine.snapshot.cluster
    assert (cluster.ssh_key_type, cluster.ssh_key_bits) == ("ecdsa", 384)


def engine_of(directory, **script):
    return Engine(clusters.snapshot(nodes=2), script, root=str(directory))


def run(engine, **parameters):
    return engine.run({"OP_ID": "OP_CLUSTER_RENEW_CRYPTO", **parameters})


def test_keys_that_cannot_be_made_are_refused_before_anything_happens(tmp_path):
    engine = engine_of(tmp_path)
    with engine.config.edit("test") as edit:
        edit.update_cluster(modify_ssh_setup=True)
    with pytest.raises(errors.OpPrereqError, match="dsa"):
        run(engine, renew_ssh_keys=True, ssh_key_type="dsa")
    with engine.config.edit("test") as edit:
        edit.update_cluster(modify_ssh_setup=False)
    with pytest.raises(errors.OpPrereqError, match="not managed"):
        run(engine, renew_ssh_keys=True)
    assert not engine.rpc.calls

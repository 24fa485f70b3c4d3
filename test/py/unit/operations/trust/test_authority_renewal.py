"""A new authority of the cluster: at each step every node accepts every candidate."""

import contextlib
import os
import stat

import pytest

from fakes import clusters
from fakes.certified import Site
from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.tls import authority, x509
from ganeti.protocols.rpc import calls

MASTER, OTHER, PLAIN = EVERYONE = tuple(map(clusters.node_uuid, (1, 2, 3)))


@pytest.fixture
def site(tmp_path, monkeypatch):
    return Site(tmp_path, monkeypatch)


def renew(site):
    site.renew(cluster_certificate=True)


def authorities(site):
    """Return the digests of the authorities that each node trusts, in order."""
    return {u: [x509.digest(each) for each in site.trusted(u)] for u in EVERYONE}


def assert_renewed(site, old):
    """All nodes trust one authority, which is new, and issued all certificates."""
    site.assert_reachable()
    (new,) = {tuple(trusted) for trusted in authorities(site).values()}
    assert len(new) == 1
    assert new[0] not in old
    for uuid, node in site.nodes.items():
        assert x509.is_issued_by(site.certificate(uuid), site.trusted(MASTER)[0])
        assert authority.names_of(site.certificate(uuid)) == (uuid, site.names[uuid])
        for path in (node.paths.server_pem, node.paths.client_pem):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o440
        if uuid == PLAIN:
            continue
        pem = files.read_file(node.paths.server_key_pem)
        assert len(authority.keys_of(pem, uuid)) == 1
        pair = authority.load(
            server_pem=node.paths.server_pem, key_path=node.paths.server_key_pem
        )
        assert pair.digest == new[0]
    listed = site.engine.snapshot.cluster.candidate_certs
    assert listed == {uuid: site.digest(uuid) for uuid in (MASTER, OTHER)}


def test_all_nodes_end_with_the_new_authority_alone(site):
    old = authorities(site)[MASTER]
    renew(site)
    assert_renewed(site, old)


def test_at_each_call_every_node_accepts_every_candidate(site, monkeypatch):
    ask = site.engine.rpc._ask

    def checked(procedure, node, args):
        answer = ask(procedure, node, args)
        for uuid in EVERYONE:
            for caller in (MASTER, OTHER):
                refusal = site.refusal(uuid, caller)
                # The list arrives at one node after the other.
                assert not refusal or procedure == "write_ssconf_files", refusal
        return answer

    monkeypatch.setattr(site.engine.rpc, "_ask", checked)
    renew(site)


@pytest.mark.sampled
def test_an_end_at_any_step_leaves_all_nodes_reachable_and_can_be_repeated(site):
    renew(site)
    site.steps.end_at(None)
    renew(site)
    total = site.steps.count
    assert total > 100
    for number in range(1, total + 1):
        old = authorities(site)[MASTER]
        with site.ending_at(number), contextlib.suppress(errors.OpExecError):
            renew(site)
        site.assert_reachable()
        is_over = old[0] not in authorities(site)[MASTER]
        renew(site)
        assert_renewed(site, [] if is_over else old)


@pytest.mark.parametrize("step", range(2, 12, 2))
def test_another_candidate_finishes_what_a_master_began(site, step):
    """The master dies between two calls; the files of the other one show the step."""
    old = authorities(site)[MASTER]
    site.steps.end_at(None)
    renew(site)
    at = [n for n, kind in enumerate(site.steps.kinds, 1) if kind.startswith("after n")]
    with site.ending_at(at[step * len(at) // 12]):
        renew(site)
    site.become_master(OTHER)
    site.assert_reachable()
    renew(site)
    assert_renewed(site, old)


@pytest.mark.parametrize("silent", [OTHER, PLAIN])
def test_a_silent_node_stops_the_renewal_and_everything_works(site, silent):
    old = authorities(site)[MASTER]
    site.engine.rpc.silent = {silent}
    with pytest.raises(
        errors.OpExecError,
        match=rf"not renewed: node {site.names[silent]}: no answer; .*-certificate again",
    ):
        renew(site)
    site.assert_reachable()
    site.engine.rpc.silent = set()
    renew(site)
    assert_renewed(site, old)


def test_an_offline_node_is_named_with_the_command_that_brings_it_back(site):
    with site.engine.config.edit("test") as edit:
        node = edit.snapshot.nodes[PLAIN]
        edit.update(node.replace(offline=True))
    old = authorities(site)[PLAIN]
    renew(site)
    (line,) = [
        row for row in map(str, site.engine.callbacks.entries) if "offline" in row
    ]
    assert site.names[PLAIN] in line
    assert "not trusted" in line
    assert authorities(site)[PLAIN] == old


def test_a_cluster_with_one_shared_certificate_is_refused(site):
    pair = x509.create_self_signed()
    files.write_file(site.nodes[MASTER].paths.server_pem, pair.pem, mode=0o440)
    with pytest.raises(errors.OpPrereqError, match="share one certificate"):
        renew(site)


def trust(site, *pairs):
    pem = "".join(pair.certificate_pem.decode() for pair in pairs)
    request = [["ssl", "trust", {"authorities": pem}]]
    return site.engine.rpc.call_node(OTHER, calls.node_crypto_tokens(request))


def test_a_node_refuses_authorities_that_would_cut_it_off(site):
    before = authorities(site)
    paths = site.nodes[MASTER].paths
    present = authority.load(server_pem=paths.server_pem, key_path=paths.server_key_pem)
    stranger, other = authority.create(), x509.create_self_signed()
    assert "--readd" in trust(site, stranger).fail_msg
    assert "wanted certificates of authorities" in trust(site, present, other).fail_msg
    assert "no certificate" in trust(site).fail_msg
    assert "wanted at most" in trust(site, *[present] * 80).fail_msg
    trust(site, present, stranger)
    problem = trust(site, stranger).fail_msg
    assert "was issued by none" in problem
    trust(site, present)
    assert authorities(site) == before


def test_verification_advises_a_cluster_whose_nodes_share_one_certificate(site):
    def lines():
        site.engine.run({"OP_ID": "OP_CLUSTER_VERIFY_CONFIG"})
        return [
            row for row in map(str, site.engine.callbacks.entries) if "same on" in row
        ]

    assert lines() == []
    shared = x509.create_self_signed()
    files.write_file(site.nodes[MASTER].paths.server_pem, shared.pem, mode=0o440)
    (line,) = lines()
    assert "WARNING" in line

"""Node certificates: who has the key of the authority, and whom the master believes."""

import threading

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fakes.hostile import HostileNode
from fakes.patience import until
from ganeti.base.clock import SystemClock
from ganeti.base.filesystem import files
from ganeti.base.process import SystemRunner
from ganeti.base.tls import authority, x509
from ganeti.bootstrap import crypto, renew_crypto
from ganeti.protocols.rpc import node_port

NODES = ("node1", "node2", "node3")


@pytest.fixture(scope="module")
def cluster(two_candidates):
    return two_candidates


def data(cluster, node, name):
    return cluster.file(f"/var/lib/ganeti/{name}", node)


def own(cluster, node):
    return x509.load(str(data(cluster, node, "client.pem")))


def uuids(cluster):
    with cluster.luxi() as client:
        return dict(client.call("QueryNodes", [[], ["name", "uuid"], False]))


@pytest.mark.sampled
def test_the_key_of_the_authority_is_on_candidates_only(cluster):
    for node in ("node1", "node2"):
        key = data(cluster, node, "server-key.pem")
        assert key.stat().st_mode & 0o777 == 0o600
    assert not data(cluster, "node3", "server-key.pem").exists()
    for node in NODES:
        text = data(cluster, node, "server.pem").read_text()
        assert "PRIVATE KEY" not in text
        assert text == data(cluster, "node1", "server.pem").read_text()


def test_each_node_has_a_key_and_a_certificate_with_its_uuid(cluster):
    known = uuids(cluster)
    issuer = x509.load_certificate(str(data(cluster, "node1", "server.pem")))
    numbers = set()
    for node in NODES:
        pair = own(cluster, node)
        name = cluster.node(node).name
        assert isinstance(pair.key, ec.EllipticCurvePrivateKey)
        assert pair.key.curve.name == "secp256r1"
        assert authority.names_of(pair.certificate) == (known[name], name)
        assert x509.is_issued_by(pair.certificate, issuer)
        # That of the addition was for one day.
        assert x509.seconds_left(pair.certificate) > 4 * 365 * 86400
        assert not data(cluster, node, "client.pem.key").exists()
        numbers.add(pair.key.private_numbers().private_value)
    assert len(numbers) == len(NODES)


@pytest.fixture
def impostor(cluster):
    """Take the place of node2's daemon, with the files of another node."""
    cluster.check("daemon-util", "stop", "ganeti-noded", node="node2")
    made = []

    def pose(pem):
        made.append(
            HostileNode(str(pem), address=cluster.node("node2").address, port=1811)
        )
        return made[-1]

    yield pose
    for node in made:
        node.close()
    cluster.check("daemon-util", "start", "ganeti-noded", node="node2")


def ask_for_node2(cluster):
    with cluster.luxi() as client:
        ((row,),) = [
            client.call("QueryNodes", [[cluster.node("node2").name], ["mfree"], False])
        ]
    return row


def test_one_node_cannot_pose_as_another_towards_the_master(cluster, impostor):
    assert node_port() == 1811
    liar = impostor(data(cluster, "node3", "client.pem"))
    liar.script["node_info"] = ["boot", [], [{"memory_free": 1, "memory_total": 1}]]
    ask_for_node2(cluster)
    result = cluster.run("gnt-cluster", "verify")
    assert result.failed
    assert liar.calls == []
    assert "does not have the certificate of node" in result.output
    assert "--readd" in result.output


def test_the_same_impostor_with_the_right_key_is_called(cluster, impostor):
    liar = impostor(data(cluster, "node2", "client.pem"))

    def is_called():
        # The first request may end with the connection to the daemon that was here.
        ask_for_node2(cluster)
        return "node_info" in [name for name, _args in liar.calls]

    until("a call of the impostor", is_called)


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_a_renewal_under_load_fails_no_call(cluster):
    cluster.wait_until_clean()
    before = {node: own(cluster, node).digest for node in NODES}
    pids = {
        node: cluster.file("/var/run/ganeti/ganeti-noded.pid", node).read_text()
        for node in NODES
    }
    is_over, failures, counts = threading.Event(), [], []

    def load(_number):
        with cluster.luxi() as client:
            while not is_over.is_set():
                fields = ["name", "mfree", "bootid"]
                answer = client.call("Query", ["node", fields, None])
                counts.append(len(answer["data"]))
                failures.extend(
                    row for row in answer["data"] if any(cell[0] for cell in row)
                )

    threads = [threading.Thread(target=load, args=[i]) for i in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            cluster.check(
                "gnt-cluster", "renew-crypto", "-f", "--new-node-certificates"
            )
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert sum(counts) > 30
    for node in NODES:
        assert own(cluster, node).digest != before[node]
        pid = cluster.file("/var/run/ganeti/ganeti-noded.pid", node).read_text()
        assert pid == pids[node]
    cluster.wait_until_clean()


@pytest.mark.parametrize(("days", "level"), [(20, "WARNING"), (3, "ERROR")])
def test_verify_reports_a_certificate_that_ends_soon(cluster, days, level):
    path = data(cluster, "node3", "client.pem")
    before = path.read_bytes()
    name = cluster.node("node3").name
    pair = authority.issue_with_key(
        crypto.load_authority(cluster.paths()),
        name=name,
        uuid=uuids(cluster)[name],
        serial=1,
        validity_s=days * 86400,
    )
    files.write_file(str(path), pair.pem, mode=0o440)
    try:
        output = cluster.run("gnt-cluster", "verify").output
        (line,) = [line for line in output.splitlines() if "certificate ends" in line]
        assert level in line
        assert name in line
    finally:
        files.write_file(str(path), before, mode=0o440)


def test_promotion_brings_the_key_and_demotion_takes_it(cluster):
    name = cluster.node("node3").name
    key = data(cluster, "node3", "server-key.pem")
    cluster.check("gnt-cluster", "modify", "-C", "3")
    cluster.check("gnt-node", "modify", "-C", "yes", name)
    assert key.read_bytes() == data(cluster, "node1", "server-key.pem").read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600
    cluster.check("gnt-cluster", "modify", "-C", "2")
    cluster.check("gnt-node", "modify", "-C", "no", name)
    assert not key.exists()


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_a_cluster_with_one_shared_certificate_works_until_it_is_renewed(
    cluster, monkeypatch
):
    make_shared(cluster, monkeypatch)
    cluster.check("gnt-cluster", "renew-crypto", "-f", "--new-node-certificates")
    cluster.wait_until_clean()
    for node in NODES:
        assert "PRIVATE KEY" in data(cluster, node, "server.pem").read_text()
        assert not data(cluster, node, "server-key.pem").exists()
    cluster.check("gnt-debug", "delay", "--no-master", "-n", "node3", "0.1")
    cluster.check("gnt-cluster", "renew-crypto", "-f", "--new-cluster-certificate")
    cluster.wait_until_clean()
    test_the_key_of_the_authority_is_on_candidates_only(cluster)
    test_each_node_has_a_key_and_a_certificate_with_its_uuid(cluster)


def make_shared(cluster, monkeypatch):
    """Give the cluster one certificate with its key on all nodes."""
    shared = x509.create_self_signed()

    class Shared:
        key_pem = b"unused"
        certificate_pem = shared.pem

    def write_own(paths, _uuid, now):
        return x509.write_client_certificate(
            paths.client_pem,
            server_pem=paths.server_pem,
            name=paths.hostname,
            serial=int(now),
        )

    with monkeypatch.context() as patch:
        patch.setattr(renew_crypto.authority, "create", Shared)
        patch.setattr(renew_crypto.crypto, "write_node_certificate", write_own)
        patch.setattr(renew_crypto, "_send_certificates", lambda *_args: {})
        options = renew_crypto.RenewOptions(
            cluster_certificate=True, check_host_keys=False
        )
        steps = []
        failed = renew_crypto.renew(
            cluster.paths(),
            SystemRunner(),
            SystemClock(),
            options,
            feedback=steps.append,
        )
    assert failed == []
    for node in ("node1", "node2"):
        data(cluster, node, "server-key.pem").unlink()

"""A new authority while daemons, guests and jobs go on; an offline node returns."""

import threading

import pytest

from fakes.patience import until
from ganeti.base.tls import x509

pytestmark = pytest.mark.daemon
NODES = ("node1", "node2", "node3")
RENEW = ("gnt-cluster", "renew-crypto", "-f", "--new-cluster-certificate")


@pytest.fixture(scope="module")
def cluster(two_candidates):
    return two_candidates


def data(cluster, node, name):
    return cluster.file(f"/var/lib/ganeti/{name}", node)


def authorities(cluster, node):
    path = data(cluster, node, "server.pem")
    return [x509.digest(each) for each in x509.load_certificates(str(path))]


def pids(cluster):
    return {
        (node, name): cluster.file(f"/var/run/ganeti/{name}.pid", node).read_text()
        for node in NODES
        for name in ("ganeti-noded", "ganeti-masterd")
        if cluster.file(f"/var/run/ganeti/{name}.pid", node).exists()
    }


class Load:
    """Clients that submit jobs on all nodes, and query them, until the end."""

    def __init__(self, cluster):
        self._cluster = cluster
        self._is_over = threading.Event()
        self.failures, self.done = [], []
        self._threads = [
            threading.Thread(target=run) for run in (self._submit, self._query)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error):
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _submit(self):
        names = [self._cluster.node(node).name for node in NODES]
        op = {"OP_ID": "OP_TEST_DELAY", "duration": 0.01, "on_nodes": names}
        with self._cluster.luxi() as client:
            while not self._is_over.is_set():
                job = int(client.call("SubmitJob", [[{"reason": [], **op}]]))

                def status(job=job):
                    (row,) = client.call("QueryJobs", [[job], ["status"]])
                    return row[0] if row[0] in ("success", "error") else None

                self.done.append(until(f"job {job}", status))
        self.failures += [status for status in self.done if status != "success"]

    def _query(self):
        with self._cluster.luxi() as client:
            while not self._is_over.is_set():
                answer = client.call("Query", ["node", ["name", "bootid"], None])
                self.failures += [
                    row for row in answer["data"] if any(cell[0] for cell in row)
                ]


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_jobs_go_on_during_the_renewal_and_no_daemon_is_restarted(cluster):
    old, running = authorities(cluster, "node1"), pids(cluster)
    with Load(cluster) as load:
        until("a job before", lambda: load.done)
        cluster.check(*RENEW)
        before = len(load.done)
        until("a job afterwards", lambda: len(load.done) > before)
    assert load.failures == []
    assert pids(cluster) == running
    (new,) = {tuple(authorities(cluster, node)) for node in NODES}
    assert len(new) == 1
    assert new[0] not in old
    issuer = x509.load_certificate(str(data(cluster, "node1", "server.pem")))
    for node in NODES:
        own = x509.load_certificate(str(data(cluster, node, "client.pem")))
        assert x509.is_issued_by(own, issuer)
    cluster.wait_until_clean()


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_a_renewal_cut_short_is_reported_and_finished_later(cluster):
    old = authorities(cluster, "node1")
    cluster.check("daemon-util", "stop", "ganeti-noded", node="node3")
    result = cluster.run(*RENEW)
    assert result.failed
    assert f"node {cluster.node('node3').name}" in result.output
    assert "--new-cluster-certificate again" in result.output
    cluster.check("daemon-util", "start", "ganeti-noded", node="node3")
    assert len(authorities(cluster, "node1")) == 2
    assert "was cut short" in cluster.run("gnt-cluster", "verify").output
    cluster.check("gnt-debug", "delay", "--no-master", "-n", "node3", "0.1")
    # Daemons that start in between keep their term, and everything works.
    for node in ("node1", "node2"):
        cluster.check("daemon-util", "stop", "ganeti-noded", node=node)
        cluster.check("daemon-util", "start", "ganeti-noded", node=node)
    cluster.check(*RENEW)
    for node in NODES:
        (new,) = authorities(cluster, node)
        assert new not in old
    cluster.wait_until_clean()


@pytest.mark.sampled
@pytest.mark.timeout(600)
def test_an_offline_node_is_named_and_returns_with_readd(cluster):
    name = cluster.node("node3").name
    cluster.check("gnt-node", "modify", "-O", "yes", name)
    result = cluster.run(*RENEW)
    assert not result.failed, result.output
    assert f"gnt-node add --readd {name}" in result.output
    result = cluster.run("gnt-node", "modify", "-O", "no", name)
    assert result.failed
    assert "--readd" in result.output
    cluster.check("gnt-node", "add", "--readd", "--no-ssh-key-check", name)
    assert authorities(cluster, "node3") == authorities(cluster, "node1")
    cluster.wait_until_clean()

"""Servers with certificates of their own: which one a client believes."""

import pytest

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.tls import authority, x509
from ganeti.protocols.http import client, contexts, server, tls

UUID = "11111111-2222-4333-8444-555555555555"
OTHER = "99999999-2222-4333-8444-555555555555"


@pytest.fixture
def issuer(tmp_path):
    made = authority.create()
    authority.write(
        made,
        server_pem=str(tmp_path / "server.pem"),
        key_path=str(tmp_path / "server-key.pem"),
    )
    return made


def certify(tmp_path, issuer, name, uuid, serial=5):
    path = str(tmp_path / f"{name}.pem")
    pair = authority.issue_with_key(issuer, name=name, uuid=uuid, serial=serial)
    files.write_file(path, pair.pem)
    return path, pair.digest


@pytest.fixture
def node(tmp_path, issuer):
    """A server with the certificate of node n1 that lets only node m call."""
    path, _digest = certify(tmp_path, issuer, "n1", UUID)
    _path, caller = certify(tmp_path, issuer, "m", OTHER)
    list_path = tmp_path / "list"
    list_path.write_text("1")
    guard = tls.PeerGuard(issuer.digest, str(list_path), lambda: {"m": caller})
    authority_pem = str(tmp_path / "server.pem")
    context = contexts.ReloadedContext(
        lambda: tls.server_context(path, path, guard=guard, authority=authority_pem),
        (path,),
    )
    seen = []

    def app(environ, start):
        seen.append(environ["PATH_INFO"])
        start("200 OK", [("Content-Length", "2")])
        return [b"[]"]

    made = server.Server(("127.0.0.1", 0), app, context=context, threads=2)
    made.port = made.start_serving()
    made.seen = seen
    yield made
    made.stop()


def ask(tmp_path, issuer, port, identity, *, caller="m"):
    credentials = client.Credentials(
        str(tmp_path / f"{caller}.pem"),
        str(tmp_path / "server.pem"),
        issuer.certificate_pem,
    )
    return request(port, identity, credentials)


def request(port, identity, credentials):
    """Return the answer of the server at a port of this machine."""
    sender = client.Client()
    try:
        (answer,) = sender.perform(
            [
                client.Request(
                    address="127.0.0.1",
                    port=port,
                    path="/x",
                    body=b"[]",
                    credentials=credentials,
                    identity=identity,
                    timeout_s=20,
                )
            ]
        )
    finally:
        sender.close()
    return answer


@pytest.mark.parametrize("identity", [UUID, "n1"])
def test_the_node_that_is_meant_is_called(tmp_path, issuer, node, identity):
    assert ask(tmp_path, issuer, node.port, identity).body == b"[]"


def test_another_node_gets_nothing(tmp_path, issuer, node):
    answer = ask(tmp_path, issuer, node.port, OTHER)
    assert f"does not have the certificate of node {OTHER}" in answer.error
    assert f"127.0.0.1:{node.port}" in answer.error
    assert not answer.is_lost
    assert node.seen == []


def test_a_certificate_of_another_authority_is_refused(tmp_path, issuer, node):
    certify(tmp_path, authority.create(), "n1", UUID)
    answer = ask(tmp_path, issuer, node.port, UUID)
    assert "does not have the certificate" in answer.error
    assert node.seen == []


def test_a_node_that_is_no_candidate_may_not_call(tmp_path, issuer, node):
    certify(tmp_path, issuer, "n2", "22222222-2222-4333-8444-555555555555")
    answer = ask(tmp_path, issuer, node.port, UUID, caller="n2")
    assert answer.error
    assert node.seen == []


def test_a_new_certificate_is_used_without_a_restart(tmp_path, issuer, node):
    other = "33333333-2222-4333-8444-555555555555"
    certify(tmp_path, issuer, "n1", other)
    assert ask(tmp_path, issuer, node.port, other).error is None
    assert ask(tmp_path, issuer, node.port, UUID).error is not None


def test_a_damaged_certificate_leaves_the_last_one(tmp_path, issuer, node):
    files.write_file(str(tmp_path / "n1.pem"), b"x")
    assert ask(tmp_path, issuer, node.port, UUID).error is None
    (tmp_path / "n1.pem").unlink()
    assert ask(tmp_path, issuer, node.port, UUID).error is None
    certify(tmp_path, issuer, "n1", UUID, serial=6)
    assert ask(tmp_path, issuer, node.port, UUID).error is None


def test_the_first_context_needs_usable_files(tmp_path):
    path = str(tmp_path / "n1.pem")
    files.write_file(path, b"x")
    with pytest.raises(errors.X509CertError):
        contexts.ReloadedContext(lambda: tls.server_context(path, path), (path,))


def test_a_shared_certificate_is_accepted_from_any_node(tmp_path):
    path = str(tmp_path / "server.pem")
    x509.write_cluster_certificate(path)

    def app(_environ, start):
        start("200 OK", [("Content-Length", "2")])
        return [b"[]"]

    made = server.Server(
        ("127.0.0.1", 0), app, context=tls.server_context(path, path), threads=2
    )
    port = made.start_serving()
    try:
        answer = request(port, UUID, client.Credentials(path, path))
    finally:
        made.stop()
    assert answer.error is None

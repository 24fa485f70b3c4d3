"""Wrong certificates of both sides, with real handshakes: what the other side says.

Each refusal names the certificate or the node, and the command that mends it; no request
is executed.
"""

import datetime as dt

import pytest
from cryptography import x509 as library
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.tls import authority, x509
from ganeti.protocols.http import client, server, tls

NODE, CALLER, THIRD = (f"{n}1111111-2222-4333-8444-555555555555" for n in (1, 2, 3))
DAY = dt.timedelta(days=1)


@pytest.fixture(scope="module")
def issuers():
    return {name: authority.create() for name in ("own", "foreign")}


def pair_of(issuers, uuid, kind="good"):
    """Return a node's key with a certificate of a kind."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = issuers["foreign" if kind == "foreign" else "own"]
    names = [library.DNSName(text) for text in (uuid, "n.example.com")]
    subject = x509.subject_of("n.example.com")
    is_self_signed = kind == "self-signed"
    now = dt.datetime.now(dt.UTC)
    begin, end = {
        "expired": (now - 2 * DAY, now - DAY),
        "early": (now + DAY, now + 2 * DAY),
    }.get(kind, (now - DAY, now + DAY))
    unsigned = (
        library.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if is_self_signed else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(begin)
        .not_valid_after(end)
    )
    if kind != "nameless":
        unsigned = unsigned.add_extension(library.SubjectAlternativeName(names), False)
    signer = key if is_self_signed else issuer.key
    return x509.Pair(key, unsigned.sign(signer, hashes.SHA256()))


class Site:
    """A node daemon's server and a caller, each with certificates of some kind."""

    def __init__(self, folder, issuers):
        self.folder, self.issuers = folder, issuers
        self.seen = []
        self.listed = {}
        self.server_pem = self.write("server", issuers["own"].certificate_pem)
        self.digest = issuers["own"].digest

    def write(self, name, data):
        path = str(self.folder / f"{name}.pem")
        files.write_file(path, data)
        return path

    def serve(self, kind="good", uuid=NODE):
        path = self.write("node", pair_of(self.issuers, uuid, kind).pem)
        self.write("list", b"1")
        guard = tls.PeerGuard(
            self.digest, str(self.folder / "list.pem"), lambda: self.listed
        )
        context = tls.ReloadedContext(
            lambda: tls.server_context(
                path, path, guard=guard, authority=self.server_pem
            ),
            (path,),
        )

        def app(environ, start):
            self.seen.append(environ["PATH_INFO"])
            start("200 OK", [("Content-Length", "2")])
            return [b"[]"]

        self.server = server.Server(("127.0.0.1", 0), app, context=context, threads=2)
        return self.server.start_serving()

    def ask(self, port, kind="good", *, is_listed=True):
        """Call the node with a certificate of a kind; return the answer."""
        own = pair_of(self.issuers, CALLER, kind)
        # Even a caller whose digest is listed needs a certificate that is valid.
        self.listed = {CALLER: own.digest} if is_listed else {THIRD: "AA"}
        credentials = client.Credentials(
            self.write("client", own.pem),
            self.server_pem,
            self.issuers["own"].certificate_pem,
        )
        return request(port, NODE, credentials)


@pytest.fixture
def site(tmp_path, issuers):
    made = Site(tmp_path, issuers)
    yield made
    made.server.stop()


def test_valid_certificates_of_both_sides_are_accepted(site):
    assert site.ask(site.serve()).body == b"[]"


BAD = ("expired", "early", "foreign", "self-signed")


@pytest.mark.parametrize("kind", BAD)
def test_a_caller_with_a_wrong_certificate_is_refused(site, kind, caplog):
    answer = site.ask(site.serve(), kind)
    assert answer.is_refused
    assert not answer.is_lost
    assert site.seen == []
    assert "refuses" in answer.error
    assert str(site.folder / "client.pem") in answer.error
    option = "cluster-certificate" if kind == "expired" else "node-certificates"
    assert f"gnt-cluster renew-crypto --new-{option}" in answer.error
    reason = {
        "expired": "has expired",
        "early": "not yet valid: compare the clocks",
    }.get(kind, "not issued by an authority that this node trusts")
    assert reason in caplog.text
    assert "run gnt-cluster verify on the master" in caplog.text


def test_a_caller_that_is_not_listed_is_refused(site, caplog):
    answer = site.ask(site.serve(), is_listed=False)
    assert answer.is_refused
    assert site.seen == []
    assert "not the certificate of a master candidate" in caplog.text


@pytest.mark.parametrize("kind", [*BAD, "nameless"])
def test_a_node_with_a_wrong_certificate_is_not_called(site, kind):
    answer = site.ask(site.serve(kind))
    assert site.seen == []
    assert not answer.is_lost
    assert NODE in answer.error
    reason = {
        "expired": "has expired",
        "early": "not yet valid",
        "nameless": "subject name",
    }.get(kind, "")
    assert reason in answer.error
    wanted = {
        "early": "compare the clocks",
    }.get(kind, "gnt-node add --readd for it")
    assert wanted in answer.error, answer.error


def test_when_the_certificates_of_both_sides_have_ended_all_are_to_be_renewed(site):
    answer = site.ask(site.serve("expired"), "expired")
    assert f"certificate of node {NODE} cannot be accepted" in answer.error
    assert str(site.folder / "client.pem") in answer.error
    assert "gnt-cluster renew-crypto --new-cluster-certificate" in answer.error
    assert "--readd" not in answer.error


def test_a_node_with_the_certificate_of_another_is_not_called(site):
    answer = site.ask(site.serve(uuid=THIRD))
    assert site.seen == []
    assert f"does not have the certificate of node {NODE}" in answer.error
    assert "gnt-node add --readd" in answer.error


# Servers with certificates of their own: which one a client believes.

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
    context = tls.ReloadedContext(
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
        tls.ReloadedContext(lambda: tls.server_context(path, path), (path,))


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

"""The certificate authority of a cluster, and requests from nodes that lie."""

import pytest
from cryptography import x509 as library
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtensionOID

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.tls import authority, x509

UUID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture(scope="module")
def issuer():
    return authority.create()


def request(key, name="n1", *, signer=None):
    made = (
        library.CertificateSigningRequestBuilder()
        .subject_name(x509.subject_of(name))
        .add_extension(
            library.SubjectAlternativeName([library.DNSName("node9")]), critical=False
        )
        .sign(signer or key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def test_an_authority_is_no_server_and_the_shared_certificate_is_none(issuer):
    certificate = issuer.certificate
    assert authority.is_one(certificate)
    assert certificate.subject.rfc4514_string() == "CN=ganeti.example.com"
    assert not authority.is_one(x509.create_self_signed().certificate)
    made = authority.issue_with_key(issuer, name="n1", uuid=UUID, serial=7)
    assert not authority.is_one(made.certificate)


def test_names_come_from_the_master_not_from_the_request(issuer):
    key = ec.generate_private_key(ec.SECP256R1())
    public = authority.requested_key(request(key, "node9"))
    made = authority.issue(issuer, public, name="n1", uuid=UUID, serial=7)
    assert authority.names_of(made) == (UUID, "n1")
    assert "node9" not in made.subject.rfc4514_string()
    assert x509.is_issued_by(made, issuer.certificate)
    constraints = made.extensions.get_extension_for_class(library.BasicConstraints)
    assert constraints.value.ca is False


def test_a_machine_that_is_being_added_has_its_name_alone(issuer):
    made = authority.issue_with_key(
        issuer, name="n1", uuid=None, serial=7, validity_s=3600
    )
    assert authority.names_of(made.certificate) == ("n1",)
    assert 0 < x509.seconds_left(made.certificate) <= 3600


def with_wrong_signature():
    key = ec.generate_private_key(ec.SECP256R1())
    der = bytearray(
        library.load_pem_x509_csr(request(key).encode()).public_bytes(
            serialization.Encoding.DER
        )
    )
    der[-1] ^= 1
    damaged = library.load_der_x509_csr(bytes(der))
    return damaged.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    "make",
    [
        lambda: "",
        lambda: "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n",
        lambda: "\u20ac" * 100,
        lambda: "x" * 100_000,
        lambda: request(rsa.generate_private_key(65537, 2048)),
        lambda: request(ec.generate_private_key(ec.SECP384R1())),
        with_wrong_signature,
    ],
)
def test_other_requests_are_refused(make):
    with pytest.raises(errors.X509CertError, match="certificate request"):
        authority.requested_key(make())


def test_a_key_of_another_authority_is_noticed(tmp_path, issuer):
    where = {
        "server_pem": str(tmp_path / "server.pem"),
        "key_path": str(tmp_path / "server-key.pem"),
    }
    authority.write(issuer, **where)
    assert authority.load(**where).pem == issuer.pem
    assert (tmp_path / "server-key.pem").stat().st_mode & 0o777 == 0o600
    files.write_file(where["key_path"], authority.create().key_pem)
    with pytest.raises(errors.X509CertError, match=r"not the key of .*server\.pem"):
        authority.load(**where)
    (tmp_path / "server-key.pem").unlink()
    with pytest.raises(errors.X509CertError, match="another master candidate"):
        authority.load(**where)


def test_a_missing_certificate_is_no_authority_and_a_damaged_one_is_named(tmp_path):
    path = str(tmp_path / "server.pem")
    assert not authority.is_used(path)
    files.write_file(path, b"x")
    with pytest.raises(errors.X509CertError, match=r"server\.pem"):
        authority.is_used(path)


def node_pem(issuer, folder, *, uuid=UUID, validity_s=3600):
    pair = authority.issue_with_key(
        issuer, name="n1.example.com", uuid=uuid, serial=1, validity_s=validity_s
    )
    path = folder / "client.pem"
    files.write_file(str(path), pair.pem)
    return str(path)


def test_the_uuid_of_a_node_is_in_its_certificate(issuer, tmp_path):
    assert authority.node_uuid(node_pem(issuer, tmp_path)) == UUID
    assert authority.node_uuid(node_pem(issuer, tmp_path, uuid="")) is None
    assert authority.node_uuid(str(tmp_path / "none.pem")) is None


def test_unreadable_names_of_foreign_software_are_no_uuid(tmp_path):
    """They must not keep a master from its start."""
    pair = x509.create_self_signed()
    names = library.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"x")
    odd = (
        x509.builder(
            pair.certificate.subject,
            pair.certificate.subject,
            pair.certificate.public_key(),
            1,
            3600,
        )
        .add_extension(names, critical=False)
        .sign(pair.key, hashes.SHA256())
    )
    path = tmp_path / "client.pem"
    path.write_bytes(odd.public_bytes(serialization.Encoding.PEM))
    assert authority.node_uuid(str(path)) is None


def test_a_certificate_that_has_ended_is_named_with_the_command(issuer, tmp_path):
    server_pem = str(tmp_path / "server.pem")
    files.write_file(server_pem, issuer.certificate_pem)
    path = node_pem(issuer, tmp_path)
    authority.check_ends(server_pem, path, str(tmp_path / "none.pem"))
    node_pem(issuer, tmp_path, validity_s=-1)
    with pytest.raises(errors.X509CertError, match="--new-cluster-certificate") as info:
        authority.check_ends(server_pem, path)
    assert info.value.args[0] == path


def test_one_valid_authority_of_two_is_enough(issuer, tmp_path):
    path = node_pem(issuer, tmp_path, validity_s=-1)
    with open(path, "ab") as stream:
        stream.write(issuer.certificate_pem)
    authority.check_ends(path)

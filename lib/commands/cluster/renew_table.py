"""The command table row of ``gnt-cluster renew-crypto``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Command, Option


def _file(name: str, dest: str, text: str) -> Option:
    return Option((name,), text, dest=dest, kind="string")


RENEW_CRYPTO: Final = Command(
    "renew-crypto",
    "replace certificates, keys and secrets",
    options=(
        Option(
            ("--new-cluster-certificate",),
            "create a new node daemon server certificate and all client certificates",
            dest="new_cluster_cert",
            default=False,
        ),
        Option(
            ("--new-rapi-certificate",),
            "create a new self-signed RAPI certificate",
            dest="new_rapi_cert",
        ),
        _file("--rapi-certificate", "rapi_cert", "PEM file with key and certificate"),
        Option(
            ("--new-confd-hmac-key",),
            "create a new confd HMAC key",
            dest="new_confd_hmac_key",
            default=False,
        ),
        o.FORCE,
        Option(
            ("--new-cluster-domain-secret",),
            "create a new random cluster domain secret",
            dest="new_cluster_domain_secret",
            default=False,
        ),
        _file(
            "--cluster-domain-secret",
            "cluster_domain_secret",
            "file with the new cluster domain secret",
        ),
        Option(
            ("--new-spice-certificate",),
            "create a new self-signed SPICE certificate and CA",
            dest="new_spice_cert",
        ),
        _file(
            "--spice-certificate", "spice_cert", "PEM file with the SPICE certificate"
        ),
        _file(
            "--spice-ca-certificate",
            "spice_cacert",
            "PEM file with the CA certificate that signed the SPICE certificate",
        ),
        Option(
            ("--new-node-certificates",),
            "create new client certificates on all nodes",
            dest="new_node_cert",
            default=False,
        ),
        Option(
            ("--new-ssh-keys",),
            "create new SSH keys on all nodes",
            dest="new_ssh_keys",
            default=False,
        ),
        Option(
            ("--new-ssh-host-keys",),
            "give each node new SSH host keys of its own",
            dest="new_ssh_host_keys",
            default=False,
        ),
        Option(
            ("--without-master",),
            "run on another master candidate, because the master is lost and the"
            " certificates have ended",
            dest="without_master",
        ),
        Option(
            ("--lost-candidates",),
            "comma-separated names of master candidates that are lost for good: with"
            " --without-master, go on without their copies and mark them offline",
            dest="lost_candidates",
            kind="string",
        ),
        Option(
            ("--no-ssh-key-check",),
            "do not verify the SSH host keys of nodes",
            dest="ssh_key_check",
            sets=False,
            default=True,
        ),
        o.VERBOSE,
        Option(
            ("--ssh-key-bits",),
            "length of the SSH key",
            dest="ssh_key_bits",
            kind="int",
        ),
        Option(
            ("--ssh-key-type",),
            "type of the SSH key",
            dest="ssh_key_type",
            kind="choice",
            choices=("dsa", "ecdsa", "rsa"),
        ),
        *o.PLANNED,
    ),
    run="commands.cluster.renew_crypto:run",
    opcodes=("OP_CLUSTER_RENEW_CRYPTO",),
    exits=((1, "conflicting options, unreadable PEM, declined or failure"),),
)

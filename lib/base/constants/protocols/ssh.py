"""Key types and the members of the SSH set-up messages."""

from typing import Final

SSHS_CLUSTER_NAME: Final = "cluster_name"
SSHS_SSH_HOST_KEY: Final = "ssh_host_key"
SSHS_SSH_ROOT_KEY: Final = "ssh_root_key"
SSHS_SSH_AUTHORIZED_KEYS: Final = "authorized_keys"
SSHS_SSH_PUBLIC_KEYS: Final = "public_keys"
SSHS_SSH_KEY_TYPE: Final = "ssh_key_type"
SSHS_SSH_KEY_BITS: Final = "ssh_key_bits"
SSHS_NODE_DAEMON_CERTIFICATE: Final = "node_daemon_certificate"
SSHS_GENERATE: Final = "generate"
NDS_CLUSTER_NAME: Final = "cluster_name"
NDS_NODE_DAEMON_CERTIFICATE: Final = "node_daemon_certificate"
NDS_HMAC: Final = "hmac_key"
NDS_SSCONF: Final = "ssconf"
NDS_START_NODE_DAEMON: Final = "start_node_daemon"
NDS_NODE_NAME: Final = "node_name"
#: Certificate of a joining node with its key, as PEM.
NDS_NODE_CERTIFICATE: Final = "node_certificate"
CRYPTO_OPTION_CERT_FILE: Final = "cert_file"
CRYPTO_OPTION_SERIAL_NO: Final = "serial_no"
CRYPTO_OPTION_CERTIFICATE: Final = "certificate"
#: Further actions, of clusters whose nodes do not have the key of the authority: a node
#: makes a key and a request, and takes the certificate that the master has issued.
CRYPTO_REQUEST: Final = "request"
CRYPTO_INSTALL: Final = "install"
#: A node takes the certificate with a given digest, which waits in `CRYPTO_WAITING`,
#: into use.
CRYPTO_USE: Final = "use"
CRYPTO_OPTION_DIGEST: Final = "digest"
#: Further type: public SSH host keys of a node, one in each line. A node reports its
#: present keys, makes new ones that wait, or takes these into use.
CRYPTO_TYPE_SSH_HOST: Final = "ssh_host"
CRYPTO_GET: Final = "get"
CRYPTO_MAKE: Final = "make"
#: A node trusts other authorities from now on: those of `CRYPTO_OPTION_AUTHORITIES`,
#: as PEM.
CRYPTO_TRUST: Final = "trust"
CRYPTO_OPTION_AUTHORITIES: Final = "authorities"
#: Suffix of the file in which the next certificate of a node waits.
CRYPTO_WAITING: Final = ".tmp"
#: Suffix of a candidate's uuid in the list of callers while both its current and its
#: next certificate are valid.
CRYPTO_NEXT: Final = "-next"

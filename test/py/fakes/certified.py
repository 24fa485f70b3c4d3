"""Nodes with certificates on real files, which refuse each other as TLS would.

A call arrives only if the node lists the certificate of the master, each side trusts
the issuer of the other's certificate, and the node has the UUID that the master wants.
Steps are counted, so that a test can end the master or a node at each of them.
"""

import contextlib
import dataclasses
import functools
import os

from cryptography import x509 as library
from cryptography.hazmat.primitives.asymmetric import ec

from fakes import clusters, nodes
from fakes.engine import Engine
from fakes.rpc import FakeRunner, failure
from fakes.store import FakeStore
from ganeti.base.filesystem import files
from ganeti.base.tls import authority, x509
from ganeti.decisions.quorum import Term
from ganeti.master import config
from ganeti.node import calls as backend
from ganeti.node.calls.membership.master_term import TermGuard
from ganeti.protocols import ssconf
from ganeti.protocols.rpc import PROCEDURES

#: Procedures that are those of real nodes; others succeed.
_REAL = ("node_crypto_tokens", "write_ssconf_files", "upload_file")
TERM = Term(7, clusters.node_uuid(1))


class Ended(BaseException):
    """The end of a process in place of a step."""


class Steps:
    """The steps of all processes, counted; one of them is the last of its process."""

    def __init__(self):
        self.count, self.last, self.kinds = 0, None, []

    def take(self, kind):
        self.count += 1
        self.kinds.append(kind)
        if self.count == self.last:
            self.last = None
            raise Ended(kind)

    def end_at(self, number):
        self.count, self.last, self.kinds = 0, number, []


class SteppedStore(FakeStore):
    """A store whose process may end before and after each commit."""

    def __init__(self, start, steps):
        super().__init__(start)
        self.steps = steps

    def _take(self, changes, snapshot):
        if changes:
            self.steps.take("before a commit")
        super()._take(changes, snapshot)
        if changes:
            self.steps.take("after a commit")


class Runner(FakeRunner):
    """Calls of the master, which the nodes check; see the module."""

    def __init__(self, site):
        super().__init__(lambda: site.engine.snapshot)
        self.site = site
        self.silent = set()

    def _ask(self, procedure, node, args):
        self.site.steps.take(f"before {procedure}")
        self.script = {procedure: lambda uuid, given: self._run(procedure, uuid, given)}
        answer = super()._ask(procedure, node, args)
        self.site.steps.take(f"after {procedure}")
        return answer

    def _run(self, procedure, uuid, args):
        if uuid in self.silent:
            return failure("no answer", is_lost=True)
        problem = self.site.refusal(uuid)
        if problem:
            return failure(problem, refused=True)
        if procedure not in _REAL:
            return PROCEDURES[procedure].answer
        try:
            return backend.call(self.site.nodes[uuid], procedure, list(args))
        except Ended:
            return failure("the node daemon ended", is_lost=True)
        except Exception as err:  # noqa: BLE001 - as the node daemon does
            return failure(str(err))


class Site:
    """A cluster of three nodes, of which the third is not a master candidate."""

    def __init__(self, directory, monkeypatch):
        # For speed: these files need not survive a power cut, and RSA keys are slow.
        monkeypatch.setattr(os, "fsync", lambda _fd: None)
        key = functools.partial(ec.generate_private_key, ec.SECP256R1())
        monkeypatch.setattr(x509, "new_rsa_key", key)
        self.steps = Steps()
        extra = [clusters.node(3, master_candidate=False)]
        start = clusters.snapshot(nodes=2, extra=extra)
        self.names = {uuid: node.name for uuid, node in start.nodes.items()}
        self.nodes = {
            uuid: nodes.make_node(directory, name) for uuid, name in self.names.items()
        }
        self.master = clusters.node_uuid(1)
        self.engine = Engine(start, root=f"{directory}/{self.names[self.master]}")
        self.engine.store = SteppedStore(start, self.steps)
        self.engine.config = config.Config(self.engine.store, self.engine.clock)
        self.engine.rpc = Runner(self)
        self._make_certificates()
        for uuid, node in self.nodes.items():
            guard = self.term_guard(uuid)
            guard.check(TERM)
            self.nodes[uuid] = dataclasses.replace(node, terms=guard)
        self._count_files(monkeypatch)

    def _make_certificates(self):
        issuer = authority.create()
        digests = {}
        for uuid, node in self.nodes.items():
            os.makedirs(node.paths.data_dir, exist_ok=True)
            os.makedirs(node.paths.lock_dir, exist_ok=True)
            files.write_file(node.paths.server_pem, issuer.certificate_pem, mode=0o440)
            name = self.names[uuid]
            own = authority.issue_with_key(issuer, name=name, uuid=uuid, serial=1)
            files.write_file(node.paths.client_pem, own.pem, mode=0o440)
            if self.engine.snapshot.nodes[uuid].master_candidate:
                digests[uuid] = own.digest
                key = node.paths.server_key_pem
                files.write_file(key, issuer.key_pem, mode=authority.KEY_MODE)
        with self.engine.config.edit("test") as edit:
            edit.update_cluster(candidate_certs=digests)
        for node in self.nodes.values():
            ssconf.write(node.paths, self.listed())

    def term_guard(self, uuid):
        """Return the guard of a node whose daemon was just started."""
        digests = map(x509.digest, self.trusted(uuid))
        return TermGuard(self.nodes[uuid].paths.data("term"), *digests)

    def listed(self):
        """Return the ssconf file of the callers as the configuration has it."""
        values = config.ssconf_values(self.engine.snapshot)
        return {"master_candidates_certs": values["master_candidates_certs"]}

    def _count_files(self, monkeypatch):
        """Count the changes of files that nodes make."""
        for name in ("write_file", "remove_file"):
            actual = getattr(files, name)

            def stepped(*args, actual=actual, name=name, **options):
                self.steps.take(f"before {name} {args[0]}")
                result = actual(*args, **options)
                self.steps.take(f"after {name} {args[0]}")
                return result

            monkeypatch.setattr(files, name, stepped)

    def renew(self, **parameters):
        """Run the opcode."""
        given = parameters or {"node_certificates": True}
        return self.engine.run({"OP_ID": "OP_CLUSTER_RENEW_CRYPTO", **given})

    def become_master(self, uuid):
        """Go on with another candidate as master."""
        with self.engine.config.edit("test") as edit:
            edit.update_cluster(master_node=uuid)
        self.master = uuid
        self.engine.root = self.nodes[uuid].paths.root

    def certificate(self, uuid):
        """Return the certificate that a node presents."""
        return x509.load_certificate(self.nodes[uuid].paths.client_pem)

    def digest(self, uuid):
        return x509.digest(self.certificate(uuid))

    def trusted(self, uuid):
        """Return the authorities that a node trusts."""
        return x509.load_certificates(self.nodes[uuid].paths.server_pem)

    def refusal(self, uuid, caller=None):
        """Return why a call of a candidate, or of the master, to a node fails."""
        caller = caller or self.master
        return (
            _distrust(self.certificate(caller), self.trusted(uuid), "caller")
            or _distrust(self.certificate(uuid), self.trusted(caller), "node")
            or self._unlisted(uuid, caller)
            or self._misnamed(uuid)
        )

    def _unlisted(self, uuid, caller):
        listed = self.nodes[uuid].ssconf.master_candidates_certs()
        return "" if self.digest(caller) in listed.values() else "caller not listed"

    def _misnamed(self, uuid):
        names = authority.names_of(self.certificate(uuid))
        return "" if uuid in names else f"node has the certificate of {names}"

    def candidates(self):
        return [u for u, n in self.engine.snapshot.nodes.items() if n.master_candidate]

    def distribute(self):
        """Do what the master daemon does after a restart: send the list."""
        for uuid, node in self.nodes.items():
            assert not self.refusal(uuid), self.refusal(uuid)
            ssconf.write(node.paths, self.listed())

    def assert_reachable(self):
        """Every candidate could call every node, now or as master.

        A node whose daemon is started now knows its master term.
        """
        self.distribute()
        for uuid, node in self.nodes.items():
            guard = self.term_guard(uuid)
            assert guard.seen == TERM, uuid
            self.nodes[uuid] = dataclasses.replace(node, terms=guard)
            for caller in self.candidates():
                assert not self.refusal(uuid, caller), (uuid, caller)

    @contextlib.contextmanager
    def ending_at(self, number):
        """End a process at a step, then start it again."""
        self.steps.end_at(number)
        with contextlib.suppress(Ended):
            yield
        self.steps.end_at(None)


def _distrust(certificate, trusted, who):
    for issuer in trusted:
        with contextlib.suppress(Exception):
            certificate.verify_directly_issued_by(issuer)
            return ""
    assert isinstance(certificate, library.Certificate)
    return f"the issuer of the {who}'s certificate is not trusted"

"""Migration of KVM guests, with the answers of the emulator scripted."""

import pytest

from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.node.hypervisor.kvm import files
from ganeti.node.hypervisor.kvm.moving import sending


class Emulator:
    """Answers QMP commands."""

    def __init__(self, **answers):
        self.answers = answers

    def __call__(self, _path, _name):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return None

    def execute(self, command):
        return self.answers[command.replace("-", "_")]


def state(status):
    return {"status": status, "running": status == "running"}


@pytest.fixture
def guest():
    return files.Files(Paths(root="/nonexistent", hostname="n1"), "web1")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"status": "active"}, "running"),
        ({"status": "pre-switchover"}, "finish-migrate"),
        ({"status": "completed"}, "postmigrate"),
        ({}, "postmigrate"),
    ],
)
def test_a_second_migration_names_the_cleanup(monkeypatch, guest, sent, status):
    emulator = Emulator(query_migrate=sent, query_status=state(status))
    monkeypatch.setattr(sending, "Qmp", emulator)
    with pytest.raises(errors.HypervisorError, match="migrate --cleanup web1"):
        sending.check_idle(guest)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({}, "running"),
        ({"status": "failed"}, "running"),
        ({"status": "cancelled"}, "running"),
        ({}, "paused"),
        # It came here by a migration from there.
        ({"status": "completed"}, "running"),
        ({"status": "completed"}, "paused"),
        # Since QEMU 8.2: it has suspended itself.
        ({"status": "completed"}, "suspended"),
    ],
)
def test_a_guest_without_a_migration_may_migrate(monkeypatch, guest, sent, status):
    emulator = Emulator(query_migrate=sent, query_status=state(status))
    monkeypatch.setattr(sending, "Qmp", emulator)
    sending.check_idle(guest)

"""An export for Ganeti leaves SSH host keys out, and names nodes it cannot know."""

from fakes import clusters
from ganeti.objects import Update
from ganeti.tools import old_config


def test_recorded_host_keys_are_left_out_and_foreign_ones_named():
    snapshot = clusters.snapshot(nodes=3)
    shared = f"ssh-rsa {snapshot.cluster.rsahostkeypub}"
    keys = ((shared, "ssh-ed25519 A"), ("ssh-ed25519 B",), ())
    nodes = sorted(snapshot.nodes.values(), key=lambda node: node.name)
    changed = snapshot.apply(
        Update("nodes", node.uuid, node.replace(ssh_host_keys=own))
        for node, own in zip(nodes, keys, strict=True)
    )
    plain, lost = old_config.without_extensions(changed)
    assert lost == ["node node2.example.com: SSH host keys of its own"]
    assert dict(plain.nodes) == dict(snapshot.nodes)

"""URIs of disks as options of the emulator's block drivers."""

import pytest

from ganeti.base import errors
from ganeti.node.hypervisor.kvm.devices import disks_and_nics


def inet(host, port):
    return {"type": "inet", "host": host, "port": port}


def unix(path):
    return {"type": "unix", "path": path}


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        (
            "nbd+unix:///?socket=/run/v1.socket",
            {"driver": "nbd", "server": unix("/run/v1.socket")},
        ),
        (
            "nbd://[2001:db8::1]:7/disks/v%201",
            {
                "driver": "nbd",
                "server": inet("2001:db8::1", "7"),
                "export": "disks/v 1",
            },
        ),
        (
            "nbd://h/v1",
            {"driver": "nbd", "server": inet("h", "10809"), "export": "v1"},
        ),
        (
            "gluster://h/gv0/ganeti/x.0",
            {
                "driver": "gluster",
                "volume": "gv0",
                "path": "ganeti/x.0",
                "server": [inet("h", "24007")],
            },
        ),
        (
            "gluster+unix:///gv0/x?socket=/run/g",
            {
                "driver": "gluster",
                "volume": "gv0",
                "path": "x",
                "server": [unix("/run/g")],
            },
        ),
        (
            "iscsi://h:99/iqn.2001-04.com.example:a/3",
            {
                "driver": "iscsi",
                "transport": "tcp",
                "portal": "h:99",
                "target": "iqn.2001-04.com.example:a",
                "lun": 3,
            },
        ),
        ("rbd:rbd/v1", {"driver": "rbd", "pool": "rbd", "image": "v1"}),
        (
            r"rbd:p/space/v\:1@s:id=admin:conf=/etc/ceph/a.conf",
            {
                "driver": "rbd",
                "pool": "p",
                "namespace": "space",
                "image": "v:1",
                "snapshot": "s",
                "user": "admin",
                "conf": "/etc/ceph/a.conf",
            },
        ),
        (
            "https://h/image.raw",
            {"driver": "https", "url": "https://h/image.raw"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_options_name_what_the_uri_names(uri, options):
    assert disks_and_nics.block_options(uri) == options


@pytest.mark.parametrize(
    "uri",
    [
        *("/dev/sda", "file:/etc/shadow", "json:{}", "", "nbd+unix:///", "nbd:///v1"),
        *("nbd+rdma://h/v1", "nbd://h:port/v1", "gluster://h/gv0", "gluster:///gv0/x"),
        *("iscsi://h/target", "iscsi://h/t/lun", "rbd:v1", "rbd:a/b/c/d", "rbd:"),
        *("rbd:p/v:secret=x", "nbd+unix:///?socket"),
    ],
)
def test_other_uris_are_refused(uri):
    with pytest.raises(errors.HypervisorError, match="URI "):
        disks_and_nics.block_options(uri)

"""Servers that tests of several packages share."""

import pytest

from fakes.etcd_servers import EtcdServers


@pytest.fixture(scope="session")
def etcd(tmp_path_factory):
    """One real server of etcd for all tests; each takes a prefix of its own."""
    servers = EtcdServers(tmp_path_factory.mktemp("etcd"))
    try:
        yield servers.start()
    finally:
        servers.close()

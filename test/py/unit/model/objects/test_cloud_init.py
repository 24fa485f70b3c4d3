"""The files of a cloud-init seed."""

import json

from ganeti.model.objects import cloud_init

KEY = "ssh-ed25519 AAAA me"


def files(**params):
    given = {f"cloud-init-{name.replace('_', '-')}": v for name, v in params.items()}
    return cloud_init.files("web1.example.com", "u1", {"motd": "x", **given})


def test_without_parameters_there_is_no_seed():
    assert files() == {}


def test_a_key_is_enough():
    made = files(ssh_key=f"{KEY}\n\n{KEY}2\n")
    assert sorted(made) == ["meta-data", "user-data"]
    assert json.loads(made["meta-data"]) == {
        "instance-id": "u1",
        "local-hostname": "web1.example.com",
        "public-keys": [KEY, f"{KEY}2"],
    }
    assert made["user-data"] == "#cloud-config\n{}\n"


def test_own_files_replace_the_defaults():
    made = files(user_data="#!/bin/sh\n", network_config="version: 2\n")
    assert made["user-data"] == "#!/bin/sh\n"
    assert made["network-config"] == "version: 2\n"
    assert "public-keys" not in made["meta-data"]
    assert files(meta_data="a: b\n")["meta-data"] == "a: b\n"

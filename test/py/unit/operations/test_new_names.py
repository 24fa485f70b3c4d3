"""A new name of an instance: its address is asked only if wanted, and must be silent."""

import copy

import pytest

from fakes import clusters
from fakes.engine import Engine, creation
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.base import errors


def engine():
    """Return an engine whose policy allows instances without NICs."""
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["minmax"][0]["min"]["nic-count"] = 0
    policy["disk-templates"] = ["file"]
    answers = {
        **SUCCESSFUL_ACTS,
        "node_info": ["boot", [], [{"memory_free": 4096, "hv_version": "7.2"}]],
        "instance_info": {},
        "blockdev_assemble": ["/dev/x", "/link", None],
        "instance_list": [],
        "hooks_runner": [],
    }
    return Engine(clusters.snapshot(ipolicy=policy), answers)


def refused(eng, request, text):
    before = eng.snapshot
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(request)
    assert eng.snapshot is before


def renaming(*, dead=(), **changes):
    """Return an engine with a stopped instance, and the request to rename it."""
    eng = engine()
    eng.run(creation(start=False))
    eng.hosts["web2"] = eng.hosts["web2.example.com"] = (
        "web2.example.com",
        ["198.51.100.7"],
    )
    eng.dead |= set(dead)
    eng.asked_addresses.clear()
    request = {"OP_ID": "OP_INSTANCE_RENAME", "instance_name": "web1"}
    return eng, request | {"new_name": "web2.example.com"} | changes


def test_an_address_that_answers_refuses_a_new_name():
    eng, request = renaming(name_check=True, ip_check=True)
    refused(eng, request, "address 198.51.100.7 is in use")
    assert eng.asked_addresses == ["198.51.100.7"]


def test_a_silent_address_permits_a_new_name():
    checks = {"name_check": True, "ip_check": True}
    eng, request = renaming(dead=["198.51.100.7"], **checks)
    assert eng.run(request) == "web2.example.com"
    assert eng.asked_addresses == ["198.51.100.7"]


def test_an_address_is_not_asked_unless_wanted():
    eng, request = renaming(name_check=True, ip_check=False)
    assert eng.run(request) == "web2.example.com"
    assert eng.asked_addresses == []
    eng, request = renaming(name_check=False, ip_check=True)
    refused(eng, request, "needs the name to be checked")


def test_the_name_of_another_instance_is_refused():
    eng, request = renaming(new_name="web3.example.com")
    eng.run(creation(start=False, instance_name="web3.example.com"))
    refused(eng, request, "web3.example.com: (already exists|exists already)")


UUID = "c0ffee00-1234-4abc-8def-0123456789ab"


def test_a_name_that_could_be_the_uuid_of_another_object_is_refused():
    eng, request = renaming(new_name=UUID.upper())
    refused(eng, request, f"instance {UUID}: a name must not look like a uuid")
    request = creation(start=False, instance_name=UUID)
    refused(eng, request, f"instance {UUID}: a name must not look like a uuid")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("web1", "from now on, web1 is this one alone"),
        ("web1.other.example", "from now on, web1 is ambiguous"),
        ("web11.example.com", ""),
    ],
)
def test_a_name_with_the_short_form_of_another_is_a_warning(name, text):
    eng = engine()
    eng.run(creation(start=False))
    eng.run(creation(start=False, instance_name=name))
    log = eng.callbacks.text()
    assert ("web1.example.com can be called web1, too" in log) is bool(text)
    assert text in log


def test_a_rename_between_forms_of_the_own_name_is_no_warning():
    eng, request = renaming(name_check=False, ip_check=False, new_name="web1.tst")
    eng.run(request)
    assert "can be called" not in eng.callbacks.text()

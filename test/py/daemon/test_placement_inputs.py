"""Bad requests and cluster descriptions, given to the placement programs of a node."""

import copy
import json
import pathlib

import pytest

from fakes import placement

pytestmark = pytest.mark.daemon
KITE = pathlib.Path(__file__).parents[2] / "data" / "htools" / "kite.data"
NODES = {"n1": placement.node(), "n2": placement.node()}


def request():
    return copy.deepcopy(placement.request(NODES, placement.allocation()))


def hail(vcluster, tmp_path, data):
    path = tmp_path / "request.json"
    path.write_text(json.dumps(data))
    return vcluster.run("hail", str(path))


def refused(result, *words):
    assert result.code == 1
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.output


def test_a_complete_request_is_answered(vcluster, tmp_path):
    result = hail(vcluster, tmp_path, request())
    assert json.loads(result.stdout)["success"] is True


def test_a_cluster_policy_without_ranges_has_the_usual_ones(vcluster, tmp_path):
    data = request()
    policy = data["nodegroups"]["g-0"]["ipolicy"]
    data["ipolicy"] = {k: v for k, v in policy.items() if k != "minmax"}
    result = hail(vcluster, tmp_path, data)
    assert json.loads(result.stdout)["success"] is True


def test_an_instance_that_is_there_may_be_placed_again(vcluster, tmp_path):
    data = request()
    name = data["request"]["name"]
    data["instances"] = {name: placement.instance(nodes=["n1", "n2"])}
    result = hail(vcluster, tmp_path, data)
    assert json.loads(result.stdout)["success"] is True


def test_a_group_policy_without_ranges_is_refused(vcluster, tmp_path):
    data = request()
    del data["nodegroups"]["g-0"]["ipolicy"]["minmax"]
    refused(hail(vcluster, tmp_path, data), "nodegroups.g-0.ipolicy", "minmax")


def described(vcluster, tmp_path, text):
    path = tmp_path / "cluster.data"
    path.write_text(text)
    return vcluster.run("hbal", "-t", str(path))


def test_a_description_with_a_name_twice_is_refused(vcluster, tmp_path):
    text = KITE.read_text().replace("kite2.lab.test|16384", "kite1.lab.test|16384", 1)
    result = described(vcluster, tmp_path, text)
    refused(result, "cluster.data, line 4", "'kite1.lab.test' is already in line 3")


def test_a_description_with_an_instance_twice_and_no_tags_is_read(vcluster, tmp_path):
    groups, nodes, instances = KITE.read_text().split("\n\n")[:3]
    twice = f"{instances}\n{instances.splitlines()[0]}"
    text = f"{groups}\n\n{nodes}\n\n{twice}\n\n"
    result = described(vcluster, tmp_path, text)
    assert not result.failed, result.output
    assert "Loaded 4 nodes, 7 instances" in result.output


def test_a_description_with_too_few_sections_is_refused(vcluster, tmp_path):
    two = "\n\n".join(KITE.read_text().split("\n\n")[:2]) + "\n"
    refused(described(vcluster, tmp_path, two), "cluster.data", "sections")


def test_a_description_of_the_cluster_can_be_read_again(vcluster, tmp_path):
    """The file of hscan has the nodes and a policy per group."""
    result = vcluster.run("hscan", "-L", "-d", str(tmp_path))
    assert not result.failed, result.output
    (written,) = tmp_path.glob("*.data")
    assert not vcluster.run("hbal", "-t", str(written)).failed

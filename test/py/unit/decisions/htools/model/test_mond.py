"""Utilisation as monitoring daemons report it."""

import pathlib

import pytest

from ganeti.decisions.htools.model import mond, text
from ganeti.decisions.htools.model.cluster import Cluster, DataError
from ganeti.decisions.htools.state import node_state

KITE = pathlib.Path(__file__).parents[5] / "data" / "htools" / "kite.data"
TOTALS = {"kite1": 0.4, "kite2": 1.4, "kite3": 2.0, "kite4": 0.0}
REPORTS = {f"{name}.lab.test": {"cpu_total": load} for name, load in TOTALS.items()}


def kites() -> Cluster:
    return text.load(KITE.read_text(), "kite")


def test_a_nodes_load_is_shared_by_vcpus_and_kept_as_a_whole() -> None:
    cluster = mond.apply(kites(), REPORTS, mond.CPU)
    assert [round(inst.utilisation[0], 3) for inst in cluster.instances] == [
        0.114,
        0.114,
        0.057,
        0.7,
        0.057,
        1.6,
    ]
    now = node_state.derive(cluster)
    assert now.load_cpu.tolist() == pytest.approx(list(TOTALS.values()))
    assert cluster.instances[0].utilisation[1:] == (1, 1, 1)


def test_domains_of_xen_have_their_own() -> None:
    reports = {name: {} for name in REPORTS} | {"kite1.lab.test": {"owl1.lab.test": 3}}
    cluster = mond.apply(kites(), reports, mond.XEN)
    assert [inst.utilisation[0] for inst in cluster.instances][:2] == [3, 1]


@pytest.mark.parametrize("data", [None, {}, {"cpu_total": -1}, {"cpu_total": True}, 5])
def test_a_node_without_usable_data_is_missing(data: object) -> None:
    reports = {**REPORTS, "kite2.lab.test": data}
    assert mond.missing(kites(), reports, mond.CPU) == ["kite2.lab.test"]


def test_saved_answers_are_found_by_collector() -> None:
    saved = [{"node": "a", "reports": [{"name": "cpu-avg-load", "data": 7}]}]
    assert mond.from_file(saved, mond.CPU, "f") == {"a": 7}
    assert mond.from_file(saved, mond.XEN, "f") == {}


@pytest.mark.parametrize("saved", [{}, [1], [{"node": "a"}], [{"reports": [{}]}]])
def test_other_data_is_refused(saved: object) -> None:
    with pytest.raises(DataError, match=r"^f: "):
        mond.from_file(saved, mond.CPU, "f")


def test_resident_memory_counts_by_its_part_of_the_average() -> None:
    sizes = {"owl1.lab.test": 300, "owl2.lab.test": 100}
    reports = {name: {} for name in REPORTS} | {"kite1.lab.test": sizes}
    cluster = mond.apply_memory(kites(), reports, 2.0)
    used = [inst.utilisation for inst in cluster.instances]
    assert used[:3] == [(1, 3, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)]
    reports["kite1.lab.test"] = {name: 4096 * size for name, size in sizes.items()}
    assert mond.apply_memory(kites(), reports, 2.0) == cluster
    reports["kite1.lab.test"] = dict.fromkeys(sizes, 0)
    assert mond.apply_memory(kites(), reports, 2.0) == kites()

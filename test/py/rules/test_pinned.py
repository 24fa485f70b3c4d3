"""Pinned packages fit the requirements, and the bill of materials has what is needed."""

import json
import pathlib
import re
import subprocess
import sys
from importlib import metadata

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement

TOP = pathlib.Path(__file__).parents[3]
HASH = re.compile(r"[0-9a-f]{64}")


def pins(name):
    """Return normal name -> (version, hashes) of a file of pins."""
    text = (TOP / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {
        line.split("==")[0]: (
            re.search("==([^ ;]+)", line)[1],
            re.findall(r"--hash=sha256:(\S+)", line),
        )
        for line in lines
    }


@pytest.fixture(scope="module")
def pinned():
    return pins("requirements.pinned")


def test_pins_are_within_the_lower_bounds_and_have_hashes(pinned):
    lines = (TOP / "requirements.txt").read_text().splitlines()
    for line in lines:
        if line.startswith("#"):
            continue
        wanted = Requirement(line)
        version, _hashes = pinned[re.sub(r"[-_.]+", "-", wanted.name).lower()]
        assert wanted.specifier.contains(version), f"{line}: run autotools/pin-wheels"
    for version, hashes in (
        *pinned.values(),
        *pins("requirements-build.pinned").values(),
    ):
        assert version
        assert hashes
        assert all(map(HASH.fullmatch, hashes))


def test_documents_install_pinned_packages_with_pinned_build_tools():
    """Else pip gets tools that no hash is compared of, and runs them as root."""
    for name in ("install", "quick-install", "security"):
        text = (TOP / "doc" / f"{name}.rst").read_text().replace("\\\n", "")
        tools, packages = re.findall(r"pip install (.*)-r requirements(.*)\n", text)
        assert tools == ("--require-hashes ", "-build.pinned")
        assert packages[1] == ".pinned"
        assert {"--require-hashes", "--no-build-isolation"} <= set(packages[0].split())


def test_the_bill_of_materials_names_every_package(pinned, tmp_path):
    # As pip reports it; metadata are those of the packages of this environment.
    items = []
    for name, (_version, hashes) in pinned.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        items.append(
            {
                "metadata": {"name": name, "version": version},
                "download_info": {"archive_info": {"hashes": {"sha256": hashes[0]}}},
            }
        )
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"install": items}))
    made = subprocess.run(
        [sys.executable, TOP / "autotools" / "make-sbom", report, "1.2.3"],
        capture_output=True,
        text=True,
        check=True,
        env={"SOURCE_DATE_EPOCH": "0"},
    )
    official = JsonStrictValidator(SchemaVersion.V1_6)
    wrong = official.validate_str(made.stdout, all_errors=True)
    assert not wrong, list(map(str, wrong))
    bill = json.loads(made.stdout)
    assert bill["specVersion"] == "1.6"
    assert bill["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"
    assert bill["metadata"]["component"]["version"] == "1.2.3"
    parts = {part["name"]: part for part in bill["components"]}
    assert set(parts) == {item["metadata"]["name"] for item in items}
    assert len(parts) > 20
    for item in items:
        part = parts[item["metadata"]["name"]]
        assert part["version"] == item["metadata"]["version"]
        assert part["purl"] == f"pkg:pypi/{part['name']}@{part['version']}"
        (known,) = part["hashes"]
        assert known["alg"] == "SHA-256"
        assert HASH.fullmatch(known["content"])
        for licence in part["licenses"]:
            (text,) = (
                licence.get("license") or {"name": licence["expression"]}
            ).values()
            assert text
    refs = {part["bom-ref"] for part in bill["components"]}
    needs = {row["ref"]: row["dependsOn"] for row in bill["dependencies"]}
    own = bill["metadata"]["component"]["bom-ref"]
    assert needs.keys() == refs | {own}
    assert parts["pyopenssl"]["bom-ref"] in needs[own]
    # Needed by cryptography alone.
    assert parts["cffi"]["bom-ref"] not in needs[own]
    assert parts["cryptography"]["bom-ref"] in needs[parts["pyopenssl"]["bom-ref"]]
    assert set().union(*needs.values()) <= refs

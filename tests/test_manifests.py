"""The files for a cluster in ``examples/cluster``: what they start and set exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headrace.interfaces.settings import setting_names
from headrace.tools.cli.command import main

ROOT = Path(__file__).parent.parent
PLACE = ROOT / "examples" / "cluster"


def manifests() -> list[dict]:
    yaml = pytest.importorskip("yaml")
    return [each for each in yaml.safe_load_all((PLACE / "headrace.yaml").read_text()) if each]


def parsed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the help that the command shows if it knows all arguments; nothing is run."""
    assert main([*arguments, "--help"]) == 0
    return capsys.readouterr().out


def test_containers_start_what_exists(capsys: pytest.CaptureFixture[str]) -> None:
    (stateful,) = [each for each in manifests() if each["kind"] == "StatefulSet"]
    pod = stateful["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "Serve the database over HTTP" in parsed(container["args"], capsys)
    known = {f"HEADRACE_{name.upper()}" for name in setting_names()}
    names = {each["name"] for each in container["env"] if each["name"].startswith("HEADRACE_")}
    assert names
    assert names <= known
    mounted = {each["name"] for each in container["volumeMounts"]}
    claimed = {each["metadata"]["name"] for each in stateful["spec"]["volumeClaimTemplates"]}
    assert mounted == claimed | {each["name"] for each in pod["volumes"]}
    assert f"--listen=0.0.0.0:{container['ports'][0]['containerPort']}" in container["args"]


def test_manifests_fit_the_schemas_of_kubernetes() -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    for each in manifests():
        validate(each, "1.32", strict=True)


def test_the_image_has_what_it_copies_and_starts(capsys: pytest.CaptureFixture[str]) -> None:
    text = (PLACE / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists(), source
    (command,) = re.findall(r"^CMD (.*)$", text, re.MULTILINE)
    assert "Serve the database over HTTP" in parsed(json.loads(command), capsys)

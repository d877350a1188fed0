"""What starts a crawl without Compose, systemd units and Kubernetes manifests, names only what exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from ruamel.yaml import YAML

from crawlproj.config import load_config
from crawlproj.observe.metrics import RUN_METRICS
from tests.composefile import PROJECT, read_compose
from tests.house.test_docs import OPTION, options_of

UNITS = sorted((PROJECT / "deploy" / "systemd").glob("*.service"))
KUBERNETES = PROJECT / "deploy" / "kubernetes"
MANIFESTS = [
    document
    for path in sorted(KUBERNETES.glob("*.yaml"))
    for document in YAML(typ="safe", pure=True).load_all(path.read_text("utf-8"))
]
#: Variables that settings.py reads.
READ = set(re.findall(r'environ\.get\("(\w+)"', (PROJECT / "crawlproj" / "settings.py").read_text("utf-8")))


def value_of(unit: Path, name: str) -> str:
    [value] = re.findall(rf"^{name}=(.*)$", unit.read_text("utf-8"), re.MULTILINE)
    return str(value)


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest in MANIFESTS:
        if manifest["kind"] in ("StatefulSet", "Deployment"):
            yield manifest["metadata"]["name"], manifest["spec"]["template"]["spec"]


PODS = dict(pods())
COMMANDS = {unit.name: value_of(unit, "ExecStart") for unit in UNITS} | {
    name: " ".join(pod["containers"][0]["command"]) for name, pod in PODS.items()
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_only_options_and_settings_that_exist(name: str) -> None:
    found = re.search(r"(?:crawlproj|scrapy) ([a-z]+) (.*)", COMMANDS[name], re.DOTALL)
    assert found is not None
    options = options_of(found[1])
    settings = dict(re.findall(r"-s (\w+)=(\S+)", found[2]))

    assert options is not None
    assert set(OPTION.findall(found[2])) <= options
    load_config(settings)
    if name in ("shard", "parser"):
        [probe] = {tuple(PODS[name]["containers"][0]["startupProbe"]["exec"]["command"])}
        assert probe[1:] == ("deploy/health.py", f"http://127.0.0.1:{settings['CRAWL_METRICS_PORT']}/metrics")


def test_every_variable_is_one_that_is_read() -> None:
    [generated] = [
        manifest["configMapGenerator"] for manifest in MANIFESTS if "configMapGenerator" in manifest
    ]
    given = {
        line.partition("=")[0] for one in generated if one["name"] == "crawl" for line in one["literals"]
    }
    named = {variable["name"] for pod in PODS.values() for variable in pod["containers"][0]["env"]}
    named |= {word.split("=")[0] for unit in UNITS for word in value_of(unit, "Environment").split()}

    assert named | given <= READ | {"RUN", "SHARDS", "PYTHONUNBUFFERED"}
    assert all(name in COMMANDS["shard"] for name in ("$RUN", "SHARDS"))


@pytest.mark.parametrize("name", PODS)
def test_a_pod_has_no_root_and_a_read_only_image(name: str) -> None:
    pod = PODS[name]
    [container] = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_whoever_is_stopped_has_time_to_drain() -> None:
    drain_s = load_config({}).drain_seconds
    grace = read_compose()["services"]["crawl"]["stop_grace_period"]

    for name in ("shard", "parser"):
        assert PODS[name]["terminationGracePeriodSeconds"] > drain_s + 2 * 10
    assert {f"{value_of(unit, 'TimeoutStopSec')}s" for unit in UNITS} == {grace}


def test_parsers_are_scaled_by_a_metric_that_exists() -> None:
    [scaled] = [manifest for manifest in MANIFESTS if manifest["kind"] == "ScaledObject"]
    [trigger] = scaled["spec"]["triggers"]
    found: list[promql_parser.Expr] = []
    promql_parser.walk(promql_parser.parse(trigger["metadata"]["query"]), found.append)

    names = {node.name for node in found if isinstance(node, promql_parser.VectorSelector)}

    assert names <= {metric.name for metric in RUN_METRICS.values()}
    assert scaled["spec"]["scaleTargetRef"]["name"] in PODS


def test_systemd_finds_no_mistake_in_the_units(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze")
    files = []
    for unit in UNITS:
        files.append(tmp_path / unit.name.replace("@", "@web"))
        # It looks for the program, too, and for templates beside their instance.
        text = unit.read_text("utf-8").replace("/srv/crawlproj/bin/crawlproj", "/bin/true")
        for name in {unit.name, files[-1].name}:
            (tmp_path / name).write_text(text)

    done = subprocess.run([program, "verify", *files], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")

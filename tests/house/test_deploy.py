"""What is shipped to run and watch a crawl elsewhere is valid, safe, and names only what exists.

No Docker engine is needed. Where `docker compose` or `promtool` are at hand (on PATH, or named by
DOCKER_COMPOSE and PROMTOOL), they are asked, too.
"""

from __future__ import annotations

import fnmatch
import importlib.resources
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import promql_parser
import pytest

from crawlproj.config import load_config
from crawlproj.observe.metrics import METRICS, RUN_METRICS, Metric
from crawlproj.runs import RunState
from tests.composefile import PROJECT, command_of, read_compose, read_yaml

PROMETHEUS = PROJECT / "deploy" / "prometheus"
GRAFANA = PROJECT / "deploy" / "grafana"
DASHBOARD = json.loads((GRAFANA / "dashboards" / "crawl.json").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = read_compose()["services"]
OURS = ("crawl", "parser")
#: What Prometheus knows by itself.
ITS_OWN = {"up", "ALERTS"}
ITS_LABELS = {"job", "instance", "le", "alertname", "alertstate"}


# -- docker-compose.yml --


def compose_schema() -> dict[str, Any]:
    found = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema: dict[str, Any] = json.loads(found.read_text("utf-8"))
    return schema


def test_the_compose_file_is_valid_by_the_compose_specification() -> None:
    jsonschema.validate(read_compose(), compose_schema())


@pytest.mark.parametrize("mistake", [{"restrat": "always"}, {"mem_limit": []}, {"healthcheck": "curl"}])
def test_the_specification_would_find_a_mistake(mistake: dict[str, Any]) -> None:
    compose = read_compose()
    compose["services"]["parser"] |= mistake

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(compose, compose_schema())


def find_compose() -> list[str] | None:
    """Return the command of a Docker Compose that can print JSON; version 1 cannot."""
    if named := os.environ.get("DOCKER_COMPOSE"):
        return [named]
    for words in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(words[0]):
            said = subprocess.run([*words, "version", "--short"], capture_output=True, text=True, check=False)
            if said.returncode == 0 and not said.stdout.lstrip("v").startswith("1."):
                return words
    return None


def test_docker_compose_itself_reads_the_file_as_we_do(tmp_path: Path) -> None:
    program = find_compose()
    if program is None:
        pytest.skip("no docker-compose; name one with DOCKER_COMPOSE")

    printed = subprocess.run(
        [*program, "--file", str(PROJECT / "docker-compose.yml"), "config", "--format", "json"],
        env=os.environ | {"SHARDS": "5", "ARGS": "-s LOG_LEVEL=DEBUG"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    ours = read_compose({"SHARDS": "5", "ARGS": "-s LOG_LEVEL=DEBUG"})["services"]
    # It writes back $$ for $, as it prints a compose file.
    theirs = json.loads(printed.replace("$$", "$"))["services"]
    assert {name: service["command"] for name, service in theirs.items() if service.get("command")} == {
        name: command_of(service) for name, service in ours.items() if command_of(service)
    }
    assert {name: service["healthcheck"]["test"] for name, service in theirs.items()} == {
        name: service["healthcheck"]["test"] for name, service in ours.items()
    }


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_no_root_and_nothing_it_does_not_need(name: str) -> None:
    service = SERVICES[name]

    assert re.fullmatch(r"[1-9]\d*:\d+", service["user"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_is_watched_started_again_and_bounded(name: str) -> None:
    service = SERVICES[name]

    assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    # A run that is finished must not begin anew.
    assert service["restart"] == ("on-failure" if name in OURS else "unless-stopped")
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
    assert service["logging"] == {"driver": "local"}


@pytest.mark.parametrize("name", SERVICES)
def test_passwords_come_from_files_only(name: str) -> None:
    service = SERVICES[name]
    environment = service.get("environment", {})

    with_password = [variable for variable in environment if "PASSWORD" in variable]

    assert all(variable.endswith("_FILE") for variable in with_password)
    mounted = {f"/run/secrets/{secret}" for secret in service.get("secrets", [])}
    assert {environment[variable] for variable in with_password} == mounted
    assert "@" not in environment.get("REDIS_URL", "")


def test_every_secret_is_a_file_outside_of_the_image() -> None:
    files = [secret["file"] for name, secret in read_compose()["secrets"].items() if name != "pip"]

    assert files
    assert all(file.startswith("./secrets/") for file in files)
    assert not any(is_sent_to_the_builder(file.removeprefix("./")) for file in files)


def test_parsers_can_be_scaled() -> None:
    parser = SERVICES["parser"]

    # Each of these is one of its kind.
    assert not {"container_name", "hostname", "ports"} & set(parser)


def test_parsers_and_redis_have_no_way_to_the_internet() -> None:
    internal = {name for name, network in read_compose()["networks"].items() if network.get("internal")}

    assert set(SERVICES["parser"]["networks"]) <= internal
    assert set(SERVICES["redis"]["networks"]) <= internal


@pytest.mark.parametrize("name", OURS)
def test_a_command_gives_only_settings_that_there_are(name: str) -> None:
    command = command_of(SERVICES[name])
    given = [value for option, value in pairwise(command) if option == "-s"]

    config = load_config(dict(setting.split("=", 1) for setting in given))

    assert (config.metrics_host, config.metrics_port, config.metrics_shared) == ("0.0.0.0", 9410, True)


def test_what_is_mounted_from_here_is_here() -> None:
    mounted = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])]

    folders = [PROJECT / source for source in mounted if source.startswith("./")]

    assert folders
    assert [folder for folder in folders if not folder.is_dir()] == []


# -- Dockerfile --


def stages() -> list[list[str]]:
    """The instructions of each stage of the Dockerfile, a line each."""
    text = (PROJECT / "Dockerfile").read_text("utf-8")
    whole = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    found: list[list[str]] = []
    for line in filter(None, whole.splitlines()):
        if line.startswith("FROM "):
            found.append([])
        found[-1].append(line)
    return found


def is_sent_to_the_builder(path: str) -> bool:
    """What .dockerignore says: of the lines that fit, the last counts. A folder stands for all in it."""
    parts = Path(path).parts
    beginnings = ["/".join(parts[: length + 1]) for length in range(len(parts))]
    sent = True
    for line in (PROJECT / ".dockerignore").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!").removeprefix("**/")
            if any(fnmatch.fnmatch(beginning, pattern) for beginning in beginnings):
                sent = line.startswith("!")
    return sent


def copied() -> list[str]:
    """What the Dockerfile copies from here."""
    lines = [line for stage in stages() for line in stage if re.match(r"COPY (?!--from)", line)]
    return [source for line in lines for source in line.split()[1:-1]]


def test_the_image_runs_scrapy_as_a_user_with_a_number() -> None:
    *_, last = stages()

    assert "USER 10001:10001" in last
    assert last[-1] == 'ENTRYPOINT ["scrapy"]'


def test_the_image_has_locked_packages_and_no_tools_to_build_more() -> None:
    first, _, last = stages()

    [install] = [line for line in first if " install " in line]
    assert "--require-hashes" in install
    assert "--only-binary=:all:" in install
    assert "--without-pip" in install
    assert not any(re.search(r"\b(pip|apt-get|gcc|make)\b", line) for line in last if line.startswith("RUN"))


def test_the_image_gets_the_reader_that_its_own_stage_builds() -> None:
    _, builder, last = stages()
    library = "crawlproj/parsing/_reader.abi3.so"

    # setup.py succeeds without a compiler; an image must not.
    assert builder[-1].endswith(f"&& test -f {library}")
    assert f"COPY --from=reader /build/{library} crawlproj/parsing/" in last
    assert not is_sent_to_the_builder(library)


def test_what_the_dockerfile_copies_is_here_and_sent_to_the_builder() -> None:
    assert len(copied()) > 3
    assert [path for path in copied() if not (PROJECT / path).exists()] == []
    assert [path for path in copied() if not is_sent_to_the_builder(path)] == []


@pytest.mark.parametrize("path", ["data/runs", ".git/config", "tests/conftest.py", "crawlproj/x.pyc", ".env"])
def test_nothing_else_is_sent_to_the_builder(path: str) -> None:
    assert not is_sent_to_the_builder(path)


# -- the health check of shards and parsers --


@pytest.fixture
def health() -> ModuleType:
    spec = importlib.util.spec_from_file_location("health", PROJECT / "deploy" / "health.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WELL = """\
# TYPE crawlproj_process_start_time_seconds gauge
crawlproj_process_start_time_seconds{kind="shard",number="0",run="web"} 1.7e+09
crawlproj_heartbeat_age_seconds{kind="shard",number="0",run="web"} 3.5
"""


def test_a_container_whose_shards_renew_their_holds_is_healthy(health: ModuleType) -> None:
    assert health.problem_in(WELL) == ""


def test_a_container_without_processes_is_not_healthy(health: ModuleType) -> None:
    assert "no process" in health.problem_in("python_info 1\n")


def test_a_container_with_a_stuck_shard_is_not_healthy(health: ModuleType) -> None:
    problem = health.problem_in(WELL.replace("3.5", "75"))

    assert "75 s" in problem
    assert 'number="0"' in problem


def test_a_shard_without_a_number_yet_is_healthy(health: ModuleType) -> None:
    assert health.problem_in(WELL.replace("3.5", "+Inf")) == ""


def test_a_container_that_does_not_answer_is_not_healthy(
    health: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert health.main("http://127.0.0.1:1/metrics") == 1
    assert "is unreachable" in capsys.readouterr().out


# -- how a container ends --


@pytest.fixture
def ends(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Starts what a container starts, with a `scrapy` that is this shell script."""

    def start(script: str) -> subprocess.Popen[str]:
        (tmp_path / "scrapy").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "scrapy").chmod(0o755)
        return subprocess.Popen(
            ["sh", str(PROJECT / "deploy" / "once.sh"), "run", "two words"],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


@pytest.mark.parametrize(
    ("code", "seen"),
    [(0, 0), (1, 1), (2, 0), (3, 3), (4, 4), (5, 0), (6, 6), (7, 0), (8, 8), (9, 0), (10, 0)],
)
def test_a_container_fails_only_with_what_a_restart_may_cure(
    ends: Callable[[str], subprocess.Popen[str]], code: int, seen: int
) -> None:
    process = ends(f'echo "$#: $1, $2"; exit {code}')
    output, _ = process.communicate()

    assert process.returncode == seen
    assert "2: run, two words" in output
    assert (f"code {code}" in output) == (code != seen)


def test_a_container_that_is_stopped_ends_when_the_crawl_has_ended(
    ends: Callable[[str], subprocess.Popen[str]],
) -> None:
    process = ends("trap 'sleep 0.3; echo drained; exit 130' TERM; echo up; while :; do sleep 0.05; done")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"

    process.terminate()
    output, _ = process.communicate()

    assert (process.returncode, output) == (130, "drained\n")


# -- Prometheus and Grafana --


def rules() -> list[dict[str, Any]]:
    return [rule for group in read_yaml(PROMETHEUS / "alerts.yml")["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DASHBOARD["panels"]
    return found


def dashboard_queries() -> list[str]:
    queries = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    return [query.replace("$__rate_interval", "1m").replace("$run", "web") for query in queries]


def samples() -> dict[str, Metric]:
    """The names of all samples that processes publish, with their metrics."""
    found: dict[str, Metric] = {}
    for metric in [*METRICS.values(), *RUN_METRICS.values()]:
        endings = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found |= {f"{metric.name}{ending}": metric for ending in endings}
    return found


def selectors_in(query: str) -> Iterator[promql_parser.VectorSelector]:
    found: list[promql_parser.Expr] = []
    promql_parser.walk(promql_parser.parse(query), found.append)
    for node in found:
        if isinstance(node, promql_parser.MatrixSelector):
            node = node.vector_selector
        if isinstance(node, promql_parser.VectorSelector):
            yield node


QUERIES = [rule["expr"] for rule in rules()] + dashboard_queries()


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_only_metrics_and_labels_that_there_are(query: str) -> None:
    known = samples()

    for selector in selectors_in(query):
        assert selector.name in known.keys() | ITS_OWN
        if selector.name in ITS_OWN:
            continue
        metric = known[selector.name]
        for matcher in selector.matchers.matchers:
            assert matcher.name in metric.labels
            if matcher.name == "state":
                assert matcher.value in {state.value for state in RunState}
            elif matcher.name == metric.label and not re.search(r"\W", matcher.value):
                assert matcher.value in metric.values


def test_the_search_finds_every_metric_of_a_query() -> None:
    query = "sum(rate(a_total[5m])) / on (run) max(last_over_time(b[1h])) > quantile_over_time(0.5, c[1h:1m])"

    assert {selector.name for selector in selectors_in(query)} == {"a_total", "b", "c"}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_groups_only_by_labels_that_there_are(query: str) -> None:
    grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
    known = {label for metric in samples().values() for label in metric.labels} | ITS_LABELS

    assert {label.strip() for labels in grouped for label in labels.split(",")} <= known


def test_every_metric_is_on_the_dashboard_or_watched_by_an_alert() -> None:
    named = {selector.name for query in QUERIES for selector in selectors_in(query)}

    unseen = {
        metric.name
        for metric in [*METRICS.values(), *RUN_METRICS.values()]
        if not named & {metric.name, f"{metric.name}_bucket"}
    }

    assert unseen == set()


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "remedy"}


def test_every_alert_has_a_test_in_which_it_fires_and_a_line_in_the_docs() -> None:
    names = {rule["alert"] for rule in rules()}
    docs = (PROJECT / "docs" / "deployment.md").read_text("utf-8")

    fired = set(re.findall(r'alertname="(\w+)"', (PROMETHEUS / "alerts_test.yml").read_text("utf-8")))

    assert fired == names
    assert {name for name in names if f"`{name}`" not in docs} == set()


@pytest.mark.parametrize(
    "arguments", [("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")], ids=" ".join
)
def test_promtool_finds_no_errors(arguments: tuple[str, ...]) -> None:
    promtool = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool; name one with PROMTOOL")

    checked = subprocess.run(
        [promtool, *arguments], cwd=PROMETHEUS, capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prometheus_asks_the_containers_where_they_answer() -> None:
    jobs = {job["job_name"]: job for job in read_yaml(PROMETHEUS / "prometheus.yml")["scrape_configs"]}

    for name in OURS:
        [found] = jobs[name]["dns_sd_configs"]
        assert found["names"] == [name]
        assert f"CRAWL_METRICS_PORT={found['port']}" in command_of(SERVICES[name])
        assert f":{found['port']}/metrics" in SERVICES[name]["healthcheck"]["test"][-1]
        # One network only: with two it would find every container twice.
        assert set(SERVICES[name]["networks"]) & set(SERVICES["prometheus"]["networks"]) == {"watch"}


def test_the_dashboard_asks_the_prometheus_that_is_provisioned() -> None:
    [source] = read_yaml(GRAFANA / "provisioning" / "datasources" / "prometheus.yml")["datasources"]

    used = {panel["datasource"]["uid"] for panel in panels() if panel["type"] != "row"}

    assert used == {source["uid"]}
    assert source["url"] == "http://prometheus:9090"


def test_the_dashboard_is_where_grafana_looks_for_it() -> None:
    [provider] = read_yaml(GRAFANA / "provisioning" / "dashboards" / "crawl.yml")["providers"]
    grafana = SERVICES["grafana"]

    mounted = dict(volume.split(":")[:2][::-1] for volume in grafana["volumes"])

    assert mounted[provider["options"]["path"]] == "./deploy/grafana/dashboards"
    assert grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"].startswith(
        provider["options"]["path"]
    )


def test_the_dashboard_has_all_its_parts() -> None:
    titles = [panel["title"] for panel in panels() if panel["type"] == "row"]

    assert titles == [
        *("Now", "Throughput", "Frontier", "Page queue", "Errors", "Politeness", "Processes", "Descriptors"),
    ]


def test_panels_have_their_own_number_and_place_and_say_what_they_show() -> None:
    numbers = Counter(panel["id"] for panel in panels())
    places = [panel["gridPos"] for panel in panels()]

    assert set(numbers.values()) == {1}
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert [pair for pair in combinations(places, 2) if overlap(*pair)] == []
    assert all(panel["description"] and panel["targets"] for panel in panels() if panel["type"] != "row")


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size]
        for at, size in (("x", "w"), ("y", "h"))
    )

"""The dashboard, the alerts and the scrape say only what `/metrics` says: names, labels, kinds and settings."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, Metric

from batchfleet.telemetry import Metrics
from tests.support.deployfiles import compose

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "batchfleet.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
SCRAPE = DEPLOY / "prometheus" / "prometheus.yml"

FUNCTIONS = {"sum", "avg", "max", "count", "topk", "rate", "increase", "histogram_quantile", "absent", "label_values"}
WORDS = {"by", "on", "unless", "and", "or", "le"}
FROM_PROMETHEUS = {"instance", "job", "le"}
TOKEN = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\])*")|(?P<range>\[(?:\d+[smh]|\$__rate_interval)\])|(?P<name>[A-Za-z_]\w*)"""
    r"""|(?P<number>\d+(?:\.\d+)?)|(?P<sign>=~|!~|!=|>=|<=|==|[-+*/=<>(){},])|(?P<space>\s+)"""
)


def exported() -> dict[str, tuple[str, set[str]]]:
    """Returns what a scrape may show: name of a series → type of its metric, its labels."""
    metrics = Metrics()
    found: dict[str, tuple[str, set[str]]] = {}
    for metric in vars(metrics).values():
        if hasattr(metric, "_labelnames"):
            family: Metric = metric.describe()[0] if hasattr(metric, "describe") else next(iter(metric.collect()))
            labels = set(metric._labelnames)
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
            for suffix in suffixes[family.type]:
                found[family.name + suffix] = (family.type, labels | ({"le"} if suffix == "_bucket" else set()))
    found["batchfleet_queue_jobs"] = found["batchfleet_queue_oldest_age_seconds"] = (
        "gauge",
        {"model", "lane", "state"},
    )
    found["batchfleet_backlog_device_seconds"] = ("gauge", {"model", "lane"})
    found["batchfleet_build_info"] = ("gauge", {"version"})
    found["batchfleet_outbox_pending"] = found["batchfleet_outbox_oldest_age_seconds"] = ("gauge", {"kind"})
    return found


EXPORTED = exported()


def dashboard() -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return parsed


def expressions() -> Iterator[tuple[str, str]]:
    """Yields every expression, with where it stands."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield f"panel {panel['title']}", target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["query"]["query"]
    for rule in rules():
        yield f"alert {rule['alert']}", rule["expr"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def tokens(expression: str) -> list[tuple[str, str]]:
    """Takes an expression apart.

    Raises:
        AssertionError: If some of it is none of what PromQL has.
    """
    found, place = [], 0
    while place < len(expression):
        match = TOKEN.match(expression, place)
        assert match is not None, f"not PromQL from here on: {expression[place:]}"
        place = match.end()
        if match.lastgroup != "space":
            found.append((str(match.lastgroup), match.group()))
    return found


ALL = list(expressions())


@pytest.mark.parametrize(("where", "expression"), ALL, ids=[f"{where}-{place}" for place, (where, _) in enumerate(ALL)])
def test_an_expression_is_of_what_metrics_say(where: str, expression: str) -> None:
    parts = tokens(expression)
    opened: list[str] = []
    named: list[str] = []
    used: set[str] = set()
    for place, (kind, text) in enumerate(parts):
        after = parts[place + 1][1] if place + 1 < len(parts) else ""
        if text in {"(", "{"}:
            opened.append(text if text == "{" or parts[place - 1][1] not in {"by", "on"} else "by")
        elif text in {")", "}"}:
            assert opened, f"{where}: closes what was not opened"
            assert (opened.pop() == "{") is (text == "}"), where
        elif kind == "name" and text.startswith("batchfleet_"):
            assert text in EXPORTED, f"{where}: no metric {text}"
            named.append(text)
            _check_use(where, parts, place, text)
        elif kind == "name" and opened and opened[-1] in {"{", "by"}:
            used.add(text)
        elif kind == "name" and text not in WORDS and "label_values" not in expression:
            assert text in FUNCTIONS, f"{where}: no function {text}"
            assert after in {"(", "by"}, where
    assert not opened, f"{where}: something stays open"
    assert named, f"{where}: names no metric"
    assert used <= FROM_PROMETHEUS.union(*(EXPORTED[name][1] for name in named)), f"{where}: a label that there is not"


def _check_use(where: str, parts: list[tuple[str, str]], place: int, name: str) -> None:
    """A rate is of a counter, and what is not one is not rated."""
    place += 1
    if place < len(parts) and parts[place][1] == "{":
        place = next(end for end in range(place, len(parts)) if parts[end][1] == "}") + 1
    ranged = place < len(parts) and parts[place][0] == "range"
    counted = EXPORTED[name][0] != "gauge"
    if "label_values" not in {text for _, text in parts}:
        assert ranged is counted, f"{where}: {name} is {EXPORTED[name][0]}"


def test_the_dashboard_can_be_imported_anywhere() -> None:
    board = dashboard()
    panels = board["panels"]
    sources = {json.dumps(found) for found in _datasources(board)}

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert [variable["name"] for variable in board["templating"]["list"] if variable["type"] == "datasource"] == [
        "datasource"
    ]
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    assert all(panel["title"] for panel in panels)


def test_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


def test_what_operators_ask_first_is_on_the_dashboard() -> None:
    shown = " ".join(expression for where, expression in ALL if where.startswith("panel"))
    for name in EXPORTED:
        base = re.sub(r"_(total|bucket|sum|count)$", "", name)
        if base not in NOT_SHOWN:
            assert base in shown, name


NOT_SHOWN = {
    "batchfleet_build_info",
    "batchfleet_window_items",
    "batchfleet_scrape_failures",
    "batchfleet_rings_published",
    "batchfleet_purged",
    "batchfleet_orphans_removed",
}


def test_alerts_say_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]

    assert len(set(names)) == len(names)
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
        assert rule["labels"]["severity"] in {"page", "ticket"}
        told = " ".join(rule["annotations"].values())
        by = set(re.findall(r"by \(([^)]*)\)", rule["expr"]))
        assert set(re.findall(r"\$labels\.(\w+)", told)) <= by, rule["alert"]


def test_the_scrape_asks_the_path_that_there_is_and_reads_the_alerts() -> None:
    settings = yaml.safe_load(SCRAPE.read_text())
    api, processes = settings["scrape_configs"]

    assert api["metrics_path"] == processes["metrics_path"] == "/metrics"
    assert settings["rule_files"] == [ALERTS.name]
    assert api["authorization"]["type"] == "Bearer"
    assert "authorization" not in processes


def test_each_of_many_workers_is_scraped() -> None:
    """A name of several addresses as a static target would reach any one of them, another each time."""
    _, processes = yaml.safe_load(SCRAPE.read_text())["scrape_configs"]
    (found,) = processes["dns_sd_configs"]

    assert "static_configs" not in processes
    assert found["type"] == "A"
    for name in found["names"]:
        service = compose()["services"][name]
        assert service["environment"]["BATCHFLEET_METRICS_PORT"] == str(found["port"])
        assert service["environment"]["BATCHFLEET_METRICS_HOST"] == "0.0.0.0"  # noqa: S104
        assert "inside" in service["networks"]


def _datasources(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "datasource":
                yield value
            else:
                yield from _datasources(value)
    elif isinstance(node, list):
        for value in node:
            yield from _datasources(value)


def test_a_metric_is_shown_under_its_own_name() -> None:
    """`exported` above is written by hand for what is made at the scrape: it must not say more than there is."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.watch_queues(list)
    metrics.watch_outbox(list)
    text = metrics.render().decode()

    for name in EXPORTED:
        if EXPORTED[name][0] == "gauge":
            assert f"# TYPE {name} gauge" in text

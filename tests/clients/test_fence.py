from __future__ import annotations

import json

import pytest

from clients import LocusClient
from clients.cli import main
from tests.brokers import ALLOW_ANONYMOUS, locus
from tests.clients.scripted_broker import ScriptedBroker

GEO = "broker_plugins.geo.plugin.GeoPlugin"
SQUARE = [[0, 0], [0.001, 0], [0.001, 0.001], [0, 0.001], [0, 0]]


@pytest.fixture
def broker():
    with locus(plugins={**ALLOW_ANONYMOUS, GEO: {"max_fence_points": 10}}) as running:
        yield running


def fence(broker, action: str, *words: str) -> int:
    return main(["fence", action, "-p", str(broker.port), *words])


def written(path, *rings) -> str:
    path.write_text(json.dumps({"type": "Feature", "geometry": {"type": "Polygon", "coordinates": list(rings)}}))
    return str(path)


def test_put_list_rm(broker, tmp_path, capsys):
    file = written(tmp_path / "square.geojson", SQUARE)
    assert fence(broker, "put", "yard", file) == 0
    assert capsys.readouterr().out == "yard: 4 vertices, 12,364 m²\n"
    large = written(tmp_path / "large.geojson", [[4.0, 51.9], [4.1, 51.9], [4.1, 52.0], [4.0, 51.9]])
    assert fence(broker, "put", "harbour", large) == 0
    capsys.readouterr()
    with LocusClient(port=broker.port) as client:
        got = []
        client.subscribe("$geo/fence:yard/v", got.append)
        client.publish("v", at=(0.0005, 0.0005))
        client.publish("v", "end", at=(0.0006, 0.0005), qos=1)
        assert fence(broker, "list") == 0
        assert capsys.readouterr().out == "harbour\t3 vertices\t38.12 km²\nyard\t4 vertices\t12,364 m²\n"
        assert len(got) == 2
    assert fence(broker, "rm", "harbour") == 0
    assert fence(broker, "list", "--json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    described = json.loads(line)
    assert (described["name"], described["vertices"]) == ("yard", 4)
    assert described["geometry"] == {"type": "Polygon", "coordinates": [SQUARE]}


def test_a_bad_fence_is_refused_before_anything_is_sent(tmp_path, capsys):
    file = written(tmp_path / "bow.geojson", [[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]])
    with ScriptedBroker() as scripted:
        assert fence(scripted, "put", "bow", file) == 1
        assert "Self-intersection" in capsys.readouterr().err
        assert fence(scripted, "put", "a/b", file) == 1
        assert "'a/b' cannot be the name of a fence" in capsys.readouterr().err
        assert fence(scripted, "put", "x", str(tmp_path / "none")) == 1
        assert "cannot read" in capsys.readouterr().err
        assert scripted.heard == []


def test_a_fence_the_broker_does_not_keep_is_an_error(broker, tmp_path, capsys):
    steps = [[step / 100, 0] for step in range(12)]
    file = written(tmp_path / "long.geojson", [*steps, [0.1, 0.1], [0, 0]])
    assert fence(broker, "put", "long", file, "--timeout", "1s") == 1
    assert "did not keep the fence at locus/fence/long" in capsys.readouterr().err


def test_a_fence_that_cannot_be_read_back_is_said_so(tmp_path, capsys):
    file = written(tmp_path / "square.geojson", SQUARE)
    with ScriptedBroker() as scripted:
        scripted.refuse.add("locus/fence/yard")
        assert fence(scripted, "put", "yard", file) == 0
        assert "cannot be read back" in capsys.readouterr().err
        assert [topic for topic, _ in scripted.published] == ["locus/fence/yard"]


def test_what_is_no_fence_is_listed_as_such(capsys):
    with locus() as broker:
        with LocusClient(port=broker.port) as client:
            client.publish("locus/fence/odd", "hello", retain=True, qos=1)
        assert fence(broker, "list") == 0
        assert capsys.readouterr().out.startswith("odd\tnot a fence: the fence is not JSON")
        assert fence(broker, "list", "--json") == 0
        assert json.loads(capsys.readouterr().out)["error"].startswith("the fence is not JSON")

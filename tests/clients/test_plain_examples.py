"""The examples for clients that know nothing of Locus, run as a reader would run them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import ALLOW_ANONYMOUS, free_port, locus, needs_mosquitto

EXAMPLES = Path(__file__).parents[2] / "examples"
PLUGINS = {
    **ALLOW_ANONYMOUS,
    "broker_plugins.geo.plugin.GeoPlugin": {},
    "broker_plugins.ranked.plugin.RankedPlugin": {},
}


def output(*command: str | Path, **options) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_python():
    with locus(plugins=PLUGINS) as broker:
        said = output(sys.executable, EXAMPLES / "plain-python" / "near_me.py", "127.0.0.1", str(broker.port))
    assert said.splitlines() == [
        'offers/bakery {"lon": 126.977, "lat": 37.565, "text": "Fresh bread"}',
        "offers/museum Open until nine",
    ]


@needs_mosquitto
def test_shell():
    with locus(plugins=PLUGINS) as broker:
        said = output("sh", EXAMPLES / "plain-shell" / "geofence.sh", "127.0.0.1", str(broker.port))
    assert said.splitlines() == [
        "Faster than 30 within 500 m of the city hall:",
        'taxis/2/pos {"lon": 126.9800, "lat": 37.5680, "speed": 43}',
        "On the island:",
        'taxis/3/pos {"lon": 126.9244, "lat": 37.5260, "speed": 55}',
    ]


def test_javascript(tmp_path):
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    for file in ("package.json", "map_view.js"):
        shutil.copy(EXAMPLES / "plain-javascript" / file, tmp_path)
    output("node", "--check", tmp_path / "map_view.js")
    install = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefer-offline"]
    try:
        installed = subprocess.run(install, cwd=tmp_path, capture_output=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm could not install mqtt.js in time")
    if installed.returncode:
        pytest.skip("npm could not install mqtt.js: no registry within reach")
    port = free_port()
    with locus(plugins=PLUGINS, listeners={"web": {"type": "ws", "bind": f"127.0.0.1:{port}"}}):
        said = output("node", tmp_path / "map_view.js", f"ws://127.0.0.1:{port}")
    assert said.splitlines() == [
        'in view: buses/seoul-402/pos {"lon":126.9779,"lat":37.5663}',
        'in view: buses/paris-72/pos {"lon":2.353,"lat":48.857}',
    ]

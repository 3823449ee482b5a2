"""What the guide says is what a broker does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

from clients.cli import main
from tests.brokers import ALLOW_ANONYMOUS, ENGINE, locus, needs_mosquitto
from tests.mqtt_wire import Kind, connect, publish

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "guides" / "retained.md").read_text(encoding="utf-8")
EXAMPLE = REPOSITORY / "examples" / "retained"


def test_the_first_configuration_and_its_explanation(capsys) -> None:
    plugins = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)]
    with (
        locus(plugins={**ALLOW_ANONYMOUS, **plugins[0]}) as broker,
        connect(broker.port, "bus") as bus,
        connect(broker.port, "phone") as phone,
    ):
        for number in range(20):
            bus.send(publish("bus/7/pos", b"%d" % number, qos=1, packet_id=1, retain=True))
            bus.expect(Kind.PUBACK)
        phone.subscribe(("bus/7/pos", 1))
        assert main(["retained", "explain", "bus/7/pos", "-p", str(broker.port)]) == 0
    said = capsys.readouterr().out.splitlines()
    shown = re.findall(r"^\$ locus retained explain bus/7/pos\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[
        0
    ].splitlines()
    for line in said[:4]:
        assert numberless(line) in map(numberless, shown)
    for line in said[4:]:
        assert re.match(r"  [\d.]+ s ago: (wait up to|sent at once)", line)


@needs_mosquitto
def test_the_bus_of_the_example_teaches_the_broker_its_pace(capsys) -> None:
    plugins = yaml.safe_load((EXAMPLE / "broker.yaml").read_text(encoding="utf-8"))["plugins"]
    plugins.pop(ENGINE)
    assert (
        yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0]).items() <= plugins.items()
    )
    with locus(plugins=plugins) as broker:
        words = ["sh", str(EXAMPLE / "bus.sh"), "127.0.0.1", str(broker.port), "0.05", "12"]
        subprocess.run(words, check=True, capture_output=True, timeout=120)
        assert main(["retained", "explain", "bus/7/pos", "-p", str(broker.port)]) == 0
    said = capsys.readouterr().out
    assert "a message is retained" in said
    assert "the last 11 gaps" in said


def numberless(line: str) -> str:
    return re.sub(r"[\d.]+", "0", line)


def test_every_option_in_the_guide_is_one() -> None:
    from broker_plugins.retained import RetainedOptions
    from broker_plugins.retained.rules import rule_of

    for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        (options,) = yaml.safe_load(block).values()
        read = RetainedOptions(**options)
        for text, rule in read.topics.items():
            assert rule_of(text, rule, read.policy_file).text == text

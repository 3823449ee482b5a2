"""Run it with `python -m pytest examples/plugin`."""

from queue import Queue

from clients import LocusClient
from tests.brokers import ALLOW_ANONYMOUS, locus

PLUGINS = {**ALLOW_ANONYMOUS, "examples.plugin.quiet_hours.QuietHours": {}}


def test_only_the_caretaker_hears_an_alarm() -> None:
    caretakers, guests = Queue(), Queue()
    with (
        locus(plugins=PLUGINS) as broker,
        LocusClient(port=broker.port, client_id="caretaker") as caretaker,
        LocusClient(port=broker.port, client_id="guest") as guest,
    ):
        caretaker.subscribe("#", caretakers.put)
        guest.subscribe("#", guests.put)
        guest.publish("alarm/fire", "run", qos=1)
        guest.publish("news", "all is well", qos=1)
        assert caretakers.get(timeout=30).text == "RUN"
        assert guests.get(timeout=30).text == "all is well"

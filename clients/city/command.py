"""`locus city`: a simulated city on a broker, until it is told to stop."""

from __future__ import annotations

import argparse
import logging
import signal
import threading
import time

from clients.city.simulation import Simulation
from clients.city.town import Town
from clients.options import port_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `locus city`."""
    parser.conflict_handler = "resolve"  # -h is the host, as in all commands that talk to a broker
    group = parser.add_argument_group("connection")
    group.add_argument("-h", "--host", default="127.0.0.1", help="the broker (%(default)s)")
    group.add_argument("-p", "--port", type=port_number, default=1883, help="its port (%(default)s)")
    group.add_argument(
        "--nodes", type=at_least_one, default=1, metavar="N", help="spread over N nodes, on this port and the next (1)"
    )
    add_size(parser)


def add_size(parser: argparse.ArgumentParser) -> None:
    """Declare how large the city is."""
    parser.add_argument("--vehicles", type=_count, default=300, metavar="N", help="vehicles (%(default)s)")
    parser.add_argument("--people", type=_count, default=200, metavar="N", help="pedestrians (%(default)s)")
    parser.add_argument(
        "--subscribers", type=_count, default=36, metavar="N", help="roaming subscribers, each a client (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="another one makes another city (%(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Live until interrupted, with a line every ten seconds."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("locus.client").setLevel(logging.ERROR)  # a broker that is away is said once, not by each client
    stop = threading.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
    town = Town(arguments.seed, vehicles=arguments.vehicles, people=arguments.people, subscribers=arguments.subscribers)
    brokers = [(arguments.host, arguments.port + number) for number in range(arguments.nodes)]
    simulation = Simulation(town, brokers, _say)
    _say(
        f"city {arguments.seed}: {arguments.vehicles} vehicles and {arguments.people} people on "
        f"{len(town.streets.stretches)} stretches of street, {arguments.subscribers} roaming subscribers, "
        f"{len(town.workers)} workers, {town.sensors.topics} sensors, {len(town.fences)} fences. Ctrl-C ends it."
    )
    try:
        simulation.run(stop)
    finally:
        simulation.close()
    return 0


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def at_least_one(text: str) -> int:
    """A number that is not 0."""
    if not _count(text):
        raise argparse.ArgumentTypeError(f"{text!r} is too few: 1 or more")
    return int(text)

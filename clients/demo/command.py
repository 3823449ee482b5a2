"""`locus demo`: everything at once, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from clients.city.command import add_size, at_least_one
from clients.demo.plan import DemoError, planned
from clients.demo.processes import STOP_IN_VAIN_S, STOP_S, Guard
from clients.demo.show import Show
from clients.options import port_number

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `locus demo`."""
    parser.add_argument("--nodes", type=at_least_one, default=1, metavar="N", help="brokers, a cluster if several (1)")
    add_size(parser)
    parser.add_argument("--no-spark", action="store_true", help="leave the Spark pipeline out")
    parser.add_argument("--no-dashboard", action="store_true", help="leave the page out")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="keep data and logs here (a directory that is removed in the end)"
    )
    ports = parser.add_argument_group("ports", "All are ports of 127.0.0.1.")
    ports.add_argument(
        "-p", "--port", type=port_number, default=1883, help="the broker; further nodes follow (%(default)s)"
    )
    ports.add_argument(
        "--websocket-port", type=port_number, default=8083, metavar="PORT", help="WebSockets (%(default)s)"
    )
    ports.add_argument(
        "--dashboard-port", type=port_number, default=8080, metavar="PORT", help="the page (%(default)s)"
    )
    ports.add_argument(
        "--metrics-port",
        type=port_number,
        default=9464,
        metavar="PORT",
        help="Prometheus; further nodes follow (%(default)s)",
    )
    ports.add_argument(
        "--nats-port", type=port_number, default=4222, metavar="PORT", help="NATS, for nodes (%(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Show it until interrupted; what stands in the way is said in a sentence."""
    try:
        return _run(arguments)
    except DemoError as error:
        print(f"locus demo: {error}", file=sys.stderr)
    except OSError as error:
        where = f"{error.filename}: {error.strerror}; choose another directory with --data" if error.filename else error
        print(f"locus demo: {where}", file=sys.stderr)
    return 1


def _run(arguments: argparse.Namespace) -> int:
    told: list[int] = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda got, _: told.append(got))
    # Before any directory is made: most of what can stand in the way does so here.
    planned(arguments, Path()).check_ports()
    guard = Guard()
    try:
        if arguments.data is None:
            data, patience_s = Path(tempfile.mkdtemp(prefix="locus-demo-")), STOP_IN_VAIN_S
            guard.tidy(data)
        else:
            data, patience_s = arguments.data.resolve(), STOP_S
            data.mkdir(parents=True, exist_ok=True)
        return Show(planned(arguments, data), guard, told, patience_s).run()
    finally:
        guard.close()

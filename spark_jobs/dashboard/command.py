"""`locus dashboard`: a page that shows what a broker does, live and over time."""

from __future__ import annotations

import errno
import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse

PASSWORD_VARIABLE: Final = "LOCUS_DASHBOARD_PASSWORD"  # noqa: S105 - the name of a variable, not a password
HOW_TO_GET_IT: Final = "The dashboard needs NiceGUI: pip install 'locus-mqtt[dashboard]'"
SHORTEST: Final = 8


class UsageError(Exception):
    """The options cannot be used together, or name what is not there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--host", default="127.0.0.1", help="where the page is served (%(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="its port (%(default)s)")
    parser.add_argument(
        "--broker",
        default="127.0.0.1:1883",
        metavar="HOST:PORT",
        help="the broker to show, also mqtt[s]://user@host:port with the password in LOCUS_PASSWORD (%(default)s)",
    )
    parser.add_argument("--lake", type=Path, metavar="DIR", help="the pipeline's lake, for history and decisions")
    parser.add_argument(
        "--topics",
        action="append",
        metavar="FILTER",
        help="what the map shows: topics with lon and lat in their JSON; several may be given (the simulated city)",
    )
    parser.add_argument(
        "--receipts", default="city/jobs/receipts", metavar="TOPIC", help="where receipts are sent (%(default)s)"
    )
    parser.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help=f"a file whose first line is the page's password; else the environment variable {PASSWORD_VARIABLE}",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until interrupted; problems that a person can solve are said in a line."""
    if find_spec("nicegui") is None:
        print(HOW_TO_GET_IT, file=sys.stderr)
        return 2
    from spark_jobs.dashboard.feed import BadBrokerError

    try:
        password = password_of(arguments)
        check_host(arguments.host, password)
        return _serve(arguments, password)
    except (UsageError, BadBrokerError) as error:
        print(f"locus dashboard: {error}", file=sys.stderr)
        return 2


def password_of(arguments: argparse.Namespace) -> str | None:
    """The page's password; None where none is set.

    Raises:
        UsageError: the file cannot be read, or the password is too short to be one.
    """
    path: Path | None = arguments.password_file
    if path is None:
        password = os.environ.get(PASSWORD_VARIABLE) or None
    else:
        try:
            password = path.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the password from {path}: {error}") from error
    if password is not None and len(password) < SHORTEST:
        raise UsageError(f"a password of {len(password)} characters is too short; it has at least {SHORTEST}")
    return password


def check_host(host: str, password: str | None) -> None:
    """Whether the page may be served there.

    Raises:
        UsageError: others could reach it, and it has no password.
    """
    from spark_jobs.dashboard.gate import is_loopback

    if not is_loopback(host) and password is None:
        raise UsageError(
            f"--host {host} lets other machines see the page and draw fences: give it a password with --password-file "
            f"or {PASSWORD_VARIABLE}, or serve it on 127.0.0.1"
        )


def _serve(arguments: argparse.Namespace, password: str | None) -> int:
    import uvicorn

    from spark_jobs.dashboard.app import build_app
    from spark_jobs.dashboard.desk import Desk, Options
    from spark_jobs.dashboard.feed import CITY_FILTERS, read_address

    topics = tuple(arguments.topics or CITY_FILTERS)
    lake = None if arguments.lake is None else arguments.lake.absolute()
    options = Options(read_address(arguments.broker), topics, arguments.receipts, lake)
    listener = _listen(arguments.host, arguments.port)
    shown = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    app = build_app(Desk(options), password)
    print(f"Dashboard: http://{shown}:{listener.getsockname()[1]}/ (broker {options.broker.shown})", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2, lifespan="on"))
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        return 0
    return 0


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of {host} is taken: choose another with --port, 0 for any") from None
        raise UsageError(f"cannot serve on {host}:{port}: {error}") from None
    listener.listen(100)
    return listener

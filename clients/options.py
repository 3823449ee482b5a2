"""Options that several commands share: which broker, how to come in, and the space of coordinates."""

from __future__ import annotations

import argparse
import os
import re
import ssl
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from broker_plugins.grammar import WGS84, GrammarError, Space, plane
from clients.client import LocusClient
from clients.errors import LocusClientError

if TYPE_CHECKING:
    from collections.abc import Callable

PASSWORD_VARIABLE = "LOCUS_PASSWORD"  # noqa: S105 - the name of a variable, not a password
HIGHEST_PORT = 65_535
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m)?")
_SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), None: Fraction(1)}


class UsageError(Exception):
    """The options cannot be used together, or name what is not there."""


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Declare how to reach the broker; `-h` is the host, as mosquitto's clients have it, and `--help` is help."""
    parser.conflict_handler = "resolve"
    group = parser.add_argument_group("connection")
    group.add_argument("-h", "--host", default="127.0.0.1", help="the broker (%(default)s)")
    group.add_argument("-p", "--port", type=port_number, help="its port (1883; 8883 with TLS, 8083 with --websockets)")
    group.add_argument("-i", "--id", default="", metavar="NAME", help="client identifier (the broker chooses)")
    group.add_argument("-u", "--username", metavar="NAME", help="user name")
    group.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help=f"a file whose first line is the password; else the environment variable {PASSWORD_VARIABLE}",
    )
    group.add_argument("--tls", action="store_true", help="encrypt, and check the broker with the system's authorities")
    group.add_argument("--cafile", type=Path, metavar="FILE", help="check the broker with these authorities (PEM)")
    group.add_argument("--cert", type=Path, metavar="FILE", help="this client's certificate (PEM)")
    group.add_argument("--key", type=Path, metavar="FILE", help="its key (PEM)")
    group.add_argument("--websockets", action="store_true", help="connect over WebSockets")
    group.add_argument("--timeout", type=seconds, default=10.0, metavar="TIME", help="longest wait for an answer (10s)")
    add_space(group)


def add_space(parser: argparse._ActionsContainer) -> None:
    """Declare the space of coordinates."""
    parser.add_argument(
        "--plane",
        metavar="W,S,E,N",
        type=_plane,
        default=WGS84,
        help="coordinates are metres in a plane with these bounds, not degrees (write --plane=-5,… if W is negative)",
    )


def client_from(arguments: argparse.Namespace) -> LocusClient:
    """The client the options describe, not yet connected."""
    tls = _tls(arguments)
    port = arguments.port or (8883 if tls else 8083 if arguments.websockets else 1883)
    password = _password(arguments)
    if password is not None and arguments.username is None:
        if arguments.password_file is not None:
            raise UsageError("a password needs a user name: give -u NAME")
        password = None  # the variable may be there for another command
    return LocusClient(
        arguments.host,
        port,
        client_id=arguments.id,
        username=arguments.username,
        password=password,
        tls=tls,
        transport="websockets" if arguments.websockets else "tcp",
        timeout_s=arguments.timeout,
        space=arguments.plane,
    )


def guarded(command: str, work: Callable[[], int]) -> int:
    """Do the work of a command; what goes wrong becomes one line on standard error and exit code 1."""
    try:
        return work()
    except GrammarError as error:
        print(error.render(), file=sys.stderr)
    except (LocusClientError, UsageError, ValueError) as error:
        print(f"locus {command}: {error}", file=sys.stderr)
    except BrokenPipeError:
        # Whoever read our output has gone. Python would complain once more when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"locus {command}: {error}", file=sys.stderr)
    return 1


def port_number(text: str) -> int:
    """A port one can connect to, or listen on."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= HIGHEST_PORT):
        raise argparse.ArgumentTypeError(f"'{text}' is no port: 1 to {HIGHEST_PORT} are")
    return int(text)


def seconds(text: str) -> float:
    """A duration such as 250ms, 1.5s, 2m or 3, in seconds."""
    found = _DURATION.fullmatch(text)
    value = float(Fraction(found[1]) * _SECONDS[found[2]]) if found else 0.0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration above 0: for example 250ms, 1.5s or 2m")
    return value


def numbers(*names: str) -> Callable[[str], tuple[float, ...]]:
    """A reader of so many comma-separated numbers."""

    def read(text: str) -> tuple[float, ...]:
        try:
            values = tuple(map(float, text.split(",")))
        except ValueError:
            values = ()
        if len(values) != len(names):
            raise argparse.ArgumentTypeError(f"'{text}' is not {','.join(names)}")
        return values

    return read


def _plane(text: str) -> Space:
    try:
        west, south, east, north = map(float, text.split(","))
        return plane(west, south, east, north)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' are not the bounds of a plane: W,S,E,N with W < E and S < N, for example 0,0,60,25"
        ) from None


def _password(arguments: argparse.Namespace) -> str | None:
    path: Path | None = arguments.password_file
    if path is None:
        return os.environ.get(PASSWORD_VARIABLE)
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the password from {path}: {error}") from error


def _tls(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    if not (arguments.tls or arguments.cafile or arguments.cert):
        if arguments.key:
            raise UsageError("--key without --cert: give the certificate the key belongs to")
        return None
    try:
        context = ssl.create_default_context(cafile=arguments.cafile)
        if arguments.cert:
            context.load_cert_chain(arguments.cert, arguments.key)
    except OSError as error:  # an SSLError is one
        raise UsageError(f"cannot use the certificates given: {error}") from error
    return context

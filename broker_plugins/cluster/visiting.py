"""The way to a fabric: for a node, and for commands that have a look at one without being a node."""

from __future__ import annotations

import asyncio
import os
import ssl
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import nats

from broker_plugins.cluster.mail_reader import FAULTS
from broker_plugins.cluster.options import ClusterOptions
from broker_plugins.engine import EngineError

if TYPE_CHECKING:
    import argparse

    from nats.aio.client import Client

PLUGIN: Final = "broker_plugins.cluster.plugin.ClusterPlugin"
PASSWORD: Final = "LOCUS_NATS_PASSWORD"  # noqa: S105  the name of a variable of the environment
VISIT_S: Final = 5.0
FILES: Final = ("credentials_file", "tls_ca_file", "tls_certificate_file", "tls_key_file")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options by which a command finds a fabric and is let in."""
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="configuration of a node, whose way to the fabric is taken"
    )
    parser.add_argument(
        "--server", metavar="URL", help="a NATS server of the fabric, tls:// with TLS (nats://127.0.0.1:4222)"
    )
    parser.add_argument("--cluster", metavar="NAME", help="name of the cluster (locus)")
    parser.add_argument("--user", help=f"user at the fabric; its password comes from a file or from {PASSWORD}")
    parser.add_argument("--password-file", type=Path, metavar="FILE", help="file with the password of that user")
    parser.add_argument("--credentials-file", metavar="FILE", help="NATS credentials, in place of user and password")
    parser.add_argument("--tls-ca-file", metavar="FILE", help="certificates that the fabric's own is checked against")
    parser.add_argument("--tls-certificate-file", metavar="FILE", help="certificate to show to the fabric")
    parser.add_argument("--tls-key-file", metavar="FILE", help="key of that certificate")


def options_of(arguments: argparse.Namespace) -> ClusterOptions:
    """The way that was said on a command line, in the environment and in a node's configuration, in this order.

    Raises:
        EngineError: a file cannot be read, or a password stands where others can see it.
    """
    options = ClusterOptions() if arguments.config is None else _configured(arguments.config)
    chosen: dict[str, Any] = {
        word: getattr(arguments, word) for word in ("cluster", "user", *FILES) if getattr(arguments, word)
    }
    if arguments.server:
        if urlsplit(arguments.server).password:
            raise EngineError(
                f"--server: a password in a command line is seen by everybody: use --user, and {PASSWORD} or"
                " --password-file"
            )
        chosen |= {"servers": [arguments.server], "embedded": False}
    password = os.environ.get(PASSWORD, "")
    if arguments.password_file is not None:
        try:
            password = arguments.password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise EngineError(f"--password-file: cannot read {arguments.password_file}: {error}") from error
    if password:
        chosen["password"] = password
    if "user" in chosen and "credentials_file" not in chosen:
        chosen["credentials_file"] = ""  # what was said here goes before what the configuration has
    options = replace(options, **chosen)
    for word in FILES:
        file = getattr(options, word)
        if file and not Path(file).is_file():
            raise EngineError(f"{word}: there is no file {file!r} in {Path.cwd()}")
    return options


def _configured(path: Path) -> ClusterOptions:
    from broker_plugins.configuration import ConfigurationError, plugins, read

    try:
        found = dict(plugins(read(path)))
    except ConfigurationError as error:
        raise EngineError(f"--config: {error}") from error
    if PLUGIN not in found:
        raise EngineError(f"--config: {path} is no node's: it has no {PLUGIN} under `plugins:`")
    return ClusterOptions(**(found[PLUGIN] or {}))


def servers_of(options: ClusterOptions) -> list[str]:
    """Where the fabric is."""
    return [f"nats://127.0.0.1:{options.embedded_port}"] if options.embedded else list(options.servers)


def proofs_of(options: ClusterOptions) -> dict[str, Any]:
    """What is shown to the fabric to be let in, as `nats.connect` takes it.

    Raises:
        OSError: a certificate cannot be read.
    """
    proofs: dict[str, Any] = {}
    if options.credentials_file:
        proofs["user_credentials"] = options.credentials_file
    elif options.user:
        proofs |= {"user": options.user, "password": options.password}
    if options.tls_ca_file or options.tls_certificate_file:
        context = ssl.create_default_context(cafile=options.tls_ca_file or None)
        if options.tls_certificate_file:
            context.load_cert_chain(options.tls_certificate_file, options.tls_key_file or None)
        proofs["tls"] = context
    return proofs


async def visit(options: ClusterOptions) -> Client:
    """A connection to a fabric, for somebody who is no node.

    Raises:
        EngineError: there is no fabric, or it does not let us in.
    """
    failed: list[Exception] = []

    async def note(error: Exception) -> None:
        failed.append(error)

    servers = servers_of(options)
    try:
        connecting = nats.connect(
            servers,
            connect_timeout=2,
            max_reconnect_attempts=1,
            reconnect_time_wait=0.1,
            error_cb=note,
            **proofs_of(options),
        )
        return await asyncio.wait_for(connecting, VISIT_S)
    except (*FAULTS, ValueError) as error:
        raise EngineError(_why(", ".join(servers), [*failed, error])) from error


def _why(servers: str, errors: list[Exception]) -> str:
    for error in errors:
        said = str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message
            return f"{servers}: its certificate is not trusted ({why}): name who signed it with --tls-ca-file"
        if isinstance(error, ssl.SSLError):
            return f"{servers}: TLS failed ({error.reason}): does it want --tls-certificate-file and --tls-key-file?"
        if "authorization" in said.lower() or "authentication" in said.lower():
            return (
                f"{servers} does not let us in ({said}): say who we are with --config, --credentials-file, or --user"
                f" and {PASSWORD}"
            )
        if "tls" in said.lower():
            return f"{servers} wants TLS ({said}): name who signed its certificate with --tls-ca-file"
    return f"no NATS server answers at {servers}: is it running, and is this its URL?"

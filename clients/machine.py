"""What a machine has: free ports, Java, installed packages. `locus doctor` and `locus demo` ask here."""

from __future__ import annotations

import errno
import shutil
import socket
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import psutil


def why_taken(host: str, port: int) -> str | None:
    """Why a port cannot be listened on, in a few words; None if it can."""
    if not 0 < port < 65_536:
        return "is no port: 1 to 65535 are"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                holder = who_listens(port)
                return f"is taken by {holder}" if holder else "is taken"
            return f"cannot be used ({error.strerror})"
    return None


def who_listens(port: int) -> str | None:
    """Name and process of who listens on a port; None where that cannot be known."""
    process = _listener(port)
    try:
        return None if process is None else f"{process.name()} (process {process.pid})"
    except psutil.Error:  # it has just ended, or is not ours to look at
        return None


def locus_listens(port: int) -> bool:
    """Whether a `locus` command of this machine is known to listen on a port."""
    process = _listener(port)
    try:
        words = [] if process is None else process.cmdline()
    except psutil.Error:
        return False
    return "clients.cli" in words or any(Path(word).name == "locus" for word in words[:2])


def _listener(port: int) -> psutil.Process | None:
    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.pid is not None
            if listens and connection.laddr and connection.laddr.port == port:
                return psutil.Process(connection.pid)
    except psutil.Error:  # some systems tell it only to root, or it has just ended
        return None
    return None


def installed(distribution: str) -> str | None:
    """The version of an installed distribution; None if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def importable(module: str) -> bool:
    """Whether a module is there, without importing it (though the packages around it are)."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package it would be in
        return False


def nats_program() -> str | None:
    """Where the NATS server is: the one installed with us, else the one on the path; None if there is none."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


def why_no_java() -> str | None:
    """Why Spark would find no Java to run on, and how to get one; None if it would."""
    from spark_jobs.session import JavaMissingError, require_java

    try:
        require_java()
    except JavaMissingError as error:
        return str(error)
    return None

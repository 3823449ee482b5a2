"""`locus passwd`: who may come in, in the password file that amqtt's `FileAuthPlugin` reads."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rl_policy.whole_file import write_whole

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `locus passwd`."""
    parser.add_argument("file", type=Path, help="the password file; made if it is not there")
    parser.add_argument("user", help="whose password is set")
    parser.add_argument("--remove", action="store_true", help="let this user in no more")


def run(arguments: argparse.Namespace) -> int:
    """Set, change or remove a user's password. A running broker reads the file when it is started again."""
    user: str = arguments.user
    if not user or ":" in user or user.startswith("#") or user != user.strip() or "\n" in user:
        return _fail(f"{user!r} cannot be a user name: no colon, no # at its beginning, no space around it")
    try:
        lines = arguments.file.read_text(encoding="utf-8").splitlines() if arguments.file.exists() else []
        kept = [line for line in lines if line.strip().split(":", 1)[0] != user]
        if arguments.remove:
            if len(kept) == len(lines):
                return _fail(f"{arguments.file} has no user {user!r}")
        else:
            password = _password()
            if not password:
                return _fail("an empty password lets nobody in; say another one")
            kept.append(f"{user}:{_hashed(password)}")
        _write(arguments.file, "".join(f"{line}\n" for line in kept))
    except OSError as error:
        return _fail(f"{arguments.file}: {error.strerror}")
    print(f"{arguments.file}: {user} {'removed' if arguments.remove else 'set'}; restart the broker to let it know")
    return 0


def _password() -> str:
    """Asked for twice at a terminal, one line otherwise; never a word of the command, which others can see."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    first, second = getpass.getpass("Password: "), getpass.getpass("Again: ")
    return first if first == second else ""


def _hashed(password: str) -> str:
    from pwdlib.hashers.argon2 import Argon2Hasher

    return Argon2Hasher().hash(password)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and for nobody else to read."""
    write_whole(path, text.encode())


def _fail(reason: str) -> int:
    print(f"locus passwd: {reason}", file=sys.stderr)
    return 1

"""A broker's configuration, looked through before amqtt has it: what is wrong is said with its place and a remedy.

amqtt checks the same again when it takes the configuration, but names neither the plugin nor what might be meant.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import re
import socket
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

DEFAULT_CONFIGURATION = Path(__file__).parent / "default_broker.yaml"
FILES_OF_A_LISTENER = ("cafile", "capath", "certfile", "keyfile")
HIGHEST_PORT = 65_535
CLUSTER_REMEDY = "pip install 'locus-mqtt[cluster]'"
HOW_TO_BEGIN = "`locus broker --print-config` prints one that works"


class ConfigurationError(Exception):
    """The configuration cannot be used."""


def read(path: Path) -> dict[str, Any]:
    """The configuration in a file, looked through.

    Raises:
        ConfigurationError: it cannot be read, or something in it cannot be used.
    """
    try:
        configuration = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"cannot read {path}: there is no such file; {HOW_TO_BEGIN}") from None
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"cannot read {path}: it is not UTF-8 at byte {error.start}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigurationError(f"{path}{place}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not YAML: {error}") from error
    if not configuration:
        raise ConfigurationError(f"{path} is empty: it needs `listeners:` and `plugins:`; {HOW_TO_BEGIN}")
    if not isinstance(configuration, dict):
        raise ConfigurationError(f"{path} has no `listeners:` and `plugins:`, which it needs; {HOW_TO_BEGIN}")
    look_through(configuration)
    return configuration


def look_through(configuration: Mapping[str, Any]) -> None:
    """Say what is wrong in a configuration.

    Raises:
        ConfigurationError: something in it cannot be used.
    """
    from amqtt.contexts import BrokerConfig

    words = [field.name for field in fields(BrokerConfig)]
    _known((word.replace("-", "_") for word in configuration), words, "the configuration")
    if not isinstance(configuration.get("listeners"), dict) or "default" not in configuration["listeners"]:
        raise ConfigurationError(
            "`listeners:` needs one that is called `default`, for instance `default: {type: tcp, bind: 127.0.0.1:1883}`"
        )
    for name, listener in configuration["listeners"].items():
        _look_at_listener(f"listener {name!r}", listener)
    for path, options in plugins(configuration):
        _look_at_plugin(path, options)


def plugins(configuration: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The paths of the plugins with their options, which a configuration may have as a mapping or as a list."""
    named = configuration.get("plugins") or {}
    if not isinstance(named, (dict, list)):
        raise ConfigurationError(f"`plugins:` is {named!r}: it needs the path of a plugin and its options in each line")
    for each in [named] if isinstance(named, dict) else named:
        if isinstance(each, dict):
            yield from each.items()
        else:
            yield str(each), None


def why_not_started(error: BaseException, configuration: Mapping[str, Any]) -> str:
    """Why a broker did not start, in a sentence."""
    for cause in _chain(error):
        if isinstance(cause, socket.gaierror):
            return f"cannot listen on {_binds(configuration)}: {cause.strerror}; `bind:` is an address of this machine"
        if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
            return (
                f"cannot listen on {_address(cause) or _binds(configuration)}: address already in use. Stop whoever "
                "listens there (`locus doctor` says who it is), or choose another `bind:`"
            )
        if isinstance(cause, OSError) and cause.errno == errno.EADDRNOTAVAIL:
            return (
                f"cannot listen on {_address(cause) or _binds(configuration)}: this machine has no such address; "
                "127.0.0.1 is for clients on this machine, 0.0.0.0 for all"
            )
    return causes(error)


def causes(error: BaseException) -> str:
    """What an error says, and what those say that led to it."""
    parts: list[str] = []
    for each in _chain(error):
        text = str(each)
        if text and not any(text in part for part in parts):
            parts.append(text)
    return ": ".join(parts) or type(error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    yield error
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
        yield error


def _address(error: OSError) -> str | None:
    found = re.search(r"\('([^']+)', (\d+)", str(error))
    return f"{found[1]}:{found[2]}" if found else None


def _binds(configuration: Mapping[str, Any]) -> str:
    return ", ".join(str(listener.get("bind")) for listener in configuration["listeners"].values())


def _look_at_listener(what: str, listener: object) -> None:
    from amqtt.contexts import ListenerConfig, ListenerType

    if not isinstance(listener, dict):
        raise ConfigurationError(f"{what} is {listener!r}: it needs `type:` and `bind:`")
    _known(listener, [field.name for field in fields(ListenerConfig)], what)
    kinds = [str(kind.value) for kind in ListenerType]
    if listener.get("type", "tcp") not in kinds:
        raise ConfigurationError(
            f"{what}: type {listener['type']!r} is none of {', '.join(kinds)}{_meant(listener['type'], kinds)}"
        )
    bind = listener.get("bind")
    if bind is not None and not _has_port(bind):
        raise ConfigurationError(
            f'{what}: bind {bind!r} is no address and port, such as "127.0.0.1:1883"; ports go up to {HIGHEST_PORT}'
        )
    for word in FILES_OF_A_LISTENER:
        file = listener.get(word)
        if file is not None and not Path(file).exists():
            raise ConfigurationError(
                f"{what}: there is no {word} {file!r} in {Path.cwd()}; "
                "the guide on securing a broker says how to make a certificate"
            )


def _has_port(bind: object) -> bool:
    # As amqtt has it: 127.0.0.1:1883, [::1]:1883, or a port for all addresses, with or without a colon.
    if not isinstance(bind, str):
        return False
    port = bind.rpartition(":")[2]
    return port.isascii() and port.isdecimal() and int(port) <= HIGHEST_PORT


def _look_at_plugin(path: str, options: object) -> None:
    from dacite import Config, DaciteError, UnexpectedDataError, from_dict

    from broker_plugins.engine import EngineError

    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name or path)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "nats":
            raise ConfigurationError(f"plugin {path} needs nats, which is not installed: {CLUSTER_REMEDY}") from error
        raise ConfigurationError(
            f"plugin {path}: there is no module {error.name!r}; Python looks for it beside the configuration file, "
            "among what is installed and in PYTHONPATH"
        ) from error
    except ImportError as error:
        raise ConfigurationError(f"plugin {path} cannot be imported: {causes(error)}") from error
    plugin = getattr(module, name, None)
    if plugin is None:
        classes = [each for each in vars(module) if isinstance(getattr(module, each), type)]
        raise ConfigurationError(f"plugin {path}: the module has no class {name!r}{_meant(name, classes)}")
    options = {} if options is None else options
    if not isinstance(options, dict):
        raise ConfigurationError(f"plugin {path}: its options are {options!r}; they are words with values, or {{}}")
    passwords = options.get("password_file")
    if isinstance(passwords, str) and not Path(passwords).exists():
        raise ConfigurationError(
            f"plugin {path}: there is no password_file {passwords!r}; `locus passwd {passwords} USER` writes one"
        )
    declared = getattr(plugin, "Config", None)
    if not (isinstance(declared, type) and is_dataclass(declared)):
        return  # amqtt says what a plugin has to be
    _known(options, [field.name for field in fields(declared)], f"plugin {path}")
    try:
        from_dict(data_class=declared, data=options, config=Config(strict=True))
    except UnexpectedDataError as error:
        raise ConfigurationError(f"plugin {path}: {', '.join(map(repr, error.keys))} is no option of it") from error
    except (DaciteError, EngineError, ValueError, TypeError) as error:
        raise ConfigurationError(f"plugin {path}: {causes(error)}") from error


def _known(words: Iterable[str], known: list[str], what: str) -> None:
    for word in words:
        if word not in known:
            remedy = _meant(word, known) or (f"; it may have {', '.join(known)}" if known else "; it has none")
            raise ConfigurationError(f"{what} has no option {word!r}{remedy}")


def _meant(word: object, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""

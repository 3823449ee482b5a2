"""The list of who may do what: filters inside filters against brute force, and the example over real sockets."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from broker_plugins.access_list import AccessListOptions, covers, filled_in
from broker_plugins.engine import EngineError
from broker_plugins.engine.topics import filter_fault, matches
from tests.brokers import free_port, needs_mosquitto

REPOSITORY = Path(__file__).parents[2]
LEVELS = ["a", "b", "$x", ""]
TOPICS = ["/".join(levels) for depth in range(1, 5) for levels in itertools.product([*LEVELS, "new"], repeat=depth)]
filters = (
    st.lists(st.sampled_from([*LEVELS, "+", "#"]), min_size=1, max_size=3)
    .map("/".join)
    .filter(lambda text: filter_fault(text) is None)
)


@example("+/#", "#")
@example("#", "+/#")
@given(filters, filters)
def test_a_filter_covers_another_if_it_matches_all_its_topics(allowed: str, wanted: str) -> None:
    assert covers(allowed, wanted) == all(matches(allowed, topic) for topic in TOPICS if matches(wanted, topic))


def test_a_wildcard_is_not_allowed_by_a_narrower_one() -> None:
    assert not covers("a/+", "a/#")
    assert not covers("a/+/#", "a/#")
    assert covers("a/#", "a")


@pytest.mark.parametrize("name", ["", None, "a/b", "+", "#"])
def test_a_name_that_means_something_else_is_not_filled_in(name: str | None) -> None:
    assert filled_in("fleet/%u/pos", {"%u": name, "%c": "c"}) is None
    assert filled_in("fleet/%c/pos", {"%u": name, "%c": "c"}) == "fleet/c/pos"
    assert filled_in("fleet/100%u", {"%u": name, "%c": "c"}) == "fleet/100%u"


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"reads": ["a"]}, "'reads' is not known"),
        ({"read": "a/#"}, "no list of topic filters"),
        ({"write": ["a/#/b"]}, "'#' stands alone"),
        ({"write": [7]}, "a filter is text"),
        (["a"], "no mapping"),
    ],
)
def test_a_list_that_is_none_is_refused_by_name(rules: object, said: str) -> None:
    with pytest.raises(EngineError, match=said):
        AccessListOptions(users={"eve": rules})  # type: ignore[dict-item]


def passwd(directory: Path, user: str, password: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clients.cli", "passwd", "passwords", user, *options],
        cwd=directory,
        env={"PYTHONPATH": str(REPOSITORY)},
        input=password + "\n",
        capture_output=True,
        text=True,
        check=False,
    )


def test_passwords_are_set_changed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    file.write_text("# fleet\nold:hash\n")
    assert passwd(tmp_path, "operator", "one").returncode == 0
    first = file.read_text()
    assert passwd(tmp_path, "operator", "two").returncode == 0
    second = file.read_text()
    assert first != second
    assert second.startswith("# fleet\nold:hash\noperator:$argon2")
    assert second.count("operator") == 1
    assert "two" not in second
    assert file.stat().st_mode & 0o077 == 0
    assert passwd(tmp_path, "operator", "", "--remove").returncode == 0
    assert file.read_text() == "# fleet\nold:hash\n"
    for user, password, said in (("a:b", "x", "'a:b'"), ("eve", "", "empty password")):
        refused = passwd(tmp_path, user, password)
        assert refused.returncode == 1
        assert said in refused.stderr
    assert "no user 'eve'" in passwd(tmp_path, "eve", "", "--remove").stderr


@needs_mosquitto
def test_the_secure_example(tmp_path: Path) -> None:
    """TLS, passwords and the list of examples/secure/broker.yaml, with Mosquitto's clients."""
    port = free_port()
    configuration = yaml.safe_load((REPOSITORY / "examples/secure/broker.yaml").read_text())
    configuration["listeners"]["default"]["bind"] = f"127.0.0.1:{port}"
    (tmp_path / "broker.yaml").write_text(yaml.safe_dump(configuration))
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    subprocess.run(
        [*command.split(), "-keyout", "broker.key", "-out", "broker.crt"], cwd=tmp_path, check=True, capture_output=True
    )
    for user in ("operator", "truck-7"):
        assert passwd(tmp_path, user, f"{user}'s secret").returncode == 0
    with (tmp_path / "log").open("w") as log:
        broker = subprocess.Popen(
            [sys.executable, "-m", "clients.cli", "broker", "-c", "broker.yaml"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(REPOSITORY)},
            stdout=log,
            stderr=log,
        )

    def mosquitto(
        program: str, user: str, *words: str, password: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        path = shutil.which(f"mosquitto_{program}")
        assert path is not None
        login = ["-u", user, "-P", password or f"{user}'s secret"]
        where = ["-h", "localhost", "-p", str(port), "--cafile", str(tmp_path / "broker.crt")]
        return subprocess.run([path, *where, *login, *words], capture_output=True, text=True, check=False, timeout=120)

    try:
        ready = ["-t", "$SYS/broker/version", "-C", "1", "-W", "60"]
        while mosquitto("sub", "operator", *ready).returncode and broker.poll() is None:
            pass
        assert broker.poll() is None, (tmp_path / "log").read_text()
        assert mosquitto("sub", "operator", *ready, password="guess").returncode != 0
        position = ["-q", "1", "-r", "-m", '{"lon": 126.97, "lat": 37.56}']
        assert mosquitto("pub", "truck-7", "-t", "fleet/truck-7/pos", *position).returncode == 0
        acknowledged = mosquitto("pub", "truck-7", "-t", "fleet/truck-8/pos", *position)  # and dropped
        assert acknowledged.returncode == 0
        assert mosquitto("pub", "operator", "-t", "fleet/truck-9/pos", *position).returncode == 0
        seen = mosquitto("sub", "operator", "-v", "-t", "fleet/+/pos", "-C", "2", "-W", "60").stdout
        assert [line.split()[0] for line in seen.splitlines()] == ["fleet/truck-7/pos", "fleet/truck-9/pos"]
        inside = "$geo/circle:126.97,37.56,1km/"
        assert "fleet/truck-7" in mosquitto("sub", "truck-7", "-v", "-t", inside + "fleet/+/pos", "-C", "1").stdout
        for refused in ("#", "fleet/#", inside + "fleet/#", "$share/g/#", "fleet/orders/+"):
            assert "denied" in mosquitto("sub", "truck-7", "-t", refused, "-W", "5").stderr, refused
    finally:
        broker.terminate()
        broker.wait()
    assert "secret" not in (tmp_path / "log").read_text()

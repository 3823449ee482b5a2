from __future__ import annotations

import io
import ssl
import subprocess
import sys

import pytest

from clients.cli import main
from tests.clients.scripted_broker import ScriptedBroker
from tests.mqtt_wire import Kind


@pytest.fixture
def scripted():
    with ScriptedBroker() as broker:
        yield broker


def pub(scripted, *words: str) -> int:
    return main(["pub", "-p", str(scripted.port), *words])


@pytest.mark.parametrize(
    ("words", "topic"),
    [
        ([], "a/b"),
        (["--at", "126.97,37.56"], "a/b/@at:126.97,37.56"),
        (["--at=-0.13,51.5"], "a/b/@at:-0.13,51.5"),
        (["--area", "1,2,3,4"], "a/b/@area:1,2,3,4"),
        (["--top", "3", "--ttl", "250ms"], "a/b/@top:3;ttl:250ms"),
        (["--ttl", "1.5m", "--reply", "me/receipts"], "a/b/@ttl:90s;reply:me/receipts"),
        (["--plane", "0,0,500,500", "--at", "300,400"], "a/b/@at:300,400"),
    ],
)
def test_it_publishes_with_clauses(scripted, words, topic):
    assert pub(scripted, "a/b", "-m", "hello", *words) == 0
    scripted.wait_for(Kind.PUBLISH)
    assert scripted.published == [(topic, b"hello")]


def test_qos_and_retain(scripted):
    assert pub(scripted, "a", "-m", "x", "-q", "1", "-r") == 0
    (sent,) = scripted.all(Kind.PUBLISH)
    assert (sent.qos, sent.retain) == (1, True)


def test_payloads_from_a_file_from_standard_input_and_none(scripted, tmp_path, monkeypatch):
    (tmp_path / "payload").write_bytes(b"\xff\x00")
    assert pub(scripted, "a", "-f", str(tmp_path / "payload"), "-q", "1") == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped")))
    assert pub(scripted, "a", "-f", "-", "-q", "1") == 0
    assert pub(scripted, "a", "-n", "-q", "1") == 0
    assert scripted.published == [("a", b"\xff\x00"), ("a", b"piped"), ("a", b"")]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--at", "37.56,126.97"], "latitude 126.97 is not in -90..90"),
        (["--top", "0"], "top must be at least 1"),
        (["--reply", "$SYS/x"], "reply topic must not begin"),
        (["-i", "x" * 3, "--password-file", __file__], "a password needs a user name"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_sent(scripted, words, error, capsys):
    assert pub(scripted, "a", "-m", "x", *words) == 1
    assert error in capsys.readouterr().err
    assert scripted.published == []


@pytest.mark.parametrize("words", [["--at", "1"], ["--at", "x,y"], ["--area", "1,2,3"], ["-q", "3"], ["-n"]])
def test_options_are_checked(scripted, words, capsys):
    with pytest.raises(SystemExit) as stopped:
        pub(scripted, "a", "-m", "x", *words)
    assert stopped.value.code == 2


def test_a_missing_file_is_named(scripted, capsys):
    assert pub(scripted, "a", "-f", "/nowhere/at/all") == 1
    assert "cannot read /nowhere/at/all" in capsys.readouterr().err


def test_the_password_comes_from_the_environment_or_a_file(scripted, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCUS_PASSWORD", "from-env")
    assert pub(scripted, "a", "-m", "x", "-u", "me") == 0
    (tmp_path / "password").write_text("from-file\n")
    assert pub(scripted, "a", "-m", "x", "-u", "me", "--password-file", str(tmp_path / "password")) == 0
    assert pub(scripted, "a", "-m", "x") == 0  # without -u the variable is not for us
    first, second, third = scripted.all(Kind.CONNECT)
    assert first.body.endswith(b"\x00\x02me\x00\x08from-env")
    assert second.body.endswith(b"\x00\x02me\x00\x09from-file")
    assert third.body[7] & 0xC0 == 0


def test_no_answer_is_an_error(scripted, capsys):
    scripted.silent = {Kind.PUBLISH}
    assert pub(scripted, "a", "-m", "x", "-q", "1", "--timeout", "100ms") == 1
    assert "did not acknowledge the message to 'a'" in capsys.readouterr().err


def test_tls_checks_the_broker(tmp_path, capsys):
    """A broker with a certificate nobody vouches for is refused, and taken with --cafile."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", key, "-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ScriptedBroker(context) as scripted:
        assert pub(scripted, "a", "-m", "x", "--tls") == 1
        assert "its certificate is not trusted: self-signed certificate" in capsys.readouterr().err
        assert pub(scripted, "a", "-m", "secret", "-q", "1", "--cafile", str(certificate)) == 0
        assert scripted.published == [("a", b"secret")]
        assert pub(scripted, "a", "-m", "x", "--cafile", str(tmp_path / "none")) == 1
        assert "certificates" in capsys.readouterr().err

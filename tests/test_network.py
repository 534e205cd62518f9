"""Nothing leaves the server: no page and no command asks another host."""

import socket

import pytest
from test_fuzz import NAMES, worker_that_ends  # noqa: F401
from test_pages import opened

from kvplan.cli import main

NEAR = ("127.0.0.1", "::1", "localhost", None, "")
SAMPLES = "docs/samples"


@pytest.fixture
def asked(monkeypatch):
    """Every host that somebody tried to reach, which nobody reaches."""
    found = []

    def refusing(usual):
        def connect(self, address, *rest):
            if self.family != getattr(socket, "AF_UNIX", None) and address[0] not in NEAR:
                found.append(address)
                raise OSError("no network in this test")
            return usual(self, address, *rest)

        return connect

    def resolve(host, *rest, usual=socket.getaddrinfo, **named):
        if host not in NEAR:
            found.append(host)
            raise OSError("no network in this test")
        return usual(host, *rest, **named)

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refusing(getattr(socket.socket, name)))
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return found


def test_the_check_sees_a_request(asked):
    with pytest.raises(OSError, match="no network"):
        socket.create_connection(("example.org", 80), timeout=1)
    with socket.socket() as one, pytest.raises(OSError, match="no network"):
        one.connect(("203.0.113.1", 80))
    assert asked == ["example.org", ("203.0.113.1", 80)]


@pytest.mark.parametrize("page", NAMES)
def test_no_page_asks_another_host(page, asked):
    opened({"model": "llama-3.1-70b", "tp": "4"}, page)
    assert asked == []


COMMANDS = (
    ("report",),
    ("report", "--hf-config", f"{SAMPLES}/config.json"),
    ("report", "--trace", f"{SAMPLES}/requests.csv"),
    ("link", "--base", "http://site.example/"),
    ("report", "--link", "http://site.example/?tp=4"),
    ("ceiling",),
    ("simulate", "--requests", "50"),
    ("levers",),
    ("fleet", "--set", "arrival_rate=1"),
    ("check", "docs/plans/evening-chat.toml"),
    ("sweep", "--axis", "tp=1,2"),
    ("log", f"{SAMPLES}/vllm.log", "--set", "gpu=h100-sxm"),
    ("figure", "ceiling"),
    ("review",),
    ("presets",),
    ("schema", "report"),
    ("accuracy",),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[:30])
def test_no_command_asks_another_host(command, asked, monkeypatch, request, capsys):
    monkeypatch.chdir(request.config.rootpath)
    assert main(command) in (0, 1)
    assert asked == []

"""The server as it is configured: healthy, closed to other sites, and silent about itself."""

import http.client
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest
from serving import serving

FOREIGN = "http://site.example"
UPLOAD = "/_stcore/upload_file/no-session/no-file"


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running.address


def asked(address: str, method: str = "GET", headers: dict | None = None, body: bytes | None = None):
    """The status and the headers of an answer, whatever it is."""
    request = urllib.request.Request(address, body, headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, reply.headers, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def form() -> tuple[dict, bytes]:
    """A file as a browser sends it."""
    body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\na,b\r\n--x--\r\n'
    return {"Content-Type": "multipart/form-data; boundary=x"}, body


def token(server: str) -> str:
    """The XSRF cookie that the server gives out."""
    _, headers, _ = asked(f"{server}/_stcore/health")
    (cookie,) = [cookie for cookie in headers.get_all("Set-Cookie") if cookie.startswith("_streamlit_xsrf=")]
    assert "SameSite" in cookie
    return cookie.partition("=")[2].partition(";")[0]


def test_health_answers_ok(server):
    status, _, body = asked(f"{server}/_stcore/health")
    assert (status, body) == (200, b"ok")


def test_an_upload_without_the_xsrf_token_is_refused(server):
    headers, body = form()
    cookie = {"Cookie": f"_streamlit_xsrf={token(server)}"}
    for given in ({}, cookie, cookie | {"X-Xsrftoken": "2|00|00|0"}, {"X-Xsrftoken": token(server)}):
        for method in ("PUT", "DELETE"):
            status, _, _ = asked(server + UPLOAD, method, headers | given, body if method == "PUT" else None)
            assert status == 403, (given, method)


def test_an_upload_with_the_token_but_of_no_session_is_refused(server):
    headers, body = form()
    value = token(server)
    status, _, _ = asked(
        server + UPLOAD, "PUT", headers | {"Cookie": f"_streamlit_xsrf={value}", "X-Xsrftoken": value}, body
    )
    assert status == 400


def test_other_sites_may_read_nothing(server):
    for path in ("/_stcore/health", "/_stcore/host-config", "/", "/_stcore/metrics"):
        _, headers, _ = asked(server + path, headers={"Origin": FOREIGN})
        assert headers.get("Access-Control-Allow-Origin") in (None, server), path


@pytest.mark.parametrize(("origin", "status"), [(FOREIGN, 403), (None, 101)])
def test_other_sites_may_open_no_session(server, origin, status):
    place = urlsplit(server)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol": "streamlit",
        "Origin": origin or server,
    }
    connection.request("GET", "/_stcore/stream", headers=headers)
    assert connection.getresponse().status == status
    connection.close()


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/app.py", "/.streamlit/config.toml"]
)
def test_no_file_of_the_machine_is_served(server, path):
    status, _, body = asked(server + path)
    assert b"root:" not in body
    assert b"import streamlit" not in body
    assert b"enableXsrf" not in body
    assert status in (200, 400, 403, 404)


def test_nobody_but_a_session_drives_the_app(server):
    """Streamlit's interface for agents stays off."""
    status, _, body = asked(
        f"{server}/_stcore/agent/interact", "POST", {"Content-Type": "application/json"}, b'{"query_params": {}}'
    )
    assert status in (403, 404, 405)
    assert b"ceiling" not in body.lower()

"""Somebody with a browser: its cookies, what it loads before it connects, and the files it sends and fetches."""

from __future__ import annotations

from contextlib import AsyncExitStack

import requests
from load import User, page_of, plan_of
from stream import Tab, messages, tab
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Common_pb2 import FileURLs
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState

BEFORE_CONNECTING = ("_stcore/health", "_stcore/host-config")
"""What a browser asks for before each connection; with the first it gets the token that uploads need."""
LONGEST_REQUEST_S = 30


class Visitor:
    """One browser at one address, known to the proxy's log by its seed. It has a `user` once it has opened a page."""

    user: User

    def __init__(self, address: str, seed: int):
        self.address, self.seed, self.http = address, seed, requests.Session()
        self.http.headers["X-Who"] = str(seed)

    @property
    def replica(self) -> str | None:
        """Which one it belongs to, as its cookie says."""
        return self.http.cookies.get("kvplan_replica")

    def get(self, path: str, **options) -> requests.Response:
        return self.http.get(f"{self.address}/{path}", timeout=LONGEST_REQUEST_S, **options)

    def connecting(self, page: str, session: str = ""):
        """A tab at this page, with what a browser asks for before; `session` is one that it had before."""
        for path in BEFORE_CONNECTING:
            self.get(path).raise_for_status()
        cookies = "; ".join(f"{name}={value}" for name, value in self.http.cookies.items())
        return tab(self.address, page, {"X-Who": str(self.seed), "Cookie": cookies}, session)

    async def open(self, stack: AsyncExitStack) -> None:
        """Open a page by its address."""
        self.get(page_of(self.seed)).raise_for_status()
        connected = await stack.enter_async_context(self.connecting(page_of(self.seed)))
        self.user = User(connected, plan_of(self.seed), self.seed)
        await self.user.open()

    async def open_again(self, stack: AsyncExitStack) -> None:
        """Connect again after the connection was lost, with the plan as it stands in the address."""
        before = self.user
        connected = await stack.enter_async_context(self.connecting(before.tab.page, before.tab.session))
        self.user = User(connected, before.plan, self.seed)
        await self.user.open()

    def put(self, place: FileURLs, name: str, content: bytes) -> int:
        """Send a file to where the session wants it, in a request beside the websocket; the status of the answer."""
        token = {"X-Xsrftoken": self.http.cookies["_streamlit_xsrf"]}
        url = self.address + place.upload_url
        files = {name: (name, content)}
        return self.http.put(url, files=files, headers=token, timeout=LONGEST_REQUEST_S).status_code


async def upload_place(tab: Tab, name: str) -> FileURLs:
    """Where the session of a tab, which hears nothing else now, wants a file of this name."""
    message = BackMsg()
    message.file_urls_request.request_id = name
    message.file_urls_request.file_names.append(name)
    await tab.socket.send(message.SerializeToString())
    async for data in messages(tab.socket):
        answer = ForwardMsg.FromString(data)
        if answer.WhichOneof("type") == "file_urls_response":
            return answer.file_urls_response.file_urls[0]
    raise RuntimeError("the connection ended before there was a place for the file")


def uploaded(tab: Tab, key: str, place: FileURLs, name: str, size_bytes: int) -> None:
    """Tell the uploader of this key that the file has been sent."""
    state = WidgetState(id=tab.ids[key])
    file = state.file_uploader_state_value.uploaded_file_info.add(name=name, size=size_bytes, file_id=place.file_id)
    file.file_urls.CopyFrom(place)
    tab.moved[key] = state

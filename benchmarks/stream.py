"""What a browser's tab says to the server and hears from it: Streamlit's protocol over a websocket, without a browser.

A tab opens a page, moves widgets, and hears what each run of the script showed. It sends the widgets it has moved and
leaves the others to the server, where a browser sends all of them. Source: Streamlit 1.67, proto.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

LONGEST_MESSAGE_BYTES = 2**28
FINISHED = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY)


@dataclass
class Reply:
    """What one run showed: metrics as label and text, headings, number of charts, errors, addresses of files to load
    down, the kinds of new elements in their order, and when it was over (`at_s`, of perf_counter)."""

    metrics: list[tuple[str, str]] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    charts: int = 0
    errors: list[str] = field(default_factory=list)
    downloads: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    size_bytes: int = 0
    at_s: float = 0.0


class Tab:
    """One tab: the page it shows, the widgets it was shown and those it moved, and what its cache holds."""

    def __init__(self, socket: ClientConnection, page: str):
        self.socket, self.page = socket, page
        self.page_hash = self.session = ""
        self.fragment = ""
        """Of the page, the part that it asks for again and again, if there is one."""
        self.ids: dict[str, str] = {}
        self.options: dict[str, list[str]] = {}
        self.moved: dict[str, WidgetState] = {}
        self.cache: dict[str, str] = {}
        self.reply = Reply()

    async def run(self, query: dict[str, str], fragment: str = "") -> None:
        """Ask for a run of the script, or of a fragment, while the connection is there; `query` is what stands in the
        address."""
        message = BackMsg()
        state = message.rerun_script
        state.query_string, state.page_script_hash, state.page_name = urlencode(query), self.page_hash, self.page
        state.fragment_id, state.is_auto_rerun = fragment, bool(fragment)
        state.cached_message_hashes.extend(self.cache)
        state.context_info.timezone, state.context_info.color_scheme = "UTC", "light"
        state.widget_states.widgets.extend(self.moved.values())
        with suppress(ConnectionClosed):
            await self.socket.send(message.SerializeToString())

    def move(self, key: str, value: str | list[str]) -> None:
        """Put a widget of this key to a text, or a selector to one of its options, given as a list of one."""
        state = WidgetState(id=self.ids[key])
        if isinstance(value, str):
            state.string_value = value
        else:
            state.string_array_value.data.extend(value)
        self.moved[key] = state

    async def replies(self) -> AsyncIterator[Reply]:
        """What each run showed, as soon as it is over, until the connection ends."""
        async for data in messages(self.socket):
            message = ForwardMsg.FromString(data)
            self.reply.size_bytes += len(data)
            kind = message.WhichOneof("type")
            if kind == "new_session":
                self._begin(message)
            elif kind == "navigation":
                self.page_hash = message.navigation.page_script_hash
            elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
                self._show(message)
            elif kind == "ref_hash":
                self.reply.charts += self.cache[message.ref_hash] == "plotly_chart"
            elif kind == "auto_rerun":
                self.fragment = message.auto_rerun.fragment_id
            elif kind == "script_finished" and message.script_finished in FINISHED:
                self.reply.at_s = time.perf_counter()
                yield self.reply
                self.reply = Reply()

    def _begin(self, message: ForwardMsg) -> None:
        """A run begins, and what an interrupted one has shown is dropped."""
        self.session = message.new_session.initialize.session_id or self.session
        self.reply = Reply()
        if not message.metadata.run.fragment_ids:
            self.fragment = ""

    def _show(self, message: ForwardMsg) -> None:
        kind = message.delta.new_element.WhichOneof("type")
        element = getattr(message.delta.new_element, kind)
        self.reply.kinds.append(kind)
        if message.metadata.cacheable:
            self.cache[message.hash] = kind
        if kind == "metric":
            self.reply.metrics.append((element.label, element.body))
        elif kind == "heading":
            self.reply.headings.append(element.body)
        elif kind == "plotly_chart":
            self.reply.charts += 1
        elif kind == "exception":
            self.reply.errors.append(f"{element.type}: {element.message}")
        elif getattr(element, "id", "").startswith("$$ID-"):
            self._remember(kind, element)

    def _remember(self, kind: str, widget) -> None:
        """A widget by its key, which is the end of its id."""
        key = widget.id.split("-", 2)[2]
        self.ids[key] = widget.id
        if kind == "slider":
            self.options[key] = [*widget.options]
        elif kind == "button_group":
            self.options[key] = [option.content for option in widget.options]
        elif kind == "download_button" and widget.url:
            self.reply.downloads.append(widget.url)


async def messages(socket: ClientConnection) -> AsyncIterator[bytes]:
    """What comes, until the connection ends, however it does."""
    with suppress(ConnectionClosed):
        async for data in socket:
            yield data


@asynccontextmanager
async def tab(
    address: str, page: str = "", headers: dict[str, str] | None = None, session: str = ""
) -> AsyncIterator[Tab]:
    """A tab that is connected and has not opened its page yet. `session` is the one it had before its connection was
    lost."""
    async with connect(
        f"{address.replace('http', 'ws', 1)}/_stcore/stream",
        origin="/".join(address.split("/")[:3]),
        subprotocols=["streamlit", "none", session] if session else ["streamlit"],
        additional_headers=headers,
        max_size=LONGEST_MESSAGE_BYTES,
        compression=None,
    ) as socket:
        yield Tab(socket, page)

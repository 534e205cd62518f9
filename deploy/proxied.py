"""Two replicas of the dashboard behind nginx on free ports of this machine, with deploy/nginx.conf as it stands."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from serving import end, free_port, serving, wait_until_healthy

CONFIG = Path(__file__).with_name("nginx.conf")
NAMES = ("one", "two")
"""Of the replicas, as the configuration has them."""
MAIN = """
daemon off;
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ }}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    log_format who '$http_x_who $upstream_addr';
    access_log {folder}/access.log who;
    include {folder}/kvplan.conf;
}}
"""


@dataclass(frozen=True)
class Proxied:
    """The replicas by name, each with what ends it; the address of nginx, and its folder."""

    address: str
    ports: dict[str, int]
    running: dict[str, ExitStack]
    folder: Path

    def start(self, name: str) -> None:
        """Start a replica, and wait until it answers."""
        self.running[name].enter_context(serving(port=self.ports[name]))

    def stop(self, name: str) -> None:
        """End a replica, and its sessions with it."""
        self.running[name].close()

    def replica_address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def requests(self) -> list[tuple[int, str]]:
        """Who asked which replica, as they ended, from the log; of several that were tried, the last."""
        names = {str(port): name for name, port in self.ports.items()}
        lines = (line.split() for line in (self.folder / "access.log").read_text().splitlines())
        return [(int(who), names[tried[-1].rpartition(":")[2]]) for who, *tried in lines if "-" not in (who, *tried)]


@contextmanager
def proxied() -> Iterator[Proxied]:
    """Both replicas and nginx, until the block ends. Raises RuntimeError where nginx refuses the configuration."""
    ports = {name: free_port() for name in NAMES}
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found = Proxied(f"http://127.0.0.1:{port}", ports, {name: ExitStack() for name in NAMES}, Path(folder))
        for name in NAMES:
            stack.push(found.running[name])
            found.start(name)
        _write(found, port)
        process = subprocess.Popen([nginx(), "-p", folder, "-c", f"{folder}/nginx.conf"], stderr=subprocess.DEVNULL)
        stack.callback(end, process)
        try:
            wait_until_healthy(found.address, process)
        except RuntimeError as error:
            raise RuntimeError(f"nginx: {error}: {(found.folder / 'error.log').read_text()}") from None
        yield found


def nginx() -> str:
    """Where nginx is. Raises SystemExit, with what to install, where there is none."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise SystemExit("there is no nginx on this machine: apt-get install nginx-light")
    return found


def _write(found: Proxied, port: int) -> None:
    """The configuration with these ports, and around it what a system has in /etc/nginx/nginx.conf."""
    text = CONFIG.read_text().replace("listen 80;", f"listen 127.0.0.1:{port};")
    for usual, name in zip(("8501", "8502"), NAMES, strict=True):
        text = text.replace(usual, str(found.ports[name]))
    (found.folder / "kvplan.conf").write_text(text)
    (found.folder / "nginx.conf").write_text(MAIN.format(folder=found.folder))

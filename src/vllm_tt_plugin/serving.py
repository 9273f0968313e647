"""A vLLM server as a child process: start it, wait until it answers, stop it, and know that nothing is left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any


class ServerError(RuntimeError):
    """The server did not start, or did not stop. The text carries the end of its log."""


def free_port() -> int:
    """A TCP port on the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """`vllm serve` for one model on 127.0.0.1.

    arguments:  further command-line arguments
    environ:    variables added to this process's environment
    log:        file that receives the server's output
    python:     interpreter of the environment that serves
    """

    model: str
    arguments: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    log: Path = Path("server.log")
    port: int = field(default_factory=free_port)
    python: str = sys.executable
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerError("the server was not started")
        return self._process.pid

    def start(self, timeout: float = 300.0, waiting: Callable[[float], None] | None = None) -> None:
        """Start and wait until /health answers. `waiting` is called about twice a second with the seconds passed."""
        command = [self.python, "-m", "vllm.entrypoints.cli.main", "serve", self.model]
        command += ["--host", "127.0.0.1", "--port", str(self.port), *self.arguments]
        with self.log.open("ab") as log:
            # Its own session: one group to signal, and to look into for processes left behind.
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environ},
                start_new_session=True,
            )
        begun = time.monotonic()
        while not self.healthy():
            passed = time.monotonic() - begun
            if self._process.poll() is not None:
                raise ServerError(f"the server ended with code {self._process.returncode}\n{self.tail()}")
            if passed > timeout:
                self.kill()
                raise ServerError(f"the server did not answer within {timeout:.0f} s\n{self.tail()}")
            if waiting is not None:
                waiting(passed)
            time.sleep(0.5)

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def post(self, path: str, body: Mapping[str, Any], timeout: float = 300.0) -> dict[str, Any]:
        """POST JSON, answer JSON. Raises urllib.error.HTTPError for a refusal."""
        request = urllib.request.Request(
            f"{self.url}{path}", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return dict(json.load(reply))

    def stop(self, timeout: float = 60.0) -> int:
        """Ask the server to end and wait for it and every process of its. Returns its exit code."""
        if self._process is None:
            raise ServerError("the server was not started")
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        return self.wait(timeout)

    def wait(self, timeout: float = 60.0) -> int:
        """Wait until the server and every process of its have ended. Returns its exit code."""
        if self._process is None:
            raise ServerError("the server was not started")
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"the server did not end within {timeout:.0f} s\n{self.tail()}") from None
        deadline = time.monotonic() + timeout
        while self.processes_left():
            if time.monotonic() > deadline:
                self.kill()
                raise ServerError(f"the server left processes behind\n{self.tail()}")
            time.sleep(0.1)
        return code

    def processes_left(self) -> bool:
        """Whether any process of the server's group still exists."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        """End the whole group at once."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def tail(self, lines: int = 30) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and (self._process.poll() is None or self.processes_left()):
            self.kill()
            self._process.wait(10)

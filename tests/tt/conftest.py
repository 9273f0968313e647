"""The suite that faces a server: `pytest tests/tt --tt-server-url=http://HOST:8000 --tt-model-name=NAME`.

It speaks HTTP alone, so any server that has vLLM's OpenAI API can be put to it. Without --tt-server-url it starts one
of its own: SmolLM2-135M-Instruct on the software mesh.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tt_api import Api

OWN_ROWS = 8


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tt", "the server that tests/tt is put to")
    group.addoption("--tt-server-url", help="URL without /v1 (default: start a server on the software mesh)")
    group.addoption("--tt-model-name", help="served model name (default: the first that the server names)")
    group.addoption(
        "--tt-max-num-seqs", type=int, help=f"rows of the server (default: {OWN_ROWS} for the own server, else 32)"
    )


@pytest.fixture(scope="session")
def tt_server_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # A default each time: in a run of the whole repository the options were not there yet when it was parsed.
    given = request.config.getoption("--tt-server-url", default=None)
    if given is not None:
        yield str(given).rstrip("/").removesuffix("/v1")
        return
    from tt_hostmesh.checkpoint import ensure
    from vllm_tt_plugin.serving import Server

    tt = json.dumps({"tt": {"sample_on_device_mode": "all"}})
    server = Server(
        model=str(ensure()),
        arguments=[
            "--served-model-name", "demo", "--max-model-len", "1024", "--max-num-seqs", str(OWN_ROWS),
            "--max-num-batched-tokens", "512", "--additional-config", tt,
        ],
        environ={"TT_RUNTIME": "host", "TT_HOST_MAX_TOKENS_ALL_USERS": "16384", "HF_HUB_OFFLINE": "1"},
        log=tmp_path_factory.mktemp("tt") / "server.log",
    )  # fmt: skip
    with server:
        yield server.url


@pytest.fixture(scope="session")
def api(request: pytest.FixtureRequest, tt_server_url: str) -> Api:
    own = request.config.getoption("--tt-server-url", default=None) is None
    rows = request.config.getoption("--tt-max-num-seqs", default=None) or (OWN_ROWS if own else 32)
    return Api(tt_server_url, request.config.getoption("--tt-model-name", default=None), rows)

"""A tree of source files on sys.path, as tt-metal's `models/` would be, that fails the test if anything imports it."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tt_registry.notices import logger, warn_once

MakeTree = Callable[..., Path]


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    importlib.invalidate_caches()
    return root


@pytest.fixture
def clean_imports() -> Iterator[None]:
    """Puts sys.path and sys.modules back, so that a tree of one test is unknown to the next."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_imports: None) -> MakeTree:
    """tree({"pkg/__init__.py": "..."}) writes the files and puts their root first on sys.path."""

    def make(files: dict[str, str], *, name: str = "tree") -> Path:
        root = write_tree(tmp_path / name, files)
        monkeypatch.syspath_prepend(str(root))
        return root

    return make


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sentences that the registry logs. Not caplog: vLLM, once imported, keeps its loggers from the root."""
    sentences: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            sentences.append(record.getMessage())

    monkeypatch.setattr(logger, "handlers", [Listener()])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "level", logging.INFO)
    logger.manager._clear_cache()  # isEnabledFor remembers the former level
    return sentences


@pytest.fixture(autouse=True)
def forget_warnings() -> None:
    """Each test hears every warning for the first time."""
    warn_once.cache_clear()

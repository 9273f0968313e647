"""docs/cli.md is what the verbs say of themselves."""

from __future__ import annotations

import cli_docs


def test_the_page_is_that_of_the_verbs() -> None:
    """Fails when a verb or an option changes: run `python tools/cli_docs.py`."""
    assert cli_docs.PAGE.read_text() == cli_docs.page()


def test_every_option_has_a_text() -> None:
    assert "| None |" not in cli_docs.page()
    assert "`--dry-run`" in cli_docs.page()

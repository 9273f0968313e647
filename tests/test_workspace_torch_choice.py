"""Which torch the bootstrap installs: the smallest that can be had."""

from __future__ import annotations

import sys

import pytest
import torch_choice
from torch_choice import Offer, choose, parse_offer

LOCAL = Offer("file:///srv/my%20wheels/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl", "2.13.0+cpu")
CPU = Offer("https://index.example/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl", "2.13.0+cpu")
DEFAULT = Offer("https://index.example/torch-2.13.0-cp311-cp311-linux_x86_64.whl", "2.13.0")


def test_a_local_file_of_pip_is_taken_and_its_size_said() -> None:
    choice = choose("2.13.0", LOCAL, cpu_index=True, megabytes=191)
    assert choice.arguments == ("/srv/my wheels/torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl",)
    assert "191 MB, no download" in choice.says


def test_a_cpu_build_that_pip_offers_is_taken_from_where_pip_found_it() -> None:
    assert choose("2.13.0", CPU, cpu_index=True).arguments == (f"torch @ {CPU.url}",)


def test_without_one_the_cpu_index_that_uv_knows_is_taken_when_it_answers() -> None:
    for offer in (DEFAULT, None):
        assert choose("2.13.0", offer, cpu_index=True).arguments == ("--torch-backend", "cpu", "torch==2.13.0")


def test_the_default_build_is_the_last_resort_and_its_size_is_said() -> None:
    choice = choose("2.13.0", DEFAULT, cpu_index=False)
    assert choice.arguments == ("torch==2.13.0",)
    assert "3 GB" in choice.says


def test_the_offer_is_read_from_pips_report() -> None:
    item = {"download_info": {"url": DEFAULT.url}, "metadata": {"name": "torch", "version": "2.13.0"}}
    assert parse_offer({"install": [item]}) == DEFAULT
    assert parse_offer({"install": []}) is None


def test_only_a_file_url_is_a_local_path() -> None:
    assert DEFAULT.path is None
    assert LOCAL.path == "/srv/my wheels/torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl"


def test_colour_forced_by_the_environment_does_not_spoil_pip_s_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip colours a report on stdout whenever FORCE_COLOR is set. Fails when the report is read from there."""
    monkeypatch.setenv("FORCE_COLOR", "0")
    offer = torch_choice.ask_pip(sys.executable, "2.13.0")
    assert offer is None or offer.version.startswith("2.13.0")

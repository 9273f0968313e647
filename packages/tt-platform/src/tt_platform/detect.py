"""What machine is this: a list of facts, each with where it comes from or why it is missing.

The runtime is asked in a child process that ends at once: ttnn keeps the device driver open until its process ends,
and a process that only looks must not hold a device that an engine is about to open.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import cast

from tt_platform.fabric import default_fabric
from tt_platform.mesh import (
    MESH_VARIABLE,
    VISIBLE_VARIABLE,
    MeshError,
    choose_grid,
    no_chip_advice,
    parse_mesh,
    parse_visible_devices,
)
from tt_platform.runtime import (
    RUNTIME_VARIABLE,
    Runtime,
    RuntimeChoice,
    RuntimeChoiceError,
    RuntimeUnavailable,
    TtnnRuntime,
    load_runtime,
)

PROBE_SECONDS = 60.0

# What a runtime's binding raises when it has no answer. One probe that fails must not hide the others.
PROBE_ERRORS = (ImportError, OSError, RuntimeError, AttributeError, TypeError, ValueError, LookupError)


@dataclass(frozen=True, slots=True)
class Fact:
    """One answer. ``value`` is None when there is none; ``reason`` says where it comes from, or why it is missing."""

    value: object
    reason: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is known about the machine."""

    runtime: Fact  # the chosen runtime: auto, ttnn or host
    ttnn: Fact  # its version, or why it cannot be imported
    chips: Fact  # visible chips
    pcie_devices: Fact
    architecture: Fact
    cluster_type: Fact
    system_mesh: Fact  # [rows, columns]
    visible_devices: Fact
    mesh_device: Fact  # the grid a worker would open
    fabric: Fact  # the machine's default
    driver: Fact  # entries of /dev/tenstorrent
    hugepages: Fact  # reserved pages of 1 GiB

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, value and reason of every fact, as text."""
        found = [(field.name, cast("Fact", getattr(self, field.name))) for field in fields(self)]
        return [(name, "-" if fact.value is None else str(fact.value), fact.reason) for name, fact in found]

    def as_json(self) -> str:
        answers = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps({name: {"value": fact.value, "reason": fact.reason} for name, fact in answers.items()})


def detect(environ: Mapping[str, str] = os.environ, *, root: Path = Path("/"), timeout: float = PROBE_SECONDS) -> Facts:
    """Look at the machine. Nothing stays open, nothing is raised.

    Args:
        environ: environment to read, also that of the child process.
        root: root of the file system, for tests.
        timeout: seconds that the runtime may take to answer.
    """
    asked = probe_runtime(environ, timeout=timeout)
    chips, cluster = asked["chips"].value, asked["cluster_type"].value
    return Facts(
        runtime=_chosen_runtime(environ),
        visible_devices=_visible_devices(environ),
        mesh_device=_mesh_device(environ, chips),
        fabric=_fabric(chips, cluster),
        driver=_driver(root),
        hugepages=_hugepages(root),
        **asked,
    )


def device_problem(environ: Mapping[str, str] = os.environ, *, timeout: float = PROBE_SECONDS) -> str | None:
    """Why no device can be used, with what to do about it; None when there is at least one."""
    chips = probe_runtime(environ, timeout=timeout)["chips"]
    if chips.value is None:
        return f"Tenstorrent devices cannot be counted: {chips.reason}; look at `python -m tt_platform`"
    return None if chips.value else no_chip_advice(environ)


def probe_runtime(environ: Mapping[str, str], *, timeout: float = PROBE_SECONDS) -> dict[str, Fact]:
    """Ask the chosen runtime in a child process. Every key of :data:`_PROBES`, and ``ttnn``, is in the answer."""
    command = [sys.executable, "-c", "from tt_platform.detect import answer; answer()"]
    try:
        ended = subprocess.run(command, env=dict(environ), capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return _no_answer(f"the runtime did not answer in {timeout:g} s")
    except OSError as error:
        return _no_answer(f"the probe could not be started: {error}")
    if ended.returncode != 0:
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return _no_answer(f"the probe ended with exit code {ended.returncode}: {''.join(last)}")
    answers = cast("dict[str, dict[str, object]]", json.loads(ended.stdout))
    return {name: Fact(fact["value"], str(fact["reason"])) for name, fact in answers.items()}


def answer() -> None:
    """Entry of the child process: one JSON object on standard output. ttnn's own log, on the same, goes to stderr."""
    sys.stdout.flush()
    reply = os.dup(1)
    os.dup2(2, 1)
    facts = ask_runtime()
    with os.fdopen(reply, "w") as out:
        json.dump({name: {"value": fact.value, "reason": fact.reason} for name, fact in facts.items()}, out)


def ask_runtime() -> dict[str, Fact]:
    """Ask the chosen runtime in this process; a driver that ttnn opens stays open until the process ends."""
    try:
        runtime = load_runtime()
    except (RuntimeChoiceError, RuntimeUnavailable) as error:
        return _no_answer(str(error))
    source = f"the {runtime.name} runtime"
    facts = {name: _probe(probe, runtime, source) for name, probe in _PROBES.items()}
    return {"ttnn": _ttnn_version(), **facts}


def _system_mesh(runtime: Runtime) -> object:
    return list(runtime.get_system_mesh_shape())


_PROBES: Mapping[str, Callable[[Runtime], object]] = {
    "chips": lambda runtime: runtime.get_num_devices(),
    "pcie_devices": lambda runtime: runtime.get_num_pcie_devices(),
    "architecture": lambda runtime: runtime.get_arch_name(),
    "cluster_type": lambda runtime: runtime.get_cluster_type(),
    "system_mesh": _system_mesh,
}


def _probe(probe: Callable[[Runtime], object], runtime: Runtime, source: str) -> Fact:
    try:
        return Fact(probe(runtime), source)
    except PROBE_ERRORS as error:
        return Fact(None, _first_lines(error))


def _first_lines(error: BaseException) -> str:
    """The reason in one line. ttnn puts the sentence behind a location and before a native stack trace."""
    lines = [line.strip() for line in str(error).split("backtrace:")[0].splitlines()]
    return " ".join(line for line in lines if line and line != "info:") or type(error).__name__


def _no_answer(reason: str) -> dict[str, Fact]:
    return {"ttnn": _ttnn_version(), **{name: Fact(None, reason) for name in _PROBES}}


def _ttnn_version() -> Fact:
    try:
        TtnnRuntime()
    except RuntimeUnavailable as error:
        return Fact(None, str(error))
    try:
        return Fact(importlib.metadata.version("ttnn"), "imports")
    except importlib.metadata.PackageNotFoundError:
        return Fact("imports", "built from source, without package metadata")


def _chosen_runtime(environ: Mapping[str, str]) -> Fact:
    try:
        choice = RuntimeChoice.from_environ(environ)
    except RuntimeChoiceError as error:
        return Fact(None, str(error))
    return Fact(choice.value, f"{RUNTIME_VARIABLE} is {'set' if environ.get(RUNTIME_VARIABLE) else 'not set'}")


def _visible_devices(environ: Mapping[str, str]) -> Fact:
    value = environ.get(VISIBLE_VARIABLE, "")
    try:
        ids = parse_visible_devices(value)
    except MeshError as error:
        return Fact(None, str(error))
    return Fact(None, f"{VISIBLE_VARIABLE} is not set: all chips") if ids is None else Fact(list(ids), VISIBLE_VARIABLE)


def _mesh_device(environ: Mapping[str, str], chips: object) -> Fact:
    named = environ.get(MESH_VARIABLE, "").strip()
    source = f"{MESH_VARIABLE}={named}" if named else f"{MESH_VARIABLE} is not set"
    try:
        if isinstance(chips, int) and chips > 0:
            return Fact(list(choose_grid(environ, chips)), source)
        return Fact(list(parse_mesh(named)), f"{source}, not checked against chips") if named else Fact(None, source)
    except MeshError as error:
        return Fact(None, str(error))


def _fabric(chips: object, cluster: object) -> Fact:
    if not isinstance(chips, int) or not isinstance(cluster, str) or chips < 1:
        return Fact(None, "follows from the chips")
    if chips == 1:
        return Fact("none", "one chip needs no fabric")
    return Fact(default_fabric(cluster), f"default of {cluster}")


def _driver(root: Path) -> Fact:
    folder = root / "dev/tenstorrent"
    try:
        entries = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        return Fact(None, f"/dev/tenstorrent: {error.strerror}; is the kernel driver loaded?")
    return Fact(entries, "/dev/tenstorrent")


def _hugepages(root: Path) -> Fact:
    file = "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
    try:
        return Fact(int((root / file).read_text()), f"/{file}")
    except OSError as error:
        return Fact(None, f"/{file}: {error.strerror}")
    except ValueError:
        return Fact(None, f"/{file} holds no number")

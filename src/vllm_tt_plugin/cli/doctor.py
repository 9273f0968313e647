"""``vllm-tt doctor``: can this environment serve, and if not, what comes next."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import entry_points

import typer

from tt_platform.detect import Facts, detect
from vllm_tt_plugin import compat, install_vllm
from vllm_tt_plugin.cli.answer import AsJson, Check, print_json, print_table, verb, worst

ENTRY_POINTS = {"vllm.platform_plugins": "tt", "vllm.general_plugins": "tt_model_registry"}
REINSTALL = "python -m pip install --force-reinstall --no-deps vllm-tt-plugin"


@verb
def doctor(as_json: AsJson = False) -> None:
    """Look at ttnn, chips, mesh, driver, vLLM, entry points and models; say what to do next.

    Exit code 0: this environment can serve. 1: it cannot.
    """
    checks = [
        *machine(detect()),
        vllm_row(compat.installed_vllm()),
        build_target(),
        *registered(),
        plugins_variable(os.environ),
        target_variable(os.environ),
        models(os.environ),
    ]
    verdict = worst(check.state for check in checks)
    following = next_step(checks)
    if as_json:
        print_json({"verdict": verdict, "next": following, "checks": [asdict(check) for check in checks]})
    else:
        print_table(("check", "state", "found"), [(c.name, c.state, c.found) for c in checks])
        print(f"\n{verdict}: {following}")
    raise typer.Exit(1 if verdict == "fail" else 0)


def next_step(checks: list[Check]) -> str:
    """What to do about the first of the worst."""
    for state in ("fail", "warn"):
        for check in checks:
            if check.state == state:
                return f"{check.name}: {check.do}"
    return "serve, for example `vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 32768`"


def machine(facts: Facts) -> list[Check]:
    """ttnn, chips, mesh and driver. On the software mesh a missing ttnn or driver is as it should be."""
    host = facts.runtime.value == "host"
    chips = facts.chips.value
    absent = "ok" if host else "fail"
    return [
        Check(
            "runtime", "fail" if facts.runtime.value is None else "ok", _text(facts, "runtime"), facts.runtime.reason
        ),
        Check(
            "ttnn",
            absent if facts.ttnn.value is None else "ok",
            "not needed on the software mesh" if host and facts.ttnn.value is None else _text(facts, "ttnn"),
            facts.ttnn.reason,
        ),
        Check("chips", "ok" if chips else "fail", _text(facts, "chips"), facts.chips.reason),
        Check(
            "mesh",
            "fail" if facts.mesh_device.value is None and chips else "ok",
            _text(facts, "mesh_device"),
            facts.mesh_device.reason,
        ),
        Check(
            "driver",
            absent if facts.driver.value is None else "ok",
            "not needed on the software mesh" if host else _text(facts, "driver"),
            facts.driver.reason,
        ),
    ]


def _text(facts: Facts, name: str) -> str:
    fact = getattr(facts, name)
    return f"none: {fact.reason}" if fact.value is None else f"{fact.value} ({fact.reason})"


def vllm_row(vllm: str | None, python: tuple[int, ...] = sys.version_info[:2]) -> Check:
    verdict = compat.check_installed(vllm, matrix=compat.load(), python=python)
    if verdict.ok:
        return Check("vLLM", "ok", f"{vllm}: a tested row")
    return Check("vLLM", "fail" if verdict.stops else "warn", verdict.message, verdict.message)


def build_target() -> Check:
    """A vLLM with device code is the CUDA build, which brings a torch of its own."""
    target = install_vllm.inspect(sys.executable, "uv")
    if target.vllm is None:
        return Check("build", "warn", "no vLLM", "`vllm-tt install-vllm`")
    if target.device_code:
        return Check(
            "build", "fail", "vLLM has compiled device code: not the empty target", "run `vllm-tt install-vllm`"
        )
    return Check("build", "ok", f"empty target; torch {target.torch}, numpy {target.numpy}")


def registered() -> list[Check]:
    """Whether vLLM will find the plugin: its entry points, each exactly once."""
    found: list[Check] = []
    for group, name in ENTRY_POINTS.items():
        values = [entry.value for entry in entry_points(group=group, name=name)]
        state = "ok" if len(values) == 1 else "fail"
        do = f"{group} has {len(values)} entries named {name}: run `{REINSTALL}`"
        found.append(Check(f"entry point {name}", state, ", ".join(values) or "none", do))
    return found


def plugins_variable(environ: Mapping[str, str]) -> Check:
    """VLLM_PLUGINS, when it is set, lists every plugin that vLLM may load."""
    text = environ.get("VLLM_PLUGINS")
    if text is None:
        return Check("VLLM_PLUGINS", "ok", "unset: every plugin is loaded")
    missing = sorted(set(ENTRY_POINTS.values()) - {name.strip() for name in text.split(",")})
    if not missing:
        return Check("VLLM_PLUGINS", "ok", text)
    names = ",".join([*filter(None, text.split(",")), *missing])
    return Check(
        "VLLM_PLUGINS", "fail", f"{text!r} leaves out {', '.join(missing)}", f"set VLLM_PLUGINS={names} or unset it"
    )


def target_variable(environ: Mapping[str, str]) -> Check:
    if environ.get("VLLM_TARGET_DEVICE") == "cpu":
        found = "cpu: vLLM 0.28 and later choose the CPU and look at no plugin"
        return Check("VLLM_TARGET_DEVICE", "fail", found, "unset it: it is meant for the build")
    return Check("VLLM_TARGET_DEVICE", "ok", environ.get("VLLM_TARGET_DEVICE", "unset"))


def models(environ: Mapping[str, str]) -> Check:
    """How many architectures have a class that can be imported here."""
    from tt_registry import OverrideError, known
    from tt_registry.tables import as_json

    runtime = "host" if environ.get("TT_RUNTIME") == "host" else "ttnn"
    try:
        answers = [as_json(each) for each in known(runtime=runtime)]
    except OverrideError as error:
        return Check("models", "fail", str(error), str(error))
    usable = sum(bool(answer["importable"]) for answer in answers)
    found = f"{usable} of {len(answers)} architectures have a class that can be imported"
    do = (
        "put tt-metal on PYTHONPATH (its `models` folder), or set TT_RUNTIME=host; `vllm-tt models` says why each fails"
    )
    return Check("models", "ok" if usable else "fail", found, do)

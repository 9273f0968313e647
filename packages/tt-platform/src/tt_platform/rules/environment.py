"""Rules about the process's environment and the machine. They come first: nothing else matters without a device."""

from __future__ import annotations

from tt_platform.config_facts import ConfigFacts
from tt_platform.fabric import DISABLED
from tt_platform.findings import Finding, refuse, reject
from tt_platform.mesh import MESH_VARIABLE
from tt_platform.rules.rule import rule

V2_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"


@rule("`MESH_DEVICE` and `TT_VISIBLE_DEVICES` must be readable; the error lists the names.")
def mesh_environment(facts: ConfigFacts) -> Finding | None:
    if facts.environment_problem is None:
        return None
    return refuse(MESH_VARIABLE, None, facts.environment_problem)


@rule("A device must be there before the engine starts.")
def device_present(facts: ConfigFacts) -> Finding | None:
    if facts.device_problem is None:
        return None
    return refuse("TT_RUNTIME", facts.runtime, facts.device_problem)


@rule("vLLM's V1 model runner is pinned; its V2 contract loses tokens when a preempted request resumes.")
def v1_runner_variable(facts: ConfigFacts) -> Finding | None:
    if facts.v2_runner_variable in (None, "", "0"):
        return None
    return reject(V2_VARIABLE, facts.v2_runner_variable, allowed="0", do="unset it: the plugin pins the V1 runner")


@rule("A feature that makes vLLM choose its V2 model runner cannot be served.")
def v1_runner_features(facts: ConfigFacts) -> Finding | None:
    if facts.v2_runner_forced_by is None:
        return None
    return reject(
        facts.v2_runner_forced_by, True, allowed="unset", do="it needs vLLM's V2 model runner, which is not implemented"
    )


@rule("`fabric_config` must be a name of this ttnn's `FabricConfig`; checked before anything is opened.")
def fabric_name(facts: ConfigFacts) -> Finding | None:
    name, known = facts.options.fabric_config, facts.fabric_names
    if name is None or name == DISABLED or known is None or name in known:
        return None
    return reject("additional_config.tt.fabric_config", name, allowed=", ".join(known), do="choose one of them")


RULES = (mesh_environment, device_present, v1_runner_variable, v1_runner_features, fabric_name)

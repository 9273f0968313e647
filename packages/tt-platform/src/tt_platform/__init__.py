"""Detection, mesh, options, configuration rules and device lifecycle for Tenstorrent."""

from tt_platform.config_facts import ConfigFacts
from tt_platform.detect import Fact, Facts, detect
from tt_platform.fabric import fabric_arguments
from tt_platform.findings import ConfigRejected, Finding, Kind
from tt_platform.lifecycle import DeviceSession, SessionError
from tt_platform.mesh import MESH_NAMES, Grid, MeshError, choose_grid, parse_mesh, parse_visible_devices
from tt_platform.options import OptionError, TTOptions
from tt_platform.rules import RULES, Rule, Settled, settle
from tt_platform.runtime import (
    MeshDevice,
    Runtime,
    RuntimeChoice,
    RuntimeChoiceError,
    RuntimeUnavailable,
    TtnnRuntime,
    load_runtime,
)

__all__ = [
    "MESH_NAMES",
    "RULES",
    "ConfigFacts",
    "ConfigRejected",
    "DeviceSession",
    "Fact",
    "Facts",
    "Finding",
    "Grid",
    "Kind",
    "MeshDevice",
    "MeshError",
    "OptionError",
    "Rule",
    "Runtime",
    "RuntimeChoice",
    "RuntimeChoiceError",
    "RuntimeUnavailable",
    "SessionError",
    "Settled",
    "TTOptions",
    "TtnnRuntime",
    "choose_grid",
    "detect",
    "fabric_arguments",
    "load_runtime",
    "parse_mesh",
    "parse_visible_devices",
    "settle",
]

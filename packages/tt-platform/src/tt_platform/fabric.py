"""The fabric between the chips of a mesh. Source: tt-metal contract 3.2 and "Model Fabric Configuration".

Merge order: the machine's default, then the model's ``model_capabilities["fabric_config"]``, then launch options.
"""

from __future__ import annotations

from collections.abc import Mapping

from tt_platform.option_kinds import OptionError
from tt_platform.options import TTOptions

DISABLED = "DISABLED"

_DEFAULTS: Mapping[str, str] = {"GALAXY": "FABRIC_1D_RING", "BLACKHOLE_GALAXY": "FABRIC_2D_TORUS_XY"}


def default_fabric(cluster_type: str) -> str:
    """The fabric of a machine of several chips, by ``ttnn.cluster.ClusterType`` name."""
    return _DEFAULTS.get(cluster_type, "FABRIC_1D")


def fabric_arguments(
    devices: int, cluster_type: str, model: Mapping[str, object] | None, options: TTOptions
) -> dict[str, object] | None:
    """Keywords for ``Runtime.set_fabric_config``; None when the mesh has one chip, which never starts a fabric.

    Args:
        devices: chips in the mesh.
        cluster_type: name of the machine's ``ttnn.cluster.ClusterType``.
        model: the model's ``fabric_config`` capability, with ttnn's enums and objects. It is copied, never changed.
        options: launch options; ``fabric_config`` and ``fabric_reliability_mode`` win over the model's.
    """
    if devices <= 1:
        return None
    arguments: dict[str, object] = {"config": default_fabric(cluster_type), **(model or {})}
    if options.fabric_config is not None:
        arguments["config"] = options.fabric_config
    if options.fabric_reliability_mode is not None:
        arguments["reliability_mode"] = options.fabric_reliability_mode
    return arguments


def check_fabric_name(name: str | None, known: tuple[str, ...]) -> None:
    """Refuse a ``fabric_config`` option that this ttnn does not know.

    Raises:
        OptionError: the message lists the names.
    """
    if name is not None and name not in known:
        raise OptionError("additional_config.tt.fabric_config", name, ", ".join(known))

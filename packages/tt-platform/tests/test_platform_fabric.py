"""The fabric of a mesh: machine's default, then the model, then the launch."""

from __future__ import annotations

import pytest

from tt_platform.fabric import check_fabric_name, default_fabric, fabric_arguments
from tt_platform.option_kinds import OptionError
from tt_platform.options import TTOptions


@pytest.mark.parametrize(
    ("cluster", "fabric"),
    [
        ("GALAXY", "FABRIC_1D_RING"),
        ("BLACKHOLE_GALAXY", "FABRIC_2D_TORUS_XY"),
        ("T3K", "FABRIC_1D"),
        ("N300", "FABRIC_1D"),
        ("P150_X8", "FABRIC_1D"),
    ],
)
def test_the_machine_has_a_default(cluster, fabric):
    assert default_fabric(cluster) == fabric
    assert fabric_arguments(2, cluster, None, TTOptions()) == {"config": fabric}


def test_the_model_wins_over_the_machine_and_the_launch_over_the_model():
    model = {"config": "FABRIC_2D", "reliability_mode": "STRICT_INIT", "router_config": object()}
    launch = TTOptions(fabric_config="FABRIC_1D", fabric_reliability_mode="RELAXED_INIT")
    assert fabric_arguments(8, "GALAXY", model, TTOptions()) == model
    merged = fabric_arguments(8, "GALAXY", model, launch)
    assert merged == {**model, "config": "FABRIC_1D", "reliability_mode": "RELAXED_INIT"}


def test_the_models_dictionary_is_not_changed():
    model = {"num_planes": 2}
    arguments = fabric_arguments(8, "T3K", model, TTOptions(fabric_config="CUSTOM"))
    assert arguments is not model
    assert model == {"num_planes": 2}


def test_one_chip_starts_no_fabric_even_when_asked_for():
    assert fabric_arguments(1, "N150", {"config": "FABRIC_1D"}, TTOptions(fabric_config="FABRIC_1D")) is None


def test_a_name_that_ttnn_does_not_know_lists_the_names():
    with pytest.raises(OptionError, match=r"fabric_config='RING' is not valid: allowed DISABLED, FABRIC_1D"):
        check_fabric_name("RING", ("DISABLED", "FABRIC_1D"))
    check_fabric_name(None, ())
    check_fabric_name("FABRIC_1D", ("FABRIC_1D",))

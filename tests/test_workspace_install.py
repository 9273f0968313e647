"""The recipe that builds and installs vLLM for the empty target, command by command; nothing is run here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vllm_tt_plugin import compat, install_vllm
from vllm_tt_plugin.install_vllm import Command, InstallError, Target

RELEASE = compat.load().row("0.33.0")
TARGET = Target(
    python="/env/bin/python", uv="/env/bin/uv", version=(3, 12), site="/env/site-packages",
    torch="2.13.0+cpu", vllm=None, numpy="2.3.5", ttnn=None, device_code=False,
)  # fmt: skip


class Recorder:
    """Runs nothing; writes the wheel that the build would."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def __call__(self, command: Command) -> None:
        self.commands.append(command)
        if "--wheel-dir" in command.argv:
            out = Path(command.argv[command.argv.index("--wheel-dir") + 1])
            out.mkdir()
            (out / "vllm-0.33.0-cp312-cp312-linux_x86_64.whl").touch()
        if "tags" in command.argv:
            built = Path(command.argv[-1])
            built.rename(built.with_name("vllm-0.33.0-py3-none-any.whl"))


def test_the_build_is_for_the_empty_target_and_from_source(tmp_path: Path) -> None:
    build = install_vllm.build_commands(RELEASE, TARGET, tmp_path)[-1]
    assert dict(build.variables) == {"VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": "0.33.0"}
    assert "--no-binary vllm" in str(build)
    assert "--no-deps" in build.argv


def test_a_wheel_is_built_once_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    run = Recorder()
    first = install_vllm.build_wheel(RELEASE, TARGET, cache=tmp_path, run=run)
    count = len(run.commands)
    assert install_vllm.build_wheel(RELEASE, TARGET, cache=tmp_path, run=run) == first
    assert len(run.commands) == count
    assert [path.name for path in first.parent.iterdir()] == ["vllm-0.33.0-py3-none-any.whl"]


def test_a_failed_build_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    def fails(command: Command) -> None:
        raise InstallError("no")

    with pytest.raises(InstallError):
        install_vllm.build_wheel(RELEASE, TARGET, cache=tmp_path, run=fails)
    assert list((tmp_path / "wheels").iterdir()) == []


def test_an_installed_torch_and_numpy_are_held_and_triton_is_left_out() -> None:
    wanted = install_vllm.requirements(RELEASE, TARGET, Path("vllm.whl"))
    assert wanted == ["torch==2.13.0+cpu", "numpy==2.3.5", f"transformers{RELEASE.transformers}", "vllm.whl"]
    assert install_vllm.excludes(TARGET) == ["triton"]


def test_beside_ttnn_its_numpy_is_held_and_opencv_which_wants_another_is_left_out() -> None:
    target = replace(TARGET, ttnn="0.81.1", numpy="1.26.4")
    assert "numpy==1.26.4" in install_vllm.requirements(RELEASE, target, Path("vllm.whl"))
    assert "needs numpy 2, which ttnn rules out" in install_vllm.left_out(target)["opencv-python-headless"]


def test_beside_ttnn_a_numpy_that_is_not_there_yet_is_one_that_ttnn_can_use() -> None:
    target = replace(TARGET, ttnn="0.81.1", numpy=None)
    assert "numpy<2" in install_vllm.requirements(RELEASE, target, Path("vllm.whl"))


def test_an_old_numpy_without_ttnn_is_kept_too() -> None:
    target = replace(TARGET, numpy="1.26.4")
    assert "numpy==1.26.4" in install_vllm.requirements(RELEASE, target, Path("vllm.whl"))
    assert "the installed numpy 1.26.4 rules out" in install_vllm.left_out(target)["opencv-python-headless"]


def test_an_opencv_that_is_there_is_kept_whatever_its_name() -> None:
    target = replace(TARGET, opencv="opencv-python 4.9.0")
    assert install_vllm.left_out(target)["opencv-python-headless"] == "opencv-python 4.9.0 is there and is kept"


def test_the_plan_of_an_installation_that_is_there_is_empty(tmp_path: Path) -> None:
    plan = install_vllm.plan(RELEASE, replace(TARGET, vllm="0.33.0"), tmp_path)
    assert plan.already_there
    assert plan.commands == ()
    assert install_vllm.explain(plan, dry_run=True).endswith("is installed already: nothing to do")


def test_the_plan_builds_once_and_names_what_it_keeps_and_leaves_out(tmp_path: Path) -> None:
    plan = install_vllm.plan(RELEASE, TARGET, tmp_path)
    assert [command.argv[0] for command in plan.commands[-1:]] == [TARGET.uv]
    assert plan.kept == ("torch==2.13.0+cpu", "numpy==2.3.5")
    wheel = tmp_path / "wheels" / install_vllm.wheel_name(RELEASE)
    wheel.parent.mkdir()
    wheel.touch()
    assert len(install_vllm.plan(RELEASE, TARGET, tmp_path).commands) == 1


def test_a_source_distribution_is_fetched_without_a_build(tmp_path: Path) -> None:
    fetch = install_vllm.fetch_commands("0.34.0", TARGET, tmp_path)[-1]
    assert fetch.argv[3] == "download"
    assert {"--no-deps", "--no-binary", "vllm==0.34.0"} <= set(fetch.argv)


def test_what_is_installed_already_is_not_installed_again(tmp_path: Path) -> None:
    run = Recorder()
    assert not install_vllm.install(RELEASE, replace(TARGET, vllm="0.33.0"), cache=tmp_path, run=run)
    assert run.commands == []


def test_a_vllm_with_device_code_is_replaced_though_its_version_is_the_same(tmp_path: Path) -> None:
    run = Recorder()
    assert install_vllm.install(RELEASE, replace(TARGET, vllm="0.33.0", device_code=True), cache=tmp_path, run=run)
    assert "install" in run.commands[-1].argv


def test_a_python_that_the_release_does_not_run_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match=r"is Python 3\.10: vLLM 0\.33\.0 needs >=3\.11"):
        install_vllm.install(RELEASE, replace(TARGET, version=(3, 10)), cache=tmp_path, run=Recorder())


def test_a_target_without_torch_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match="has no torch"):
        install_vllm.install(RELEASE, replace(TARGET, torch=None), cache=tmp_path, run=Recorder())


def test_a_cache_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "wheels").touch()
    with pytest.raises(InstallError, match=r"cannot write to the cache .* set XDG_CACHE_HOME"):
        install_vllm.build_wheel(RELEASE, TARGET, cache=tmp_path, run=Recorder())


def test_without_uv_the_error_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match="pip install uv"):
        install_vllm.find_uv(str(tmp_path / "python"), {"PATH": str(tmp_path)})


def test_a_dry_run_prints_every_command_and_changes_nothing(tmp_path: Path) -> None:
    printed = install_vllm.explain(install_vllm.plan(RELEASE, TARGET, tmp_path), dry_run=True)
    assert "VLLM_TARGET_DEVICE=empty" in printed
    assert "left out: triton: 1 GB, not used here" in printed
    assert "kept: torch==2.13.0+cpu" in printed
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_release_is_refused_with_those_that_can_be_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert install_vllm.main(["--version", "0.1.0"]) == 1
    assert "vLLM 0.1.0 is not in the compat matrix: allowed 0.33.0" in capsys.readouterr().err

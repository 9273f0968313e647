"""The core needs the standard library; the host sampler needs torch and nothing else."""

import subprocess
import sys

import pytest

BLOCK = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
"""


def run(absent: set[str], code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCK.format(absent=absent) + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_core_imports_without_vllm_torch_ttnn_and_numpy() -> None:
    code = "import tt_sampling; [getattr(tt_sampling, name) for name in tt_sampling.__all__]"
    run({"vllm", "torch", "ttnn", "numpy"}, code)


@pytest.mark.slow
def test_the_host_sampler_imports_without_vllm_and_ttnn() -> None:
    pytest.importorskip("torch")
    run({"vllm", "ttnn"}, "import tt_sampling.host.sampler, tt_sampling.host.device_logprobs")

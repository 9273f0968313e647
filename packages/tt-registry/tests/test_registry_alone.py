"""The package stands alone: no vLLM, no torch, no ttnn."""

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
BLOCK = "import sys\nfor name in ('vllm', 'torch', 'ttnn', 'numpy', 'transformers'): sys.modules[name] = None\n"


def run(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
        env={"PYTHONPATH": str(PACKAGE / "src"), "PATH": ""},
        timeout=60,
    )


def test_it_answers_with_vllm_torch_and_ttnn_blocked() -> None:
    done = run(BLOCK + "import tt_registry; print(tt_registry.resolve('LlamaForCausalLM').target)")
    assert done.stderr == ""
    assert done.stdout.strip() == "models.tt_transformers.tt.generator_vllm:LlamaForCausalLM"


def test_the_core_imports_the_standard_library_only() -> None:
    source = "import sys; before = set(sys.modules); import tt_registry, tt_registry.__main__\n"
    source += "top = {n.partition('.')[0] for n in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
    done = run(source + "print(sorted(top))")
    assert done.stdout.strip() == "['tt_registry']", done.stderr


def test_every_public_name_is_there() -> None:
    done = run(BLOCK + "import tt_registry as r; print([n for n in r.__all__ if not hasattr(r, n)])")
    assert done.stdout.strip() == "[]", done.stderr


def test_the_example_of_the_readme_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    done = run(BLOCK + example)
    assert done.returncode == 0, done.stderr
    assert "TTLlamaForCausalLM" in done.stdout

"""Every command line of docs/recipes.md is one that vLLM, the options and the meshes accept."""

from __future__ import annotations

import logging
import re
import shlex
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from tt_platform.mesh import parse_mesh
from tt_platform.options import TTOptions
from tt_registry import resolve
from tt_registry.architectures import UnknownVariant

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "recipes.md").read_text()
SERVER, OFFLINE = "examples/server_example_tt.py", "examples/offline_inference_tt.py"
VARIANTS = {
    "TT_LLAMA_TEXT_VER": "LlamaForCausalLM",
    "TT_QWEN3_TEXT_VER": "Qwen3ForCausalLM",
    "TT_QWEN35_TEXT_VER": "Qwen3_5ForConditionalGeneration",
}


@dataclass
class Recipe:
    """One command: the variables in front of it, its program, and that one's arguments."""

    family: str
    words: list[str]
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def program(self) -> tuple[str, ...]:
        return tuple(self.words[: 3 if self.words[:2] == ["vllm", "bench"] else 2])

    @property
    def arguments(self) -> list[str]:
        return self.words[len(self.program) :]


def recipes(page: str = PAGE) -> list[Recipe]:
    found = []
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        for block in re.findall(r"^```bash\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL):
            words = shlex.split(block.replace("\\\n", " "))
            environ = {}
            while re.fullmatch(r"[A-Z][A-Z0-9_]*=.*", words[0]):
                name, _, environ[name] = words.pop(0).partition("=")
            found.append(Recipe(section.splitlines()[0], words, environ))
    return found


RECIPES = recipes()
LAUNCHES = [recipe for recipe in RECIPES if recipe.program[0] != "pytest" and "bench" not in recipe.program]
id_of = [f"{i}-{recipe.family.split(',')[0]}" for i, recipe in enumerate(LAUNCHES)]


def example(path: str) -> Any:
    spec = spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def served(arguments: list[str]) -> dict[str, Any]:
    """What `vllm serve` makes of its arguments."""
    from vllm.entrypoints.cli.serve import cmd_init
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    commands = parser.add_subparsers()
    for command in cmd_init():
        command.subparser_init(commands)
    return vars(parser.parse_args(["serve", *arguments]))


def parsed(recipe: Recipe) -> dict[str, Any]:
    """The engine options of a launch. A program that is none of ours is an error."""
    if recipe.program == ("python", OFFLINE):
        return example(OFFLINE).parse(recipe.arguments)[1]
    if recipe.program == ("python", SERVER):
        return served(example(SERVER).command(recipe.arguments)[4:])
    assert recipe.program == ("vllm", "serve")
    return served(recipe.arguments)


def test_the_page_has_a_command_for_each_family_that_can_be_served() -> None:
    families = {recipe.family for recipe in LAUNCHES}
    sections = set(re.findall(r"^## (.+)$", PAGE, re.MULTILINE))
    assert sections - families == {"Llama 3.2 Vision", "DeepSeek V3", "Measuring a server"}
    assert len(LAUNCHES) >= 20


def judge(recipe: Recipe, caplog: pytest.LogCaptureFixture) -> None:
    """Raises for a mesh, a variant, an argument or an option that is not known."""
    if recipe.environ.get("TT_RUNTIME") != "host":
        rows, columns = parse_mesh(recipe.environ["MESH_DEVICE"])
        assert rows * columns <= 32
    for variable in VARIANTS.keys() & recipe.environ.keys():
        assert resolve(VARIANTS[variable], environ=recipe.environ).variant == recipe.environ[variable]
    engine = parsed(recipe)
    assert engine["max_num_seqs"] == wanted(recipe, "max_num_seqs", "max_seqs_in_batch", default=32)
    assert engine["data_parallel_size"] == wanted(recipe, "data_parallel_size", default=1)
    with caplog.at_level(logging.WARNING, "vllm.tt.options"):
        TTOptions.of(engine["additional_config"])
    unknown = [record.getMessage() for record in caplog.records if record.name == "vllm.tt.options"]
    assert unknown == []


@pytest.mark.vllm
@pytest.mark.parametrize("recipe", LAUNCHES, ids=id_of)
def test_a_launch_is_one_that_vllm_the_options_and_the_meshes_accept(
    recipe: Recipe, caplog: pytest.LogCaptureFixture
) -> None:
    judge(recipe, caplog)


def wanted(recipe: Recipe, *names: str, default: int) -> int:
    """The number that is written in the command."""
    words = [word.lstrip("-").replace("-", "_") if word.startswith("--") else word for word in recipe.arguments]
    given = [int(words[words.index(name) + 1]) for name in names if name in words]
    return given[0] if given else default


def test_every_variable_of_a_launch_is_explained() -> None:
    explained = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", PAGE)) | {"TT_RUNTIME"}
    assert {name for recipe in LAUNCHES for name in recipe.environ} <= explained


def test_every_architecture_of_the_page_is_served_by_a_class() -> None:
    named = re.findall(r"`(\w+)`", "".join(re.findall(r"^Architectures?: (.+)$", PAGE, re.MULTILINE)))
    for architecture in named:
        assert resolve(architecture, environ={}, register_test_models=True).source == "built-in"
    assert len(set(named)) >= 16


@pytest.mark.parametrize("recipe", [r for r in LAUNCHES if "_galaxy" in str(r.environ) or "gpt-oss" in str(r.words)])
def test_what_is_said_to_run_in_lanes_does(recipe: Recipe) -> None:
    architecture = next((VARIANTS[name] for name in VARIANTS if name in recipe.environ), "GptOssForCausalLM")
    assert resolve(architecture, environ=recipe.environ).data_parallel == "lanes"


@pytest.mark.vllm
@pytest.mark.parametrize(
    "recipe", [r for r in RECIPES if r.program[:2] == ("vllm", "bench")], ids=lambda r: r.words[-1]
)
def test_a_benchmark_is_one_that_vllm_accepts(recipe: Recipe) -> None:
    from vllm.benchmarks.serve import add_cli_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    assert recipe.program == ("vllm", "bench", "serve")
    assert parser.parse_args(recipe.arguments).num_prompts == 32


def test_the_options_of_the_server_suite_are_those_of_the_page() -> None:
    (recipe,) = (recipe for recipe in RECIPES if recipe.program[0] == "pytest")
    options = {word.split("=")[0] for word in recipe.arguments}
    declared = (ROOT / "tests" / "tt" / "conftest.py").read_text()
    assert options == set(re.findall(r'addoption\(\s*"(--tt-[\w-]+)"', declared))


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("line", "error"),
    [
        (f"MESH_DEVICE=T3K python {SERVER} --max-num-sequences 3", SystemExit),
        (f"MESH_DEVICE=T3K python {OFFLINE} --prompts-file 3", SystemExit),
        ("MESH_DEVICE=T3K vllm chat", AssertionError),
        (f"MESH_DEVICE=T3000 python {SERVER}", ValueError),
        (f"python {SERVER}", KeyError),
        (f"MESH_DEVICE=TG TT_QWEN3_TEXT_VER=galaxy python {SERVER}", UnknownVariant),
        (f"""MESH_DEVICE=T3K python {SERVER} --additional-config '{{"tt": {{"trace_mode": "some"}}}}'""", ValueError),
        (f"""MESH_DEVICE=T3K python {SERVER} --additional-config '{{"tt": {{"trace_mod": "all"}}}}'""", AssertionError),
    ],
)
def test_a_line_with_a_mistake_would_be_found(
    line: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    (recipe,) = recipes(f"## Family\n```bash\n{line}\n```\n")
    with pytest.raises(error):
        judge(recipe, caplog)

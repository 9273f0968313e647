"""`python -m tt_registry` and the tables of docs/registry.md."""

import json
from pathlib import Path

import pytest

from tt_registry.__main__ import main
from tt_registry.tables import BLOCKS, update_blocks

DOCS = Path(__file__).parents[3] / "docs" / "registry.md"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "TT_MODEL_CLASS_OVERRIDES",
        "EXTRA_MODELS_DIR",
        "TT_VLLM_BUILTIN_MODELS",
        "TT_RUNTIME",
        "TT_LLAMA_TEXT_VER",
        "TT_QWEN3_TEXT_VER",
        "TT_QWEN35_TEXT_VER",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.skipif(not DOCS.exists(), reason="docs/ is not beside this package")
def test_the_tables_of_the_docs_are_those_of_the_data() -> None:
    """Fails when the table changed and the docs did not: run python -m tt_registry --update docs/registry.md."""
    text = DOCS.read_text(encoding="utf-8")
    assert all(f"<!-- generated: {name} -->" in text for name in BLOCKS)
    assert update_blocks(text) == text


def test_updating_replaces_the_generated_part_only(tmp_path) -> None:
    path = tmp_path / "doc.md"
    path.write_text("before\n<!-- generated: capabilities -->\nold\n<!-- end: capabilities -->\nafter\n")
    assert main(["--update", str(path)]) == 0
    text = path.read_text()
    assert text.startswith("before\n<!-- generated: capabilities -->\n| Key")
    assert text.endswith("|\n<!-- end: capabilities -->\nafter\n")
    assert update_blocks(text) == text


@pytest.mark.parametrize("name", BLOCKS)
def test_markdown_prints_one_table(name: str, capsys) -> None:
    assert main(["--markdown", name]) == 0
    assert capsys.readouterr().out.strip() == BLOCKS[name]()


def test_markdown_prints_all_tables(capsys) -> None:
    assert main(["--markdown"]) == 0
    assert all(render() in capsys.readouterr().out for render in list(BLOCKS.values())[:1])


def test_the_table_lists_every_architecture_with_its_reason_once(capsys) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "TTLlamaForCausalLM" in out
    assert "DummyNoOp" not in out
    assert out.count("not importable") == 1
    assert main(["--test-models"]) == 0
    assert "TTDummyNoOpModel" in capsys.readouterr().out


def test_json_is_a_list_of_objects(capsys) -> None:
    assert main(["--json"]) == 0
    found = {row["architecture"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["GptOssForCausalLM"]["data_parallel"] == "lanes"
    assert found["LlamaForCausalLM"]["tt_architecture"] == "TTLlamaForCausalLM"
    assert found["LlamaForCausalLM"]["capabilities"] is None


def test_one_architecture_is_shown_in_full_with_what_it_declares(tree, capsys, monkeypatch) -> None:
    declared = "{'max_device_top_k': 32, 'spec_requirements': []}"
    tree({"cmd_model.py": f"class M:\n    model_capabilities = {declared}\n"})
    monkeypatch.setenv("TT_MODEL_CLASS_OVERRIDES", "LlamaForCausalLM=cmd_model:M")
    assert main(["TTLlamaForCausalLM"]) == 0
    out = capsys.readouterr().out
    assert "target: cmd_model:M" in out
    assert "max_device_top_k: 32" in out
    assert main(["LlamaForCausalLM", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["capabilities"]["max_device_top_k"] == 32
    assert shown["capabilities"]["spec_requirements"] == []


@pytest.mark.parametrize(
    ("variable", "value", "arguments", "says"),
    [
        ("TT_MODEL_CLASS_OVERRIDES", "nonsense", [], "TT_MODEL_CLASS_OVERRIDES"),
        ("TT_LLAMA_TEXT_VER", "llama9", ["LlamaForCausalLM"], "TT_LLAMA_TEXT_VER='llama9'"),
        ("TT_RUNTIME", "auto", ["FooForCausalLM"], "EXTRA_MODELS_DIR"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_1(monkeypatch, capsys, variable, value, arguments, says) -> None:
    monkeypatch.setenv(variable, value)
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert len(captured.err.splitlines()) == 1


def test_the_runtime_follows_the_environment(monkeypatch, capsys) -> None:
    monkeypatch.setenv("TT_RUNTIME", "host")
    assert main(["MllamaForConditionalGeneration"]) == 1
    assert "needs a card" in capsys.readouterr().err
    assert main(["MllamaForConditionalGeneration", "--runtime", "ttnn"]) == 0

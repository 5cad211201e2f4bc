"""seqfuse.GPTNeoX: the engine of `seqfuse generate` and `perplexity` from Python."""

import json
import math
import os
import pathlib
import signal
import subprocess
import threading

import numpy
import pytest
import torch

import seqfuse
from seqfuse import _library
from tiny_gpt_neox import VOCABULARY, make_tensors, write_model, write_safetensors

pytestmark = pytest.mark.skipif(
    not seqfuse.library_path.with_name("libseqfuse_decoder.so").is_file(),
    reason="built without language models (nlohmann/json.hpp)",
)
PROMPTS = [[5, 34, 63], [18, 7], [200, 201, 202, 203, 204, 3]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def model(folder):
    return seqfuse.GPTNeoX.from_pretrained(folder, dtype="float64", device="cpu")


@pytest.fixture(scope="module")
def text_model(tmp_path_factory):
    """With a tokenizer whose first 256 tokens are bytes."""
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed (`make setup` installs it)")
    folder = write_model(tmp_path_factory.mktemp("models") / "text")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({byte: i for i, byte in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return seqfuse.GPTNeoX.from_pretrained(folder, dtype=torch.float64, device="cpu"), tokenizer


def ids_of(results):
    return [result.ids for result in results]


# ---- The same as transformers, as the binary, as golden numbers -------------------------------------------


@pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "sequential"])
def test_like_transformers(parallel, device, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (`make setup` does it)")
    write_model(tmp_path, parallel)
    dtype = torch.float64 if device == "cpu" else torch.float32
    theirs = transformers.GPTNeoXForCausalLM.from_pretrained(tmp_path, dtype=dtype).to(device)
    ours = seqfuse.GPTNeoX.from_pretrained(tmp_path, dtype=dtype, device=device)
    results = ours.generate(PROMPTS, max_new_tokens=20, eos=[])
    assert len({tuple(result.ids) for result in results}) == len(PROMPTS)
    for prompt, result in zip(PROMPTS, results, strict=True):
        tokens = torch.tensor([prompt], device=device)
        expected = theirs.generate(tokens, max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0)
        assert result.ids == expected[0, len(prompt) :].tolist()
        assert result.finish == "length"
    text = torch.randint(VOCABULARY, (40,), device=device)
    with torch.no_grad():
        logits = theirs(text.unsqueeze(0)).logits[0, :-1].double()
    expected = torch.nn.functional.cross_entropy(logits, text[1:], reduction="none").cpu()
    # Rotary angles are float32 in transformers.
    torch.testing.assert_close(ours.token_losses(text), expected, rtol=1e-4, atol=1e-4)


def test_like_the_binary(folder, model):
    binary = seqfuse.library_path.parent.parent / "bin/seqfuse"
    if not binary.is_file():
        pytest.skip(f"there is no {binary}")
    command = [binary, "generate", folder, "--ids", "5,34,63", "--ids", "18,7", "--max-new-tokens", "30", "--json"]
    options = ["--device", "cpu", "--dtype", "float64", "--top-p", "0.9", "--seed", "3", "--repetition-penalty", "1.2"]
    cache = ["--cache", "streaming", "--start", "2", "--recent", "8"]
    finished = subprocess.run([*command, *options, *cache], capture_output=True, text=True, check=True)
    theirs = [json.loads(line) for line in finished.stdout.splitlines()]
    ours = model.generate(
        PROMPTS[:2], 30, top_p=0.9, seed=3, repetition_penalty=1.2, cache="streaming", start=2, recent=8
    )
    assert [(r.ids, r.finish) for r in ours] == [(t["ids"], t["finish"]) for t in theirs]


@pytest.mark.skipif("SEQFUSE_GPT_NEOX" not in os.environ, reason="SEQFUSE_GPT_NEOX names no model with golden.json")
def test_golden_numbers():
    folder = pathlib.Path(os.environ["SEQFUSE_GPT_NEOX"])
    golden = json.loads((folder / "golden.json").read_text())
    model = seqfuse.GPTNeoX.from_pretrained(folder, dtype=torch.float32, device="cpu")
    ids = numpy.fromfile(folder / "shakespeare_heldout.i32", dtype="<i4")
    expected = golden["greedy_from_64"]
    assert model.generate(ids[:64], len(expected), eos=[]).ids == expected
    for start, recent in ((4, 252), (1, 255), (0, 256)):
        number = golden[f"shakespeare_heldout/start{start}_recent{recent}_shiftTrue"]
        found = model.perplexity(
            ids[: number["tokens"] + 1], cache="streaming", start=start, recent=recent, tokens_per_pass=256
        )
        assert found == pytest.approx(number["ppl"], rel=1e-6)


# ---- generate ---------------------------------------------------------------------------------------------


def test_prompts_in_every_form(model):
    expected = model.generate(PROMPTS, 8)
    assert all(isinstance(result, seqfuse.Generated) and result.text is None for result in expected)
    assert model.generate(PROMPTS[0], 8) == expected[0]
    assert model.generate(torch.tensor(PROMPTS[0]), 8) == expected[0]
    assert model.generate(numpy.array(PROMPTS[0]), 8) == expected[0]
    assert model.generate([torch.tensor(prompt) for prompt in PROMPTS], 8) == expected
    assert model.generate(torch.tensor(PROMPTS[:1]), 8) == expected[:1]
    assert model.generate(PROMPTS, 8, batch_size=2) == expected
    assert model.generate([], 8) == []


def test_sampling(model):
    greedy = model.generate(PROMPTS, 12, eos=[])
    assert model.generate(PROMPTS, 12, eos=[], top_k=1) == greedy
    drawn = model.generate(PROMPTS, 12, eos=[], temperature=1.5, seed=7)
    assert model.generate(PROMPTS, 12, eos=[], temperature=1.5, seed=7, batch_size=1) == drawn
    assert model.generate(PROMPTS, 12, eos=[], temperature=1.5, seed=8) != drawn
    assert model.generate(PROMPTS, 12, eos=[], top_p=0.99) == model.generate(
        PROMPTS, 12, eos=[], top_p=0.99, temperature=1.0
    )
    for prompt, result in zip(PROMPTS, model.generate(PROMPTS, 12, eos=[], repetition_penalty=1e6)):
        assert len({*prompt, *result.ids}) == len(prompt) + 12


def test_end_tokens(model):
    prompt = PROMPTS[0]
    ids = model.generate(prompt, 12, eos=[]).ids
    for eos in (ids[5], [299, ids[5]]):
        assert model.generate(prompt, 12, eos=eos) == seqfuse.Generated(ids[: ids.index(ids[5])], None, "eos")
    assert model.eos_ids == [0]


def test_cache_rules(model):
    text = torch.randint(VOCABULARY, (60,))
    full = model.token_losses(text)
    assert full.shape == (59,)
    for options in ({"cache": "streaming", "recent": 60}, {"tokens_per_pass": 16}):
        torch.testing.assert_close(model.token_losses(text, **options), full)
    streaming = model.token_losses(text, cache="streaming", start=2, recent=9)
    assert not torch.allclose(streaming[20:], full[20:])
    again = model.token_losses(text, cache="recompute", start=2, recent=9)
    seen = torch.cat([text[:2], text[31 : 40 + 2]])  # by token 40, and the one that it predicts
    torch.testing.assert_close(again[40], model.token_losses(seen)[-1])
    torch.testing.assert_close(again[:11], streaming[:11])
    window = model.token_losses(text, cache="window", recent=11)
    torch.testing.assert_close(window, model.token_losses(text, cache="streaming", start=0, recent=11))
    assert model.perplexity(text, cache="window", recent=11) == pytest.approx(math.exp(window.mean()))
    assert len(model.generate(PROMPTS[0], 100, eos=[], cache="streaming", recent=8).ids) == 100
    ended = model.generate(PROMPTS[0], 100, eos=[])
    assert (len(ended.ids), ended.finish) == (64 - 3 + 1, "cache_full")
    assert len(model.generate(PROMPTS[0], 100, eos=[], cache_size=103).ids) == 100


def test_tokens_as_they_come(model):
    expected = model.generate(PROMPTS, 12, eos=[])
    seen = [[] for _ in PROMPTS]
    main = threading.current_thread()

    def on_token(text, token):
        assert threading.current_thread() is main
        seen[text].append(token)
        return not (text == 1 and len(seen[1]) == 4)

    results = model.generate(PROMPTS, 12, eos=[], on_token=on_token)
    assert ids_of(results) == seen
    assert results[0] == expected[0]
    assert results[1] == seqfuse.Generated(expected[1].ids[:4], None, "stop")
    assert results[2] == expected[2]

    def broken(text, token):
        raise KeyError("of the caller")

    with pytest.raises(KeyError, match="of the caller"):
        model.generate(PROMPTS[0], 10**6, eos=[], cache="streaming", on_token=broken)


@pytest.mark.parametrize("work", ["generate", "perplexity"])
def test_ctrl_c(model, work):
    """Ends work of many minutes."""
    # In the background of a shell, SIGINT is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            if work == "generate":
                model.generate(PROMPTS[0], 10**6, eos=[], cache="streaming")
            else:
                model.perplexity(torch.randint(VOCABULARY, (10**5,)), cache="streaming")
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(model.generate(PROMPTS[0], 5, eos=[]).ids) == 5


def test_several_threads(model):
    expected = model.generate(PROMPTS, 20)
    found = {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: model.generate(PROMPTS, 20)})) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(3), expected)


# ---- Text -------------------------------------------------------------------------------------------------


def test_text(text_model):
    model, tokenizer = text_model
    prompt = "héllo"
    result = model.generate(prompt, 20, eos=[])
    assert result == model.generate(tokenizer.encode(prompt).ids, 20, eos=[])
    assert result.text == tokenizer.decode(result.ids)
    assert model.generate([prompt, "b"], 20, eos=[])[0] == result
    assert model.perplexity("some text") == model.perplexity(tokenizer.encode("some text").ids)


def test_stop_strings(text_model):
    """A stop string may begin and end within tokens; the text ends before it."""
    model, tokenizer = text_model
    prompts = ["ab", "xyz"]
    plain = model.generate(prompts, 40, eos=[], temperature=2.0)
    stop = next(plain[0].text[i : i + 2] for i in range(3, 30) if plain[0].text[i : i + 2].isascii())
    results = model.generate(prompts, 40, eos=[], temperature=2.0, stop=[stop, "never there"])
    for result, before in zip(results, plain, strict=True):
        assert before.ids[: len(result.ids)] == result.ids
        if stop in before.text:
            assert (result.text, result.finish) == (before.text[: before.text.index(stop)], "stop")
            assert tokenizer.decode(result.ids).endswith(stop)
        else:
            assert result == before
    assert results[0].finish == "stop"
    assert model.generate("ab", 40, eos=[], temperature=2.0, stop=stop) == results[0]


def test_text_without_a_tokenizer(model):
    with pytest.raises(ValueError, match=r"tokenizer.json, which is not there; give the ids"):
        model.generate("text", 5)


# ---- Errors -----------------------------------------------------------------------------------------------

WRONG = {
    "no tokens": (lambda model: model.generate([[]], 5), "the prompt has no tokens"),
    "unknown id": (lambda model: model.generate([5, 300], 5), "id 300 is not in the model's vocabulary of 300"),
    "fraction": (lambda model: model.generate([5, 0.5], 5), "a prompt has 0.5; expected text, or whole numbers"),
    "no new tokens": (lambda model: model.generate([5], 0), "0 new tokens; expected 1 or more"),
    "batch": (lambda model: model.generate([5], 1, batch_size=0), "batch_size is 0; expected 1 or more"),
    "temperature": (lambda model: model.generate([5], 1, temperature=-1.0), "temperature is -1"),
    "rule": (lambda model: model.generate([5], 1, cache="all"), "cache is 'all'; expected full, window, streaming or"),
    "long prompt": (lambda model: model.generate([5] * 65, 9), "text 1 has 65 tokens, the full cache holds 64: "
                    "cache_size=74 makes room"),
    "long text": (lambda model: model.perplexity([5] * 66), "text 1 has 65 tokens, the full cache holds 64"),
    "short text": (lambda model: model.perplexity([5]), "the text has 1 tokens; at least 2 are needed"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(model, case):
    call, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        call(model)


def without_a_tensor(folder):
    tensors = make_tensors()
    del tensors["gpt_neox.layers.1.mlp.dense_h_to_4h.bias"]
    write_safetensors(folder / "model.safetensors", tensors)


def with_nan(folder):
    tensors = make_tensors()
    tensors["gpt_neox.embed_in.weight"][3, 4] = math.nan
    write_safetensors(folder / "model.safetensors", tensors)


DAMAGED = {
    "no folder": (lambda folder: folder.rename(folder.with_name("moved")), "is not a folder"),
    "another model": (lambda folder: write_model(folder, model_type="llama"), "model_type is 'llama'; only gpt_neox"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors"),
    "missing tensor": (without_a_tensor, "the tensor gpt_neox.layers.1.mlp.dense_h_to_4h.bias is missing"),
    "NaN": (with_nan, "gpt_neox.embed_in.weight has values that are NaN"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_folders(tmp_path, case):
    damage, message = DAMAGED[case]
    damage(write_model(tmp_path / "model"))
    with pytest.raises(ValueError, match=message):
        seqfuse.GPTNeoX.from_pretrained(tmp_path / "model", device="cpu")


def test_unknown_dtype(folder):
    with pytest.raises(ValueError, match="dtype is int8; expected float32, float16, bfloat16 or float64"):
        seqfuse.GPTNeoX.from_pretrained(folder, dtype=torch.int8, device="cpu")
    assert "Float on cpu" in repr(seqfuse.GPTNeoX.from_pretrained(folder, device="cpu"))


def test_a_package_without_language_models(tmp_path):
    with pytest.raises(ImportError, match=r"nlohmann/json.hpp. Install it \(`apt-get install nlohmann-json3-dev`\)"):
        _library.load_decoder(tmp_path / "libseqfuse_ops.so")

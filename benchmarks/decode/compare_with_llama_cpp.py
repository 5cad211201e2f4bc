"""Decoding speed of seqfuse and llama.cpp on the CPU: the same random GPT-NeoX, the same threads.

    python3 -m venv /tmp/llama && /tmp/llama/bin/pip install llama-cpp-python gguf numpy
    /tmp/llama/bin/python benchmarks/decode/compare_with_llama_cpp.py --models /tmp/models --json out.json

Writes the model as a Hugging Face folder (float16) and as GGUF files (F16, Q8_0) under --models, if they
are not there, then times greedy decoding of --tokens tokens after a prompt of --prompt tokens. The
programs take turns, --repeats times, each in a process of its own; a line gives the median, the lowest
and the highest tokens a second. Times are from the first new token to the last: loading and the prompt
do not count. llama.cpp runs with its defaults; its loop is a decode call and an argmax a token.
"""

import argparse
import ctypes
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

# Pythia-160M.
SHAPE = {"layers": 12, "hidden": 768, "heads": 12, "inner": 3072, "vocab": 50304, "rotary": 0.25}
CONTEXT = 2048


def weights(shape):
    """Hugging Face's names to float16 arrays; norms and biases too."""
    rng = np.random.default_rng(1)
    h, inner = shape["hidden"], shape["inner"]

    def normal(*size):
        return (rng.standard_normal(size, dtype=np.float32) * 0.02).astype(np.float16)

    tensors = {"gpt_neox.embed_in.weight": normal(shape["vocab"], h)}

    def norm(name):
        tensors[name + ".weight"] = normal(h) + np.float16(1)
        tensors[name + ".bias"] = normal(h)

    def linear(name, outputs, inputs):
        tensors[name + ".weight"] = normal(outputs, inputs)
        tensors[name + ".bias"] = normal(outputs)

    for i in range(shape["layers"]):
        layer = f"gpt_neox.layers.{i}."
        norm(layer + "input_layernorm")
        norm(layer + "post_attention_layernorm")
        linear(layer + "attention.query_key_value", 3 * h, h)
        linear(layer + "attention.dense", h, h)
        linear(layer + "mlp.dense_h_to_4h", inner, h)
        linear(layer + "mlp.dense_4h_to_h", h, inner)
    norm("gpt_neox.final_layer_norm")
    tensors["embed_out.weight"] = normal(shape["vocab"], h)
    return tensors


def write_hugging_face(folder, shape, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "gpt_neox",
        "vocab_size": shape["vocab"],
        "hidden_size": shape["hidden"],
        "intermediate_size": shape["inner"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "max_position_embeddings": CONTEXT,
        "hidden_act": "gelu",
        "rotary_pct": shape["rotary"],
        "use_parallel_residual": True,
        "torch_dtype": "float16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    header, offset = {}, 0
    for name, array in tensors.items():
        end = offset + array.nbytes
        header[name] = {"dtype": "F16", "shape": array.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(array.tobytes())


def write_gguf(path, shape, tensors, quantised):
    import gguf  # noqa: PLC0415

    heads, h = shape["heads"], shape["hidden"]
    dim = h // heads
    writer = gguf.GGUFWriter(str(path), "gptneox")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(h)
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(shape["inner"])
    writer.add_head_count(heads)
    writer.add_rope_dimension_count(int(dim * shape["rotary"]))
    writer.add_layer_norm_eps(1e-5)
    writer.add_parallel_residual(True)
    writer.add_vocab_size(shape["vocab"])
    writer.add_tokenizer_model("no_vocab")

    def add(name, array):
        if array.ndim == 1:
            writer.add_tensor(name, array.astype(np.float32))
        elif quantised:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(array.astype(np.float32), kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)

    def add_pair(name, hf_name, reorder=lambda a: a):
        for part in ("weight", "bias"):
            add(f"{name}.{part}", reorder(tensors[f"{hf_name}.{part}"]))

    def by_kind(array):  # outputs by head, then q, k, v: GGUF has all of q, then k, then v
        split = array.reshape(heads, 3, dim, *array.shape[1:])
        return np.ascontiguousarray(split.swapaxes(0, 1)).reshape(array.shape)

    add("token_embd.weight", tensors["gpt_neox.embed_in.weight"])
    for i in range(shape["layers"]):
        layer = f"gpt_neox.layers.{i}."
        add_pair(f"blk.{i}.attn_norm", layer + "input_layernorm")
        add_pair(f"blk.{i}.ffn_norm", layer + "post_attention_layernorm")
        add_pair(f"blk.{i}.attn_qkv", layer + "attention.query_key_value", by_kind)
        add_pair(f"blk.{i}.attn_output", layer + "attention.dense")
        add_pair(f"blk.{i}.ffn_up", layer + "mlp.dense_h_to_4h")
        add_pair(f"blk.{i}.ffn_down", layer + "mlp.dense_4h_to_h")
    add_pair("output_norm", "gpt_neox.final_layer_norm")
    add("output.weight", tensors["embed_out.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def prompt_ids(count, vocab):
    return [(17 + 7919 * i) % vocab for i in range(count)]


def decode_llama(path, prompt, tokens, threads):
    """Prints the ids and the seconds between the first new token and the last, as JSON."""
    import llama_cpp as llama  # noqa: PLC0415

    llama.llama_backend_init()
    quiet = llama.llama_log_callback(lambda level, text, data: None)
    llama.llama_log_set(quiet, ctypes.c_void_p(0))
    model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    params = llama.llama_context_default_params()
    params.n_ctx = prompt + tokens + 8
    params.n_threads = params.n_threads_batch = threads
    context = llama.llama_init_from_model(model, params)
    vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))

    def run(ids):
        array = (llama.llama_token * len(ids))(*ids)
        if llama.llama_decode(context, llama.llama_batch_get_one(array, len(ids))) != 0:
            sys.exit("llama_decode failed")
        logits = llama.llama_get_logits_ith(context, -1)
        return int(np.argmax(np.ctypeslib.as_array(logits, (vocab,))))

    given = prompt_ids(prompt, vocab)
    for begin in range(0, prompt, 512):
        ids = [run(given[begin : begin + 512])]
    begin = time.perf_counter()
    while len(ids) < tokens:
        ids.append(run(ids[-1:]))
    print(json.dumps({"ids": ids, "seconds": time.perf_counter() - begin}))


def time_llama(path, args):
    command = [sys.executable, __file__, "--llama", str(path)]
    for flag in ("prompt", "tokens", "threads"):
        command += [f"--{flag}", str(getattr(args, flag))]
    result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return result["ids"], (args.tokens - 1) / result["seconds"]


def time_seqfuse(folder, flags, args):
    command = [args.seqfuse, "generate", str(folder), "--device", "cpu", "--ignore-eos"]
    command += ["--max-new-tokens", str(args.tokens), *flags]
    command += ["--ids", ",".join(map(str, prompt_ids(args.prompt, SHAPE["vocab"])))]
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    text, first = b"", 0.0
    while piece := os.read(process.stdout.fileno(), 4096):
        first = first or time.perf_counter()
        if not piece.isspace():
            last = time.perf_counter()
        text += piece
    if process.wait() != 0:
        sys.exit(f"failed: {' '.join(command)}")
    ids = [int(word) for word in text.decode().split(",")]
    return ids, (args.tokens - 1) / (last - first)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, help="where the models are or will be written")
    parser.add_argument("--seqfuse", default="build/bin/seqfuse")
    parser.add_argument("--prompt", type=int, default=16, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=129, help="new tokens")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--llama", help=argparse.SUPPRESS)  # a GGUF file: one measurement, in here
    args = parser.parse_args()
    if args.llama:
        return decode_llama(args.llama, args.prompt, args.tokens, args.threads)

    hugging_face = args.models / "neox-160m"
    files = {"F16": args.models / "neox-160m-f16.gguf", "Q8_0": args.models / "neox-160m-q8_0.gguf"}
    if not all(path.exists() for path in (hugging_face / "model.safetensors", *files.values())):
        tensors = weights(SHAPE)
        write_hugging_face(hugging_face, SHAPE, tensors)
        for name, path in files.items():
            write_gguf(path, SHAPE, tensors, quantised=name == "Q8_0")
    runs = {
        "llama.cpp F16": lambda: time_llama(files["F16"], args),
        "seqfuse float16 weights": lambda: time_seqfuse(hugging_face, [], args),
        "seqfuse float16 weights and cache": lambda: time_seqfuse(hugging_face, ["--dtype", "float16"], args),
        "llama.cpp Q8_0": lambda: time_llama(files["Q8_0"], args),
        "seqfuse int8 weights": lambda: time_seqfuse(hugging_face, ["--weights", "int8"], args),
        "seqfuse int8 weights, float16 cache": lambda: time_seqfuse(
            hugging_face, ["--weights", "int8", "--dtype", "float16"], args
        ),
    }
    ids, speeds = {}, {name: [] for name in runs}
    for _ in range(args.repeats):
        for name, run in runs.items():
            ids[name], speed = run()
            speeds[name].append(speed)
    results = []
    for name in runs:
        peer = "llama.cpp F16" if "16 weights" in name or name.endswith("F16") else "llama.cpp Q8_0"
        median = statistics.median(speeds[name])
        same = sum(a == b for a, b in zip(ids[name], ids["llama.cpp F16"]))
        results.append(
            {
                "name": name,
                "tokens_per_second": round(median, 2),
                "lowest": round(min(speeds[name]), 2),
                "highest": round(max(speeds[name]), 2),
                "of_llama_cpp": round(median / statistics.median(speeds[peer]), 3),
                "tokens_like_llama_cpp_f16": f"{same} of {args.tokens}",
            }
        )
        print(json.dumps(results[-1]))
    if args.json:
        import llama_cpp  # noqa: PLC0415

        about = {
            "command": " ".join(sys.argv[1:]),
            "date": time.strftime("%Y-%m-%d"),
            "machine": f"{cpu_name()}, {os.cpu_count()} cores",
            "threads": args.threads,
            "llama_cpp_python": llama_cpp.__version__,
            "shape": SHAPE,
        }
        args.json.write_text(json.dumps({**about, "results": results}, indent=1) + "\n")


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()

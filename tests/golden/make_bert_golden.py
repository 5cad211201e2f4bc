"""Writes FOLDER/golden.json for tests/encoder/golden_test.cpp: hidden states of a BERT by transformers in float64.

    python tests/golden/make_bert_golden.py FOLDER

FOLDER: config.json and model.safetensors of a Hugging Face BERT. golden.json has "ids" and
"token_type_ids" [B][N], "lengths" [B] and "last_hidden_state" [B][N][H] of random sequences, padded at the end; what it
says of padding means nothing. The same seed gives the same sequences. Needs torch and transformers.
"""

import argparse
import json
import pathlib

import torch
from transformers import BertModel


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes FOLDER/golden.json, hidden states by transformers in float64.")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1, 7, 64, 33, 128])
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    model = BertModel.from_pretrained(
        arguments.folder, add_pooling_layer=False, attn_implementation="eager", dtype=torch.float64
    ).eval()
    longest = model.config.max_position_embeddings
    if max(arguments.lengths) > longest:
        parser.error(f"--lengths has {max(arguments.lengths)}; the model takes at most {longest} tokens")
    torch.manual_seed(arguments.seed)
    lengths = torch.tensor(arguments.lengths)
    shape = (len(lengths), int(lengths.max()))
    ids = torch.randint(model.config.vocab_size, shape)
    types = torch.randint(model.config.type_vocab_size, shape)
    mask = (torch.arange(shape[1]) < lengths[:, None]).long()
    with torch.no_grad():
        states = model(ids, attention_mask=mask, token_type_ids=types).last_hidden_state
    golden = {
        "ids": ids.tolist(),
        "token_type_ids": types.tolist(),
        "lengths": arguments.lengths,
        "last_hidden_state": states.tolist(),
    }
    (arguments.folder / "golden.json").write_text(json.dumps(golden))


if __name__ == "__main__":
    main()

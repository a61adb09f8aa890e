#!/usr/bin/env python3
"""Writes the weights of a model directory (Llama or Gemma 3, as samples/gemma3 writes graphs) as GGUF for llama.cpp.

    onnx_to_gguf.py DIRECTORY FILE.gguf

Weights keep the type that they are stored in. There is no vocabulary in the file: the benchmarks speak in token ids.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
from gguf import GGMLQuantizationType, GGUFWriter
from onnx import TensorProto

PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# What stands between attention and MLP is called differently: Gemma norms both what comes out and what goes in.
MIDDLE = {"llama": {"post_attention_layernorm": "ffn_norm"},
          "gemma3": {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                     "post_feedforward_layernorm": "post_ffw_norm"}}
ARCHITECTURES = {"llama": "llama", "gemma3_text": "gemma3"}
NUMPY_TYPE = {TensorProto.FLOAT: np.float32, TensorProto.BFLOAT16: np.uint16}
GGUF_TYPE = {TensorProto.FLOAT: GGMLQuantizationType.F32, TensorProto.BFLOAT16: GGMLQuantizationType.BF16}
# llama.cpp's codes of a file's main type.
FILE_TYPE = {TensorProto.FLOAT: 0, TensorProto.BFLOAT16: 32}


def gguf_name(name, architecture):
    """model.layers.3.mlp.up_proj.weight -> blk.3.ffn_up.weight"""
    plain = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}
    if name in plain:
        return plain[name]
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{layer}.{(PARTS | MIDDLE[architecture])[part]}.weight"


def stored_weights(folder):
    """(initializer, mapped array) of the weights in the external file."""
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            entry = {item.key: item.value for item in tensor.external_data}
            yield tensor, np.memmap(folder / entry["location"], NUMPY_TYPE[tensor.data_type], "r",
                                    int(entry["offset"]), tuple(tensor.dims))


def gguf_layout(name, array, config, architecture):
    """[out, in], and for Llama the rows of q and k in the order of llama.cpp's interleaved rotation."""
    if array.ndim == 1 or "embed_tokens" in name:
        return array
    array = np.ascontiguousarray(array.T)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    part = name.split(".")[-2]
    if architecture != "llama" or part not in heads:
        return array
    rows, columns = array.shape
    pairs = array.reshape(heads[part], 2, rows // heads[part] // 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows, columns))


def add_fields(writer, config, architecture):
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    if architecture == "gemma3":
        writer.add_sliding_window(config["sliding_window"])


def write_gguf(folder, out):
    """Makes `out` from the model directory, unless it is there."""
    if out.exists():
        return
    config = json.loads((folder / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    part = out.with_name(f".{out.name}.part")
    writer = GGUFWriter(part, architecture)
    add_fields(writer, config, architecture)
    weights = list(stored_weights(folder))
    for tensor, array in weights:
        transposed = array.ndim == 2 and "embed_tokens" not in tensor.name
        writer.add_tensor_info(gguf_name(tensor.name, architecture), array.shape[::-1] if transposed else array.shape,
                               array.dtype, array.nbytes, GGUF_TYPE[tensor.data_type])
    main_type = next(t.data_type for t, _ in weights if "embed_tokens" in t.name)
    writer.add_file_type(FILE_TYPE[main_type])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    print(f"{out.name}: writing", flush=True)
    for tensor, array in weights:
        writer.write_tensor_data(gguf_layout(tensor.name, array, config, architecture))
    writer.close()
    part.rename(out)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write_gguf(Path(sys.argv[1]), Path(sys.argv[2]))

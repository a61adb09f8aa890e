"""Gemma 3 270M from the files that people have: a GGUF file and a directory of transformers give the sample's greedy tokens.

usage: gemma_converted.py PLAIT MODELS PYTHON

PYTHON has the packages of samples/gemma3 (gguf, NumPy): it writes config.json and model.safetensors, in f32, from the GGUF file.
PLAIT_MODELS of the environment comes before MODELS. Ends with 77 when the model is not there.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
PROMPTS = ("The sea", "A recipe for bread:", "def fibonacci(n):")

# Names of a GGUF file's tensors, and of transformers'.
TENSORS = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
           "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
           "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
           "post_ffw_norm": "post_feedforward_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
           "ffn_down": "mlp.down_proj"}


def name_of(tensor):
    part = tensor.removesuffix(".weight").split(".")
    if part[0] == "blk":
        return f"model.layers.{part[1]}.{TENSORS[part[2]]}.weight"
    return {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[part[0]]


def write_transformers(gguf_file, directory):
    """What transformers' save_pretrained writes, but for the tokenizer."""
    import gguf
    import numpy

    reader = gguf.GGUFReader(gguf_file)

    def field(key):
        return reader.fields[f"gemma3.{key}"].contents()

    config = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": field("embedding_length"),
              "intermediate_size": field("feed_forward_length"), "num_hidden_layers": field("block_count"),
              "num_attention_heads": field("attention.head_count"), "num_key_value_heads": field("attention.head_count_kv"),
              "head_dim": field("attention.key_length"), "rms_norm_eps": field("attention.layer_norm_rms_epsilon"),
              "rope_theta": field("rope.freq_base"), "rope_local_base_freq": 10000.0, "sliding_window": field("attention.sliding_window"),
              "sliding_window_pattern": 6, "query_pre_attn_scalar": field("attention.key_length"),
              "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": field("context_length"), "tie_word_embeddings": True}
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        # The file has norms as they are multiplied, transformers what is added to 1.
        tensors[name_of(tensor.name)] = values - 1 if "norm" in tensor.name else values
    config["vocab_size"] = tensors["model.embed_tokens.weight"].shape[0]
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(config, file)
    header, end = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [end, end + values.nbytes]}
        end += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(directory, "model.safetensors"), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in tensors.values():
            file.write(values.tobytes())


def tokens(plait, model, prompt):
    words = [plait, "generate", model, "--prompt", prompt, "--max-tokens", "24", "--temperature", "0", "--cache-dir", "", "--json"]
    done = subprocess.run(words, capture_output=True, timeout=7200)
    if done.returncode:
        sys.exit(f"{model}: {done.stderr.decode()}")
    return json.loads(done.stdout)["ids"]


def main(plait, models, python):
    models = os.environ.get("PLAIT_MODELS", models)
    of_sample = os.path.join(models, "gemma-3-270m-f32")
    file = os.path.join(models, "gemma-3-270m-gguf", "gemma-3-270m-q4_k_m.gguf")
    if not all(map(os.path.exists, (of_sample, file, python))):
        print("NOT RUN: samples/gemma3/fetch.sh --dtype f32 has not been run")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        transformers, converted = os.path.join(folder, "transformers"), os.path.join(folder, "converted")
        os.mkdir(transformers)
        subprocess.run([python, __file__, "--write", file, transformers], check=True)
        for side in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join(of_sample, side), transformers)
        subprocess.run([plait, "convert", transformers, "--out", converted], check=True, capture_output=True)
        for prompt in PROMPTS:
            expected = tokens(plait, of_sample, prompt)
            for what in (file, transformers, converted):
                if (found := tokens(plait, what, prompt)) != expected:
                    sys.exit(f"{what}, {prompt!r}: {found}, expected {expected}")
    print(f"{len(PROMPTS)} prompts give the sample's tokens from the GGUF file and from a directory of transformers")
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        write_transformers(*sys.argv[2:4])
    else:
        sys.exit(main(*sys.argv[1:4]))

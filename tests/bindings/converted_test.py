"""Models of transformers, and GGUF files made of their weights by the gguf package: Plait's logits are PyTorch's, and those of
ONNX Runtime for what `plait convert` writes.

usage: converted_test.py PLAIT FIXTURES

Runs in the environment of get_onnxruntime.sh, which `./run test` makes; says NOT RUN and ends where there is none.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ENVIRONMENT = os.path.join(ROOT, ".cache", "onnxruntime", "bin", "python")
sys.path.append(os.path.join(ROOT, "tests", "fixtures", "zoo"))

LIMIT = 1e-4  # of the largest logit
# Families whose GGUF files have transformers' weights by other names, and the architecture; rows of query and key are turned in Llama's.
GGUF = {"llama": "LLAMA", "mixtral": "LLAMA", "qwen3": "QWEN3", "qwen2_moe": "QWEN2MOE", "qwen3_moe": "QWEN3MOE", "olmo2": "OLMO2",
        "gemma3": "GEMMA3"}
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
ROUNDED = 0.2  # where ONNX Runtime's experts round activations: it has them so for codes of 8 bits
# 8 bits with zero points that are no whole numbers: ONNX Runtime 1.31 loads such a model, and cannot run it.
OURS = ["Q5_1"]


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words[1:3])}: {done.stderr.strip()}")
    return done.stdout


def logits(plait, model, ids, folder):
    import numpy
    out = os.path.join(folder, "logits.npy")
    call(plait, "logits", model, "--ids", ",".join(map(str, ids)), "--out", out, "--threads", "1", "--cache-dir", "", "--option",
         "cache_bytes=8M")
    return numpy.load(out)


def read_safetensors(path):
    import numpy
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        body = file.read()
    header.pop("__metadata__", None)
    return {name: numpy.frombuffer(body[slice(*row["data_offsets"])], numpy.float32).reshape(row["shape"])
            for name, row in header.items()}


def stacked(weights):
    """Experts as GGUF files have them: a tensor of all experts for each projection, by a name without numbers."""
    import numpy
    out, experts = {}, {}
    for name, weight in weights.items():
        begin, found, end = name.partition(".experts.")
        if not found:
            out[name] = weight
            continue
        number, _, rest = end.partition(".")
        experts.setdefault(f"{begin}.experts.{rest}", {})[int(number)] = weight
    return out | {name: numpy.stack([own[i] for i in range(len(own))]) for name, own in experts.items()}


def turned(rows, heads):
    """Rows of each head from halves to neighbours."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, 2, half, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(folder, family, kind, path):
    """The family's model with matrices of a type."""
    import gguf
    config = json.load(open(os.path.join(folder, "config.json")))
    architecture = getattr(gguf.MODEL_ARCH, GGUF[family])
    out = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    heads, narrow = config["num_attention_heads"], config["num_key_value_heads"]
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(narrow)
    out.add_key_length(config.get("head_dim") or config["hidden_size"] // heads)
    out.add_rope_freq_base(config["rope_theta"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if family == "gemma3":
        out.add_sliding_window(config["sliding_window"])
        out.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    experts = config.get("num_local_experts") or config.get("num_experts")
    if experts:
        out.add_expert_count(experts)
        out.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config: out.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        out.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    dense = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, weight in stacked(read_safetensors(os.path.join(folder, "model.safetensors"))).items():
        if architecture == gguf.MODEL_ARCH.LLAMA and ("q_proj" in name or "k_proj" in name):
            weight = turned(weight, heads if "q_proj" in name else narrow)
        if family == "gemma3" and "norm" in name: weight = weight + 1
        # Files scale queries by the root of a head's size.
        if family == "gemma3" and "q_norm" in name:
            weight = weight * (config["head_dim"] / config["query_pre_attn_scalar"]) ** 0.5
        if name.endswith("shared_expert_gate.weight"): weight = weight.reshape(-1)
        blocks = weight.ndim > 1 and "mlp.gate.w" not in name and weight.shape[-1] % 32 == 0
        to = gguf.GGMLQuantizationType[kind if blocks else "F32"]
        # Layers without experts among such are not in the package's map of mixtures.
        ours = names.get_name(name, (".weight", ".bias")) or dense.get_name(name, (".weight", ".bias"))
        assert ours, f"the gguf package has no name for {name}"
        out.add_tensor(ours, gguf.quants.quantize(weight, to), raw_dtype=to)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def check(plait, model, golden, exact, foreign, folder):
    """Logits of a model, and of what it is converted to in ONNX Runtime, which may be `foreign` of the largest apart; 0: cannot run."""
    import numpy
    from runner import Runner, relative_error
    ours = logits(plait, model, golden["ids"], folder)
    if exact:
        error = relative_error(ours[-1], numpy.array(golden["logits"], numpy.float32))
        assert error <= LIMIT, f"differs from PyTorch by {error:.1e}"
    out = os.path.join(folder, "converted")
    call(plait, "convert", model, "--out", out)
    if not foreign: return
    error = relative_error(Runner(os.path.join(out, "model.onnx")).step([golden["ids"]])[0], ours)
    assert error <= foreign, f"ONNX Runtime's logits of the converted model differ by {error:.1e}"


def main():
    plait, fixtures = sys.argv[1], os.path.join(sys.argv[2], "huggingface")
    try:
        import gguf
        import onnxruntime
    except ImportError:
        if os.path.exists(ENVIRONMENT) and sys.executable != ENVIRONMENT:
            os.execv(ENVIRONMENT, [ENVIRONMENT, *sys.argv])
        print("NOT RUN: there is no ONNX Runtime; tests/bindings/get_onnxruntime.sh fetches it")
        return 0
    print("ONNX Runtime", onnxruntime.__version__)
    wrong = checked = 0
    for family in sorted(os.listdir(fixtures)):
        model = os.path.join(fixtures, family)
        with open(os.path.join(model, "golden.json")) as file:
            golden = json.load(file)
        for kind in ["safetensors", *(TYPES if family in GGUF else [])]:
            with tempfile.TemporaryDirectory() as folder:
                checked += 1
                path = model
                try:
                    if kind != "safetensors":
                        path = os.path.join(folder, "model.gguf")
                        write_gguf(model, family, kind, path)
                    rounded = kind in ("Q8_0", "Q5_0") and ("moe" in family or family == "mixtral")
                    check(plait, path, golden, kind in ("safetensors", "F32", "BF16"),
                          0 if kind in OURS else ROUNDED if rounded else LIMIT, folder)
                except AssertionError as fault:
                    wrong += 1
                    print(f"{family}, {kind}: {fault}")
    print(f"{checked} models, {wrong} wrong")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())

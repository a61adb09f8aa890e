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

from limits import HANG_S

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ENVIRONMENT = os.path.join(ROOT, ".cache", "onnxruntime", "bin", "python")
sys.path.append(os.path.join(ROOT, "tests", "fixtures", "zoo"))

LIMIT = 1e-4  # of the largest logit
# Families whose GGUF files have transformers' weights by other names, and the architecture; rows of query and key are turned in Llama's.
GGUF = {"llama": "LLAMA", "llama3": "LLAMA", "llama_linear": "LLAMA", "mixtral": "LLAMA", "qwen2_full": "QWEN2", "qwen3": "QWEN3",
        "qwen2_moe": "QWEN2MOE", "qwen3_moe": "QWEN3MOE", "gemma": "GEMMA", "gemma2": "GEMMA2", "gemma3": "GEMMA3", "olmo2": "OLMO2",
        "phi3": "PHI3", "phi3_long": "PHI3", "gpt2": "GPT2"}
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
ROUNDED = 0.2  # where ONNX Runtime's experts round activations: it has them so for codes of 8 bits
# 8 bits with zero points that are no whole numbers: ONNX Runtime 1.31 loads such a model, and cannot run it.
OURS = ["Q5_1"]


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S)
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


def write_rope(out, config, family, size):
    """Metadata and tensors of the rotary embedding; `size` is a head's."""
    import gguf
    import numpy
    out.add_rope_freq_base(config["rope_theta"])
    dims = int(size * config.get("partial_rotary_factor", 1))
    out.add_rope_dimension_count(dims)
    scaling = config.get("rope_scaling") or {}
    if family == "llama_linear":
        out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        out.add_rope_scaling_factor(scaling["factor"])
    if family == "llama3":
        length = 2 * numpy.pi * config["rope_theta"] ** (numpy.arange(0, dims, 2) / dims)
        original, low, high = (scaling[name] for name in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
        smooth = numpy.clip((original / length - low) / (high - low), 0, 1)
        out.add_tensor("rope_freqs.weight", (1 / ((1 - smooth) / scaling["factor"] + smooth)).astype(numpy.float32))
    if family == "phi3_long":
        original = config["original_max_position_embeddings"]
        out.add_rope_scaling_orig_ctx_len(original)
        ratio = config["max_position_embeddings"] / original
        out.add_rope_scaling_attn_factors(float(numpy.sqrt(1 + numpy.log(ratio) / numpy.log(original))))
        for name in ("long", "short"):
            out.add_tensor(f"rope_factors_{name}.weight", numpy.array(scaling[name + "_factor"], numpy.float32))


def write_metadata(out, config, family):
    """Of a config.json; returns heads of queries and of keys."""
    def get(name, old): return config[name] if name in config else config[old]
    hidden, heads = get("hidden_size", "n_embd"), get("num_attention_heads", "n_head")
    narrow = config.get("num_key_value_heads", heads)
    out.add_embedding_length(hidden)
    out.add_block_count(get("num_hidden_layers", "n_layer"))
    out.add_context_length(get("max_position_embeddings", "n_positions"))
    out.add_feed_forward_length(config.get("intermediate_size") or 4 * hidden)
    out.add_head_count(heads)
    if family == "gpt2":
        out.add_layer_norm_eps(config["layer_norm_epsilon"])
        return heads, heads
    size = config.get("head_dim") or hidden // heads
    out.add_head_count_kv(narrow)
    out.add_key_length(size)
    out.add_value_length(size)
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    write_rope(out, config, family, size)
    if family in ("gemma2", "gemma3", "phi3"):
        out.add_sliding_window(config["sliding_window"])
    if family == "gemma3":
        out.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    if family == "gemma2":
        out.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        out.add_final_logit_softcapping(config["final_logit_softcapping"])
    return heads, narrow


def as_stored(name, weight, family, config, heads, narrow):
    """A weight of transformers as GGUF files have it."""
    if GGUF[family] == "LLAMA" and ("q_proj" in name or "k_proj" in name):
        weight = turned(weight, heads if "q_proj" in name else narrow)
    if family.startswith("gemma") and "norm" in name: weight = weight + 1
    # Files scale queries by the root of a head's size.
    if (family, name.split(".")[-2]) in (("gemma3", "q_norm"), ("gemma2", "q_proj")):
        weight = weight * (config["head_dim"] / config["query_pre_attn_scalar"]) ** 0.5
    if family == "gpt2" and name.split(".")[-2] in ("c_attn", "c_proj", "c_fc") and weight.ndim == 2:
        weight = weight.T
    return weight.reshape(-1) if name.endswith("shared_expert_gate.weight") else weight


def write_gguf(folder, family, kind, path):
    """The family's model with matrices of a type."""
    import gguf
    import numpy
    config = json.load(open(os.path.join(folder, "config.json")))
    architecture = getattr(gguf.MODEL_ARCH, GGUF[family])
    out = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    heads, narrow = write_metadata(out, config, family)
    experts = config.get("num_local_experts") or config.get("num_experts")
    if experts:
        out.add_expert_count(experts)
        out.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config: out.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        out.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    layers = config.get("num_hidden_layers") or config["n_layer"]
    names = gguf.get_tensor_name_map(architecture, layers)
    dense = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    for name, weight in stacked(read_safetensors(os.path.join(folder, "model.safetensors"))).items():
        weight = as_stored(name, weight, family, config, heads, narrow)
        blocks = weight.ndim > 1 and "mlp.gate.w" not in name and weight.shape[-1] % 32 == 0
        to = gguf.GGMLQuantizationType[kind if blocks else "F32"]
        # Layers without experts among such are not in the package's map of mixtures.
        ours = names.get_name(name, (".weight", ".bias")) or dense.get_name(name, (".weight", ".bias"))
        assert ours, f"the gguf package has no name for {name}"
        out.add_tensor(ours, gguf.quants.quantize(numpy.ascontiguousarray(weight), to), raw_dtype=to)
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
                    # Weights have a mantissa of 8 bits; not the queries' of gemma2 once they are scaled.
                    exact = kind in ("safetensors", "F32") or kind == "BF16" and family != "gemma2"
                    check(plait, path, golden, exact,
                          0 if kind in OURS else ROUNDED if rounded else LIMIT, folder)
                except AssertionError as fault:
                    wrong += 1
                    print(f"{family}, {kind}: {fault}")
    print(f"{checked} models, {wrong} wrong")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())

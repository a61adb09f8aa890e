"""The training benchmark's models as plain PyTorch modules, of the arithmetic and with the weights of the ONNX files.

Shape letters: b batch, s sequence, h hidden, g key/value heads, r query heads per key/value head, d head size, v vocabulary.
"""

import sys
from pathlib import Path

import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "samples" / "gemma3"))
from onnx_writer import widen  # noqa: E402

BF16 = onnx.TensorProto.BFLOAT16


def weights_of(folder):
    """{name: f32 array} of the tensors that have names of their own."""
    model = onnx.load(Path(folder) / "model.onnx")
    return {one.name: numbers_of(one) for one in model.graph.initializer if not one.name.startswith("constant_")}


def numbers_of(tensor):
    if tensor.data_type != BF16:
        return torch.from_numpy(numpy_helper.to_array(tensor).copy())
    import numpy as np  # bf16 numbers as numpy has none
    return torch.from_numpy(widen(np.frombuffer(tensor.raw_data, np.uint16)).reshape(tuple(tensor.dims)))


def linear_of(weights, name):
    """A linear layer of what the file has as [in, out]."""
    weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
    made = nn.Linear(*weight.shape, bias=bias is not None, device="meta")
    made.weight = nn.Parameter(weight.T.contiguous())
    if bias is not None:
        made.bias = nn.Parameter(bias)
    return made


class LoRALinear(nn.Module):
    """x w^T + alpha / rank (x a^T) b^T with w as it is, a and b in f32 (Hu et al. 2022)."""

    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        bound = base.in_features ** -0.5
        self.a = nn.Parameter(torch.empty(rank, base.in_features).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a), self.b) * self.scale


class Gpt2Layer(nn.Module):
    def __init__(self, weights, prefix, heads):
        super().__init__()
        self.heads = heads
        self.attn, self.proj = (linear_of(weights, f"{prefix}.attn.{part}") for part in ("c_attn", "c_proj"))
        self.fc, self.out = (linear_of(weights, f"{prefix}.mlp.{part}") for part in ("c_fc", "c_proj"))
        self.norm1, self.norm2 = (layer_norm(weights, f"{prefix}.{part}") for part in ("ln_1", "ln_2"))

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = (part.view(b, s, self.heads, -1).transpose(1, 2) for part in self.attn(self.norm1(x)).split(h, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, s, h))
        return x + self.out(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


def layer_norm(weights, name):
    made = nn.LayerNorm(weights[f"{name}.weight"].shape, eps=1e-5)
    made.weight, made.bias = nn.Parameter(weights[f"{name}.weight"]), nn.Parameter(weights[f"{name}.bias"])
    return made


class Gpt2(nn.Module):
    """ids [b, s] -> logits [b, s, v]"""

    def __init__(self, weights, heads=8):
        super().__init__()
        self.table, self.places = (nn.Parameter(weights[f"{name}.weight"]) for name in ("wte", "wpe"))
        layers = sum(name.endswith(".ln_1.weight") for name in weights)
        self.layers = nn.ModuleList(Gpt2Layer(weights, f"h.{i}", heads) for i in range(layers))
        self.norm = layer_norm(weights, "ln_f")

    def forward(self, ids):
        x = F.embedding(ids, self.table) + self.places[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.table)


class RMSNorm(nn.Module):
    def __init__(self, weight, epsilon=1e-6):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(weight), epsilon

    def forward(self, x):
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.epsilon).to(x.dtype)


def rotary(x, cos, sin):
    """Halves of x [b, n, s, d] turned by angles [s, d/2]."""
    low, high = x.chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


class GemmaLayer(nn.Module):
    HEAD_DIM = 256

    def __init__(self, weights, prefix, window):
        super().__init__()
        self.window = window
        for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, part, linear_of(weights, f"{prefix}.self_attn.{part}"))
        for part in ("gate_proj", "up_proj", "down_proj"):
            setattr(self, part, linear_of(weights, f"{prefix}.mlp.{part}"))
        for part in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                     "post_feedforward_layernorm", "self_attn.q_norm", "self_attn.k_norm"):
            setattr(self, part.split(".")[-1], RMSNorm(weights[f"{prefix}.{part}.weight"]))

    def forward(self, x, angles):
        x = x + self.post_attention_layernorm(self.attention(self.input_layernorm(x), *angles))
        y = self.pre_feedforward_layernorm(x)
        y = self.down_proj(F.gelu(self.gate_proj(y), approximate="tanh") * self.up_proj(y))
        return x + self.post_feedforward_layernorm(y)

    def attention(self, x, cos, sin):
        b, s, _ = x.shape
        if self.window and s > self.window:
            raise ValueError(f"sequences of {s} need the window of {self.window}, which is not here")
        q, k, v = (made.view(b, s, -1, self.HEAD_DIM).transpose(1, 2)
                   for made in (self.q_proj(x), self.k_proj(x), self.v_proj(x)))
        q, k = rotary(self.q_norm(q), cos, sin), rotary(self.k_norm(k), cos, sin)
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, s, -1))


class Gemma(nn.Module):
    """ids [b, s] -> logits [b, s, v]; every sixth layer sees all, the others a window and slower angles."""

    def __init__(self, weights):
        super().__init__()
        self.table = nn.Parameter(weights["model.embed_tokens.weight"])
        layers = sum(name.endswith(".input_layernorm.weight") for name in weights)
        self.layers = nn.ModuleList(GemmaLayer(weights, f"model.layers.{i}", 0 if i % 6 == 5 else 512)
                                    for i in range(layers))
        self.norm = RMSNorm(weights["model.norm.weight"])

    def forward(self, ids):
        x = F.embedding(ids, self.table) * self.table.shape[1] ** 0.5
        angles = {window: self.angles(ids.shape[1], base) for window, base in ((0, 1e6), (512, 1e4))}
        for layer in self.layers:
            x = layer(x, angles[layer.window])
        return F.linear(self.norm(x), self.table)

    @staticmethod
    def angles(length, base):
        d = GemmaLayer.HEAD_DIM
        speed = base ** -(torch.arange(0, d, 2, dtype=torch.float64) / d)
        turns = torch.outer(torch.arange(length, dtype=torch.float64), speed).float()
        return turns.cos(), turns.sin()


def with_adapters(model, rank, alpha):
    """Every linear layer but the head gets one, and nothing else is trained."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(module, LoRALinear):
                setattr(module, name, LoRALinear(child, rank, alpha))
    return model

#!/usr/bin/env python3
"""PyTorch, eager or compiled, on the same weights and the same batch, in a child process of its own: see train.py."""

import contextlib
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch_models import Gemma, Gpt2, weights_of, with_adapters

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measure import child_main, peak_mib  # noqa: E402

MODELS = {"gpt2-30m": Gpt2, "gemma": Gemma}


def product_rate(dtype, size=2048, seconds=1.0):
    """Floating-point operations a second of x w^T in squares: the best of as many as fit into the time."""
    x, w = (torch.randn(size, size, dtype=dtype) for _ in range(2))
    F.linear(x, w)
    best, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        F.linear(x, w)
        best = min(best, time.perf_counter() - start)
    return 2 * size ** 3 / best


def model_of(job):
    model = MODELS[job["name"]](weights_of(job["model"]))
    if job["lora"]:
        if job["dtype"] == "bf16":
            model = narrowed(model)
        model = with_adapters(model, job["lora"], job["alpha"])
    return model


def narrowed(model):
    """Weights that stay as they are in bf16; norms, and what is trained, in f32."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data = parameter.data.bfloat16()
    return model


def optimizer_of(model, job):
    """Weights of two dims and more decay."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() > 1], "weight_decay": job["decay"]},
              {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=job["rate"], fused=True), trained


def run(job, load):
    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)
    model = load(job)
    optimizer, trained = optimizer_of(model, job)
    data = torch.from_numpy(np.load(job["data"])).long()
    ids, labels = data[:, :-1].contiguous(), data[:, 1:].contiguous()

    def loss_of():
        mixed = torch.autocast("cpu", torch.bfloat16) if job["dtype"] == "bf16" else contextlib.nullcontext()
        with mixed:
            logits = model(ids)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

    if job["compiled"]:
        loss_of = torch.compile(loss_of)
    losses, seconds = [], []
    for _ in range(job["steps"]):
        start = time.perf_counter()
        loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, job["clip"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    peak = peak_mib()
    return {"losses": losses, "seconds": seconds, "peak_mib": peak, "notes": [f"PyTorch {torch.__version__}"],
            "flops": {"f32": product_rate(torch.float32), "bf16": product_rate(torch.bfloat16)}}


if __name__ == "__main__":
    child_main(model_of, run)

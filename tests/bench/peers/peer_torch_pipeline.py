#!/usr/bin/env python3
"""PyTorch's own pipeline schedules (torch.distributed.pipelining over gloo), a process a rank: see pipeline.py.

The first process starts the others, each with its rank in its job, and gathers what they report.
"""

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B,
                                          ScheduleZBVZeroBubble)
from torch_models import Gpt2Layer, layer_norm, weights_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measure import child_main, peak_mib  # noqa: E402

# Plait's name of a schedule -> (PyTorch's, stages of a rank).
SCHEDULES = {"gpipe": (ScheduleGPipe, 1), "1f1b": (Schedule1F1B, 1), "interleaved:2": (ScheduleInterleaved1F1B, 2),
             "zb-v": (ScheduleZBVZeroBubble, 2)}


class Stage(nn.Module):
    """Layers from `begin` to `end`; the first stage has the embeddings and the last the head, a table of its own each."""

    def __init__(self, weights, begin, end, first, last, heads=8):
        super().__init__()
        self.layers = nn.ModuleList(Gpt2Layer(weights, f"h.{i}", heads) for i in range(begin, end))
        if first:
            self.table, self.places = (nn.Parameter(weights[f"{name}.weight"].clone()) for name in ("wte", "wpe"))
        if last:
            self.norm, self.head = layer_norm(weights, "ln_f"), nn.Parameter(weights["wte.weight"].clone())

    def forward(self, x):
        if hasattr(self, "table"):
            x = F.embedding(x, self.table) + self.places[:x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.head) if hasattr(self, "head") else x


def documents_of(job):
    """The ids of pipeline_bench.cpp."""
    state, out = 7, []
    for _ in range(job["batch"] * (job["seq"] + 1)):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append((state >> 8) % job["vocabulary"])
    return torch.tensor(out).view(job["batch"], job["seq"] + 1)


def stages_of(job, rank, ranks, each):
    weights, count = weights_of(job["model"]), ranks * each
    layers = sum(name.endswith(".ln_1.weight") for name in weights)
    vee = job["schedule"] == "zb-v"
    mine = [rank, 2 * ranks - 1 - rank] if vee else [rank + ranks * i for i in range(each)]
    cuts = [layers * i // count for i in range(count + 1)]
    return [PipelineStage(Stage(weights, cuts[i], cuts[i + 1], i == 0, i == count - 1), i, count, torch.device("cpu"))
            for i in mine]


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def clip(parameters, limit):
    """By the norm of all ranks' gradients."""
    norm = torch.stack([p.grad.norm() for p in parameters]).norm() ** 2
    dist.all_reduce(norm)
    scale = min(1.0, limit / (norm.item() ** 0.5))
    for parameter in parameters:
        parameter.grad.mul_(scale)


def run_rank(job):
    rank, ranks = job["rank"], job["ranks"]
    torch.set_num_threads(max(1, job["threads"] // ranks))
    dist.init_process_group("gloo", init_method=f"file://{job['meeting']}", rank=rank, world_size=ranks)
    kind, each = SCHEDULES[job["schedule"]]
    stages = stages_of(job, rank, ranks, each)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # what reading the file took does not count
    schedule = kind(stages if each > 1 else stages[0], job["micro_batches"], loss_fn=loss_of)
    parameters = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01, fused=True)
    data = documents_of(job)
    ids, labels = data[:, :-1].contiguous(), data[:, 1:].contiguous()
    is_first, is_last = (any(getattr(stage, name) for stage in stages) for name in ("is_first", "is_last"))
    losses, seconds = [], []
    for _ in range(job["steps"]):
        dist.barrier()
        start, found = time.perf_counter(), []
        schedule.step(*([ids] if is_first else []), **({"target": labels, "losses": found} if is_last else {}))
        clip(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        dist.barrier()
        seconds.append(time.perf_counter() - start)
        if is_last:
            losses.append(torch.stack(found).mean().item())
    dist.destroy_process_group()
    return {"losses": losses, "seconds": seconds, "peak_mib": peak_mib()}


def run(job, _):
    if "rank" in job:
        return run_rank(job)
    with tempfile.TemporaryDirectory() as folder:
        jobs = [{**job, "rank": rank, "meeting": str(Path(folder) / "meeting")} for rank in range(job["ranks"])]
        children = [subprocess.Popen([sys.executable, __file__, json.dumps(one)], stdout=subprocess.PIPE, text=True,
                                     env={**os.environ, "OMP_NUM_THREADS": str(max(1, job["threads"] // job["ranks"]))})
                    for one in jobs]
        made = [json.loads(child.communicate()[0].splitlines()[-1]) for child in children]
    for one in made:
        if "error" in one:
            raise RuntimeError(one["error"])
    peaks = [one["peak_mib"] for one in made]
    return {"losses": next(one["losses"] for one in made if one["losses"]),
            "seconds": [max(times) for times in zip(*(one["seconds"] for one in made))],
            "peak_mib": sum(peaks), "peak_mib_by_rank": peaks}


if __name__ == "__main__":
    child_main(None, run)

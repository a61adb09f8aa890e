#!/usr/bin/env python3
"""ONNX Runtime GenAI on the same model.onnx, in a child process of its own: see measure.py."""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime_genai as genai
from peer_onnxruntime import PAST, PRESENT, last_logits_model

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measure import Timing, child_main  # noqa: E402

LONGEST = 4096


def config_of(model, facts, threads):
    """What GenAI's own builder would write next to this file."""
    names = [value.name for value in model.graph.input]
    layers = sum(name.startswith(PAST) and name.endswith(".key") for name in names)
    return {
        "model": {
            "type": "decoder", "context_length": LONGEST, "vocab_size": facts["vocab_size"], "bos_token_id": 1,
            "eos_token_id": facts["vocab_size"] - 1, "pad_token_id": 0,
            "decoder": {
                "filename": "model.onnx", "head_size": facts["head_dim"], "hidden_size": facts["hidden_size"],
                "num_attention_heads": facts["num_attention_heads"], "num_hidden_layers": layers,
                "num_key_value_heads": facts["num_key_value_heads"],
                "inputs": {**{name: name for name in names if not name.startswith(PAST)},
                           "past_key_names": f"{PAST}%d.key", "past_value_names": f"{PAST}%d.value"},
                "outputs": {"logits": "logits", "present_key_names": f"{PRESENT}%d.key",
                            "present_value_names": f"{PRESENT}%d.value"},
                "session_options": {"intra_op_num_threads": threads, "inter_op_num_threads": 1},
            },
        },
        "search": {"do_sample": False, "max_length": LONGEST, "past_present_share_buffer": False},
    }


class Engine:
    def __init__(self, job):
        folder = Path(job["model"])
        # On the models' disk: ONNX Runtime follows no link out of the folder, so that the weights are linked as a file.
        self.folder = tempfile.TemporaryDirectory(dir=folder.parent)
        here = Path(self.folder.name)
        (here / "model.onnx").write_bytes(last_logits_model(folder / "model.onnx"))
        (here / "model.onnx.data").hardlink_to((folder / "model.onnx.data").resolve())
        model = onnx.load(here / "model.onnx", load_external_data=False)
        facts = json.loads((folder / "config.json").read_text())
        (here / "genai_config.json").write_text(json.dumps(config_of(model, facts, job["threads"])))
        self.model = genai.Model(str(here))
        self.notes = [f"ONNX Runtime GenAI {genai.__version__}", "accuracy_level 4: activations are rounded to 8 bits"]

    def generate(self, prompts, new_tokens):
        parameters = genai.GeneratorParams(self.model)
        length = len(prompts[0]) + new_tokens
        parameters.set_search_options(batch_size=len(prompts), max_length=length, min_length=length)
        start = time.perf_counter()
        generator = genai.Generator(self.model, parameters)
        generator.append_tokens(np.array(prompts, np.int32))
        steps = []
        for _ in range(new_tokens):
            generator.generate_next_token()
            steps.append(generator.get_next_tokens().tolist())
            if len(steps) == 1:
                first = time.perf_counter()
        end = time.perf_counter()
        return Timing(first - start, end - first, [list(row) for row in zip(*steps)], len(prompts) * (new_tokens - 1))


if __name__ == "__main__":
    child_main(Engine)

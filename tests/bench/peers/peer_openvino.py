#!/usr/bin/env python3
"""OpenVINO GenAI on the same model.onnx, in a child process of its own: see measure.py.

OpenVINO reads the graph; what its own export tools would have written is put in here: the cache as state, reordered
by beam_idx, and attention in the form that its CPU plug-in fuses. The result is kept next to the models.

    peer_openvino.py convert MODEL_DIRECTORY OUT
"""

import json
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import openvino
import openvino_genai
from openvino import opset13 as ops
from openvino._offline_transformations import apply_make_stateful_transformation

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measure import Timing, child_main  # noqa: E402

PAST, PRESENT = "past_key_values.", "present."


class Rewriter:
    """Makes a model with past and present tensors into one with state. Keeps every node alive while it works."""

    def __init__(self, model):
        self.model = model
        self.kept = list(model.get_ordered_ops())

    def run(self):
        for node in list(self.kept):
            if node.get_type_name() == "ScaledDotProductAttention":
                self._drop_guard(node)
                self._repeat_by_broadcast(node)
        names = [name for value in self.model.inputs for name in value.get_names() if name.startswith(PAST)]
        self._reorder(names)
        apply_make_stateful_transformation(self.model, {name: name.replace(PAST, PRESENT) for name in names})
        self._start_empty()
        self.model.validate_nodes_and_infer_types()
        return self.model

    def _keep(self, node):
        self.kept.append(node)
        return node

    def _redirect(self, old, new):
        for target in list(old.get_target_inputs()):
            self._keep(target.get_node())
            target.replace_source_output(new)

    def _drop_guard(self, attention):
        """A Select turns the NaN of a row without any open key to 0; a causal mask has no such row."""
        for target in list(attention.output(0).get_target_inputs()):
            node = self._keep(target.get_node())
            if node.get_type_name() == "Select":
                self._redirect(node.output(0), attention.output(0))

    def _repeat_by_broadcast(self, attention):
        """Key/value heads are repeated by Tile; the plug-in looks for Broadcast."""
        for side in (1, 2):
            reshape = self._keep(attention.input_value(side).get_node())
            tile = self._keep(reshape.input_value(0).get_node())
            if tile.get_type_name() == "Tile":
                wide = ops.broadcast(tile.input_value(0), tile.input_value(1), broadcast_spec="BIDIRECTIONAL")
                reshape.input(0).replace_source_output(self._keep(wide).output(0))

    def _reorder(self, names):
        beam = self._keep(ops.parameter([-1], np.int32, name="beam_idx"))
        beam.output(0).set_names({"beam_idx"})
        for name in names:
            past = self._keep(self.model.input(name).get_node())
            targets = list(past.output(0).get_target_inputs())
            chosen = self._keep(ops.gather(past, beam, ops.constant(np.int64(0))))
            for target in targets:
                target.replace_source_output(chosen.output(0))
        self.model.add_parameters([beam])

    def _start_empty(self):
        """A state is at first [batch, heads, 0, d]."""
        ids = self._keep(self.model.input("input_ids").get_node())
        shape = self._keep(ops.shape_of(ids, output_type="i64"))
        batch = self._keep(ops.gather(shape, ops.constant(np.array([0])), ops.constant(np.int64(0))))
        for node in self.model.get_ordered_ops():
            if self._keep(node).get_type_name() != "ReadValue":
                continue
            heads, size = (node.get_output_partial_shape(0)[i].get_length() for i in (1, 3))
            wanted = self._keep(ops.concat([batch, ops.constant(np.array([heads, 0, size]))], 0))
            node.set_arguments([self._keep(ops.broadcast(ops.constant(np.float32(0)), wanted))])


def convert(source, out):
    """Writes the stateful model, unless it is there."""
    if out.exists():
        return
    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    model = Rewriter(openvino.Core().read_model(source / "model.onnx")).run()
    openvino.save_model(model, part / "openvino_model.xml", compress_to_fp16=False)
    shutil.copyfile(source / "config.json", part / "config.json")
    part.rename(out)


class Engine:
    def __init__(self, job):
        capable = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        bf16 = job["dtype"] == "bf16"
        precision = "bf16" if bf16 and capable else "f32"
        self.notes = [f"OpenVINO GenAI {openvino_genai.__version__}, its own choice of cache type"]
        if bf16 and not capable:
            self.notes.append("computes in f32: this processor has no bf16 that OpenVINO uses")
        # The other back end, paged attention, takes no batch of token ids.
        self.pipeline = openvino_genai.LLMPipeline(job["openvino"], "CPU", INFERENCE_NUM_THREADS=job["threads"],
                                                   INFERENCE_PRECISION_HINT=precision, ATTENTION_BACKEND="SDPA")

    def generate(self, prompts, new_tokens):
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = new_tokens
        config.do_sample = False
        config.ignore_eos = True
        # A stop token is asked for even where none is to stop anything.
        config.eos_token_id = 1
        ids = openvino.Tensor(np.array(prompts, np.int64))
        start = time.perf_counter()
        made = self.pipeline.generate(ids, config)
        total = time.perf_counter() - start
        first = made.perf_metrics.get_ttft().mean / 1000
        return Timing(first, total - first, [list(tokens) for tokens in made.tokens], len(prompts) * (new_tokens - 1))


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "convert":
        convert(Path(sys.argv[2]), Path(sys.argv[3]))
        print(json.dumps({"converted": sys.argv[3]}))
    else:
        child_main(Engine)

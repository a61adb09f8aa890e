#!/usr/bin/env python3
"""ONNX Runtime on the same model.onnx, in a child process of its own: see measure.py."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measure import child_main, greedy_loop  # noqa: E402

PAST, PRESENT = "past_key_values.", "present."


def last_logits_model(path):
    """The model's bytes with a head that reads only the last position, as the other engines do."""
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    for node in graph.node:  # int8 activations, as ONNX Runtime GenAI's own int4 models ask for
        for attribute in node.attribute:
            if node.op_type == "MatMulNBits" and attribute.name == "accuracy_level":
                attribute.i = 4
    head = next(node for node in graph.node if "logits" in node.output)
    graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), "last_position"))
    at = list(graph.node).index(head)
    graph.node.insert(at, helper.make_node("Gather", [head.input[0], "last_position"], ["last_hidden"], axis=1))
    graph.node[at + 1].input[0] = "last_hidden"
    logits = next(output for output in graph.output if output.name == "logits")
    logits.CopyFrom(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", 1, "vocabulary"]))
    return model.SerializeToString()


class Engine:
    """The cache goes from one call's outputs to the next one's inputs without a copy, by IO binding."""

    def __init__(self, job):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = job["threads"]
        options.inter_op_num_threads = 1
        folder = Path(job["model"])
        # The model is handed over as bytes: its data file lies in this folder.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        self.session = onnxruntime.InferenceSession(last_logits_model(folder / "model.onnx"), options,
                                                    providers=["CPUExecutionProvider"])
        self.past_shapes = {i.name: i.shape for i in self.session.get_inputs() if i.name.startswith(PAST)}
        self.outputs = [output.name for output in self.session.get_outputs()]
        self.notes = [f"ONNX Runtime {onnxruntime.__version__}"]
        if job["dtype"] == "bf16":
            self.notes.append("widens bf16 weights to f32 as it loads them")
        if job["dtype"] in ("int4", "int8"):
            self.notes.append("accuracy_level 4: activations are rounded to 8 bits")

    def generate(self, prompts, new_tokens):
        return greedy_loop(prompts, new_tokens, self._prefill, lambda tokens: self._step([[t] for t in tokens]))

    def _prefill(self, prompts):
        self.length = 0
        batch = len(prompts)
        self.past = {name: onnxruntime.OrtValue.ortvalue_from_numpy(
            np.zeros((batch, shape[1], 0, shape[3]), np.float32)) for name, shape in self.past_shapes.items()}
        return self._step(prompts)

    def _step(self, tokens):
        ids = np.array(tokens, np.int64)
        batch, new = ids.shape
        start, self.length = self.length, self.length + new
        binding = self.session.io_binding()
        binding.bind_cpu_input("input_ids", ids)
        binding.bind_cpu_input("attention_mask", np.ones((batch, self.length), np.int64))
        binding.bind_cpu_input("position_ids", np.tile(np.arange(start, self.length, dtype=np.int64), (batch, 1)))
        for name, value in self.past.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.outputs:
            binding.bind_output(name, "cpu")
        self.session.run_with_iobinding(binding)
        made = dict(zip(self.outputs, binding.get_outputs()))
        self.past = {name: made[name.replace(PAST, PRESENT)] for name in self.past}
        return made["logits"].numpy()[:, -1].argmax(-1).tolist()


if __name__ == "__main__":
    child_main(Engine)

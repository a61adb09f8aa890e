"""A decoder that takes embeddings continues a prompt with an image as ONNX Runtime does, step by step: by itself, in company of others,
in chunks, with several samples, preempted, over ranks, and as a graph that runs as written.

usage: embeddings_test.py LIBRARY

LIBRARY is libplait.so. The model is what exporters write of one that sees: an encoder of images, which runs as a session; the table of
embeddings; and a decoder with inputs_embeds and a cache. Runs in the environment of get_onnxruntime.sh; says NOT RUN and ends where
there is none.
"""
import ctypes
import json
import os
import sys
import tempfile
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_void_p

from differential_test import Plait, Refused, has_onnxruntime
from graph_writer import Writer

HIDDEN, HEADS, SIZE, LAYERS, VOCABULARY, IMAGE, CONTEXT = 32, 4, 8, 2, 61, 60, 128
EVENT_END = 0


class Event(ctypes.Structure):
    _fields_ = [("struct_size", c_int64), ("kind", c_int32), ("finish", c_int32), ("sample", c_int32), ("token", c_int32),
                ("logprob", c_float), ("top_count", c_int32), ("top_tokens", POINTER(c_int32)), ("top_logprobs", POINTER(c_float)),
                ("text", c_char_p), ("text_length", c_int64), ("logits", POINTER(c_float)), ("logits_count", c_int64)]


def vision_encoder():
    """Images [n, 3, 16, 16] as 16 rows each."""
    w = Writer(1, HIDDEN, HEADS)
    patches = w.op("Conv", ["pixel_values", w.weight(HIDDEN, 3, 4, 4, scale=0.2)], {"strides": [4, 4]})
    rows = w.op("Transpose", [w.op("Reshape", [patches, w.ints(0, HIDDEN, -1)])], {"perm": [0, 2, 1]})
    mixed = w.op("Add", [rows, w.linear(w.op("Tanh", [w.linear(w.norm(rows), HIDDEN, 64)]), 64, HIDDEN)])
    w.op("Mul", [w.norm(mixed), w.constant(0.7)], outputs=["image_features"])
    return w.file([("pixel_values", "float32", ["images", 3, 16, 16])], ["image_features"])


def embed_tokens():
    w = Writer(2, HIDDEN, HEADS)
    w.op("Gather", [w.weight(VOCABULARY, HIDDEN), "input_ids"], outputs=["inputs_embeds"])
    return w.file([("input_ids", "int64", ["batch_size", "sequence_length"])], ["inputs_embeds"])


def decoder():
    w = Writer(3, HIDDEN, HEADS)
    x = w.op("Add", ["inputs_embeds", w.op("Gather", [w.weight(CONTEXT, HIDDEN, scale=1.0), "position_ids"])])
    inputs = [("inputs_embeds", "float32", ["batch_size", "sequence_length", HIDDEN]),
              ("attention_mask", "int64", ["batch_size", "total_sequence_length"]),
              ("position_ids", "int64", ["batch_size", "sequence_length"])]
    total = w.size("attention_mask", 1)
    one = w.constant(1, "int64")
    new = w.size("inputs_embeds", 1)
    keys = w.op("Range", [w.constant(0, "int64"), total, one])
    queries = w.op("Unsqueeze", [w.op("Range", [w.op("Sub", [total, new]), total, one]), w.ints(1)])
    seen = w.op("LessOrEqual", [keys, queries])
    presents = []
    for layer in range(LAYERS):
        before = w.norm(x)
        query = w.split_heads(w.linear(before, HIDDEN, HIDDEN))
        joined = []
        for part in ("key", "value"):
            past = f"past_key_values.{layer}.{part}"
            inputs.append((past, "float32", ["batch_size", HEADS, "past_sequence_length", SIZE]))
            presents.append(f"present.{layer}.{part}")
            joined.append(w.op("Concat", [past, w.split_heads(w.linear(before, HIDDEN, HIDDEN))], {"axis": 2}, [presents[-1]]))
        scores = w.op("MatMul", [query, w.op("Transpose", [joined[0]], {"perm": [0, 1, 3, 2]})])
        scores = w.op("Where", [seen, w.op("Mul", [scores, w.constant(SIZE ** -0.5)]), w.constant(-3e38)])
        mixed = w.op("MatMul", [w.op("Softmax", [scores], {"axis": -1}), joined[1]])
        x = w.op("Add", [x, w.linear(w.join_heads(mixed), HIDDEN, HIDDEN)])
        x = w.op("Add", [x, w.linear(w.op("Tanh", [w.linear(w.norm(x), HIDDEN, 64)]), 64, HIDDEN)])
    w.op("MatMul", [w.norm(x), w.weight(HIDDEN, VOCABULARY, scale=0.5)], outputs=["logits"])
    return w.file(inputs, ["logits", *presents])


class Expected:
    """Greedy tokens of ONNX Runtime."""

    def __init__(self, files):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.sessions = {os.path.basename(name): onnxruntime.InferenceSession(data or name, options, providers=["CPUExecutionProvider"])
                         for name, data in files.items() if name.endswith(".onnx")}

    def encode(self, images):
        return self.sessions["vision_encoder.onnx"].run(None, {"pixel_values": images})[0]

    def tokens(self, ids, rows, count):
        import numpy
        embed, step = self.sessions["embed_tokens.onnx"], self.sessions["decoder_model_merged.onnx"]
        new = embed.run(None, {"input_ids": numpy.array([ids], numpy.int64)})[0]
        new[0, [i for i, one in enumerate(ids) if one == IMAGE]] = rows
        past = {f"past_key_values.{layer}.{part}": numpy.zeros((1, HEADS, 0, SIZE), numpy.float32)
                for layer in range(LAYERS) for part in ("key", "value")}
        out, length = [], 0
        while True:
            total = length + new.shape[1]
            made = step.run(None, {"inputs_embeds": new, "attention_mask": numpy.ones((1, total), numpy.int64),
                                   "position_ids": numpy.arange(length, total, dtype=numpy.int64)[None], **past})
            names = [one.name for one in step.get_outputs()]
            past = {name: made[names.index(name.replace("past_key_values", "present"))] for name in past}
            length = total
            second, first = numpy.partition(made[0][0, -1], -2)[-2:]
            assert first - second > 1e-3, "a near tie: choose another seed"
            out.append(int(made[0][0, -1].argmax()))
            if len(out) == count:
                return out
            new = embed.run(None, {"input_ids": numpy.array([out[-1:]], numpy.int64)})[0]


class Generator:
    def __init__(self, plait, files, **options):
        import numpy
        self.plait, self.model, self.handle = plait, c_void_p(), c_void_p()
        handles = [plait.tensor(numpy.frombuffer(data, numpy.uint8)) for data in files.values()]
        names = (c_char_p * len(files))(*(name.encode() for name in files))
        plait.call("model_open_memory", names, (c_void_p * len(files))(*handles), c_int64(len(files)), None, ctypes.byref(self.model))
        made = self.options(**{"threads": 1, "cache_bytes": "1M", "page_tokens": 4} | options)
        plait.call("generator_create", self.model, made, ctypes.byref(self.handle))
        plait.call("options_release", made)
        plait.call("generator_wait", self.handle, c_int64(-1))
        self.held = handles

    def options(self, rows=None, **values):
        out = c_void_p()
        self.plait.call("options_create", ctypes.byref(out))
        for key, value in values.items():
            self.plait.call("options_set", out, key.encode(), str(value).encode(), c_int64(-1))
        if rows is not None:
            tensor = self.plait.tensor(rows)
            self.plait.call("options_set_tensor", out, b"inputs_embeds", tensor)
            self.plait.call("tensor_release", tensor)
        return out

    def submit(self, ids, rows, **values):
        request, options = c_void_p(), self.options(rows, temperature=0, **values)
        try:
            self.plait.call("generator_submit_ids", self.handle, (c_int32 * len(ids))(*ids), c_int64(len(ids)), options, None,
                            ctypes.byref(request))
        finally:
            self.plait.call("options_release", options)
        return request

    def answer(self, request, samples=1):
        out, event = [[] for _ in range(samples)], Event(struct_size=ctypes.sizeof(Event))
        while True:
            self.plait.call("request_next", request, c_int64(60000), ctypes.byref(event))
            if event.kind == EVENT_END:
                break
            if event.token >= 0:
                out[event.sample].append(event.token)
        self.plait.call("request_release", request)
        return out

    def close(self):
        self.plait.call("generator_release", self.handle)
        self.plait.call("model_release", self.model)
        for one in self.held:
            self.plait.call("tensor_release", one)


class Step(ctypes.Structure):
    _fields_ = [("struct_size", c_int64), ("rest", c_int64 * 31)]


def check_training(plait, generator, files, given):
    """A step changes both files, and what ONNX Runtime makes of the written ones is what Plait does."""
    import numpy
    trainer, options = c_void_p(), generator.options(threads=1, optimizer="sgd", lr=0.5, schedule="constant", warmup=0)
    plait.call("trainer_create", generator.model, options, ctypes.byref(trainer))
    plait.call("options_release", options)
    ids = plait.tensor(numpy.array([[3 + (7 * i) % 50 for i in range(24)]], numpy.int64))
    plait.call("trainer_step", trainer, ids, None, ctypes.byref(Step(struct_size=ctypes.sizeof(Step))))
    plait.call("tensor_release", ids)
    with tempfile.TemporaryDirectory() as folder:
        plait.call("trainer_export", trainer, folder.encode())
        plait.call("trainer_release", trainer)
        trained = {}
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as file:
                trained[name] = file.read()
        assert {"decoder_model_merged.onnx", "embed_tokens.onnx"} <= trained.keys(), trained.keys()
        expected = Expected({os.path.join(folder, name): b"" for name in trained if name.endswith(".onnx")})
        wanted = [expected.tokens(ids, rows, 6) for ids, rows, _ in given]
        before = Expected(files)
        assert wanted != [before.tokens(ids, rows, 6) for ids, rows, _ in given], "training changed nothing"
        tuned = Generator(plait, trained)
        got = [tuned.answer(tuned.submit(ids, rows if len(rows) else None, max_tokens=6))[0] for ids, rows, _ in given]
        tuned.close()
    assert got == wanted, f"after training: {got}, expected {wanted}"


def prompts(expected):
    """(ids, rows): with images, with two, with none, and long ones."""
    import numpy
    random = numpy.random.default_rng(9)
    out = []
    for images, words in ((1, 5), (2, 9), (0, 12), (3, 20), (1, 1)):
        ids = [int(one) for one in random.integers(3, IMAGE, words)]
        pixels = random.standard_normal((images, 3, 16, 16)).astype(numpy.float32)
        rows = expected.encode(pixels).reshape(-1, HIDDEN) if images else numpy.zeros((0, HIDDEN), numpy.float32)
        for image in range(images):
            at = int(random.integers(0, words + 1)) if image == 0 else len(ids)
            ids[at:at] = [IMAGE] * 16
        out.append((ids, rows, pixels))
    return out


def main():
    if not has_onnxruntime():
        return 0
    import numpy
    plait = Plait(sys.argv[1])
    files = {"decoder_model_merged.onnx": decoder(), "embed_tokens.onnx": embed_tokens(), "vision_encoder.onnx": vision_encoder(),
             "config.json": json.dumps({"model_type": "seer", "image_token_id": IMAGE}).encode()}
    expected = Expected(files)
    given = prompts(expected)
    for ids, rows, pixels in given:
        if len(rows):
            seen = plait.run(files["vision_encoder.onnx"], {"pixel_values": pixels}, ["image_features"])[0]
            error = numpy.abs(seen.reshape(rows.shape) - rows).max() / numpy.abs(rows).max()
            assert error < 1e-5, f"the encoder's rows differ by {error:.1e}"
    wanted = [expected.tokens(ids, rows, 12) for ids, rows, _ in given]
    assert all(len(set(one)) > 5 for one in wanted), "the decoder repeats itself: choose another seed"
    moved = expected.tokens(given[0][0], given[0][1][::-1], 12)
    assert moved != wanted[0], "the image has no effect"
    ways = {"by themselves": {}, "in chunks": {"step_tokens": 5}, "in little memory": {"cache_bytes": 4 * 4 * 2 * HIDDEN * LAYERS * 22},
            "on tensor=2": {"mesh": "tensor=2"}, "on pipeline=2": {"mesh": "pipeline=2"}, "as written": {"off": "raise"}}
    for way, options in ways.items():
        generator = Generator(plait, files, **{"step_tokens": 64} | options)
        for together in (False, True):
            answers, running = [], []
            for ids, rows, _ in given:
                running.append(generator.submit(ids, rows[None] if len(rows) else None, max_tokens=12))
                if not together:
                    answers.append(generator.answer(running.pop())[0])
            answers += [generator.answer(one)[0] for one in running]
            assert answers == wanted, f"{way}, {'in company' if together else 'one by one'}: {answers}, expected {wanted}"
        ids, rows, _ = given[1]
        assert generator.answer(generator.submit(ids, rows, max_tokens=12, samples=3), 3) == [wanted[1]] * 3, way
        for wrong in ((ids, rows[:-1]), (ids, rows[:, :-1]), (ids, rows.astype(numpy.int64)), (ids[:3], rows)):
            try:
                generator.answer(generator.submit(*wrong, max_tokens=2))
                raise AssertionError("rows that do not fit were taken")
            except Refused as error:
                assert "inputs_embeds" in str(error) or "embeddings" in str(error), error
        if way == "by themselves":
            check_training(plait, generator, files, given)
        generator.close()
        print(f"{way}: {len(given)} prompts, one by one and in company")
    return 0


if __name__ == "__main__":
    sys.exit(main())

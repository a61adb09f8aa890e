"""A decoder that takes embeddings continues a prompt with an image as ONNX Runtime does, step by step: by itself, in company of others,
in chunks, with several samples, preempted, over ranks, and as a graph that runs as written.

usage: embeddings_test.py LIBRARY PLAIT

LIBRARY is libplait.so, PLAIT the program. The models are what exporters write of one that sees: an encoder of images, which runs as a
session; the embeddings, as a table (transformers.js, optimum) or with rows that it puts in the places of tokens (onnxruntime-genai); and
a decoder with inputs_embeds and a cache, with positions of one dimension or of three (M-RoPE). Runs in the environment of
get_onnxruntime.sh; says NOT RUN and ends where there is none.
"""
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_void_p

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from differential_test import Plait, Refused, has_onnxruntime  # noqa: E402
from graph_writer import Writer  # noqa: E402
from limits import HANG_S  # noqa: E402

HIDDEN, HEADS, SIZE, LAYERS, VOCABULARY, IMAGE, SOUND, CONTEXT = 32, 4, 8, 2, 61, 60, 59, 128
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


def rows_scattered(rows):
    """What dynamo exports of masked_scatter, for each input of rows and its token: [n * h] numbers in the places of [b, s, h]."""
    w = Writer(2, HIDDEN, HEADS)
    is_row = [w.op("Equal", ["input_ids", w.constant(token, "int64")]) for token in rows.values()]
    text = "input_ids"
    for mask in is_row:
        text = w.op("Where", [mask, w.constant(0, "int64"), text])
    merged = w.op("Gather", [w.weight(VOCABULARY, HIDDEN), text])
    for mask, name in zip(is_row, rows):
        wide = w.op("Expand", [w.op("Unsqueeze", [mask, w.ints(-1)]), w.op("Shape", [merged])])
        places = w.op("Transpose", [w.op("NonZero", [wide])], {"perm": [1, 0]})
        merged = w.op("ScatterND", [merged, places, w.op("Reshape", [name, w.ints(-1)])])
    w.op("Identity", [merged], outputs=["inputs_embeds"])
    return w.file([("input_ids", "int64", ["batch_size", "sequence_length"])]
                  + [(name, "float32", [f"num_{name}", HIDDEN]) for name in rows], ["inputs_embeds"])


def rows_put(rows):
    """What TorchScript exports of index_put: one row for each place [b, s]."""
    w = Writer(2, HIDDEN, HEADS)
    merged = w.op("Gather", [w.weight(VOCABULARY, HIDDEN), w.op("Max", ["input_ids", w.constant(0, "int64")])])
    for name, token in rows.items():
        places = w.op("Transpose", [w.op("NonZero", [w.op("Equal", ["input_ids", w.constant(token, "int64")])])], {"perm": [1, 0]})
        merged = w.op("ScatterND", [merged, places, name])
    w.op("Identity", [merged], outputs=["inputs_embeds"])
    return w.file([("input_ids", "int64", ["batch_size", "sequence_length"])]
                  + [(name, "float32", [f"num_{name}", HIDDEN]) for name in rows], ["inputs_embeds"])


def rotation(w):
    """Angles of position_ids [3, b, s], of which time, height and width give columns: cosines and sines [b, 1, s, SIZE]."""
    frequencies = w.constant([[[[1.0], [0.4], [0.11], [0.02]]]])
    places = w.op("Cast", [w.op("Unsqueeze", ["position_ids", w.ints(2)])], {"to": 1})
    half = w.op("Transpose", [w.op("MatMul", [frequencies, places])], {"perm": [0, 1, 3, 2]})
    angles = w.op("Concat", [half, half], {"axis": -1})
    out = []
    for function in ("Cos", "Sin"):
        sections = [2, 1, 1, 2, 1, 1]
        parts = [f"{function}_part_{i}" for i in range(6)]
        w.op("Split", [w.op(function, [angles]), w.ints(*sections)], {"axis": -1}, parts)
        picked = [w.op("Gather", [part, w.constant(i % 3, "int64")], {"axis": 0}) for i, part in enumerate(parts)]
        out.append(w.op("Unsqueeze", [w.op("Concat", picked, {"axis": -1}), w.ints(1)]))
    return out


def rotated(w, x, cosines, sines):
    first = w.op("Slice", [x, w.ints(0), w.ints(SIZE // 2), w.ints(-1)])
    second = w.op("Slice", [x, w.ints(SIZE // 2), w.ints(SIZE), w.ints(-1)])
    turned = w.op("Concat", [w.op("Neg", [second]), first], {"axis": -1})
    return w.op("Add", [w.op("Mul", [x, cosines]), w.op("Mul", [turned, sines])])


def decoder(mrope=False):
    w = Writer(3, HIDDEN, HEADS)
    inputs = [("inputs_embeds", "float32", ["batch_size", "sequence_length", HIDDEN]),
              ("attention_mask", "int64", ["batch_size", "total_sequence_length"]),
              ("position_ids", "int64", [3] * mrope + ["batch_size", "sequence_length"])]
    if mrope:
        x, tables = w.op("Identity", ["inputs_embeds"]), rotation(w)
    else:
        x = w.op("Add", ["inputs_embeds", w.op("Gather", [w.weight(CONTEXT, HIDDEN, scale=1.0), "position_ids"])])
    total = w.size("attention_mask", 1)
    one = w.constant(1, "int64")
    new = w.size("inputs_embeds", 1)
    keys = w.op("Range", [w.constant(0, "int64"), total, one])
    queries = w.op("Unsqueeze", [w.op("Range", [w.op("Sub", [total, new]), total, one]), w.ints(1)])
    seen = w.op("LessOrEqual", [keys, queries])
    presents = []
    for layer in range(LAYERS):
        before = w.norm(x)
        turn = (lambda heads: rotated(w, heads, *tables)) if mrope else (lambda heads: heads)
        query = turn(w.split_heads(w.linear(before, HIDDEN, HIDDEN)))
        joined = []
        for part in ("key", "value"):
            past = f"past_key_values.{layer}.{part}"
            inputs.append((past, "float32", ["batch_size", HEADS, "past_sequence_length", SIZE]))
            presents.append(f"present.{layer}.{part}")
            new_heads = w.split_heads(w.linear(before, HIDDEN, HIDDEN))
            new_heads = turn(new_heads) if part == "key" else new_heads
            joined.append(w.op("Concat", [past, new_heads], {"axis": 2}, [presents[-1]]))
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

    def embed(self, ids, rows):
        """`rows`: by token id."""
        import numpy
        feed = {"input_ids": numpy.array([ids], numpy.int64)}
        if "embedding.onnx" in self.sessions:
            session = self.sessions["embedding.onnx"]
            named = {"image_features": IMAGE, "audio_features": SOUND}
            for one in session.get_inputs()[1:]:
                feed[one.name] = rows.get(named[one.name], numpy.zeros((0, HIDDEN), numpy.float32))
            return session.run(None, feed)[0]
        out = self.sessions["embed_tokens.onnx"].run(None, feed)[0]
        for token, given in rows.items():
            out[0, [i for i, one in enumerate(ids) if one == token]] = given
        return out

    def tokens(self, ids, rows, count, mrope=False):
        """`rows`: by token id, or the image's."""
        import numpy
        rows = rows if isinstance(rows, dict) else {IMAGE: rows}
        step = self.sessions["decoder_model_merged.onnx"]
        new = self.embed(ids, {token: given for token, given in rows.items() if len(given)})
        places, after = rope_index(ids) if mrope else (numpy.arange(len(ids))[None], len(ids))
        past = {f"past_key_values.{layer}.{part}": numpy.zeros((1, HEADS, 0, SIZE), numpy.float32)
                for layer in range(LAYERS) for part in ("key", "value")}
        out, length = [], 0
        while True:
            total = length + new.shape[1]
            made = step.run(None, {"inputs_embeds": new, "attention_mask": numpy.ones((1, total), numpy.int64),
                                   "position_ids": places[:, None] if mrope else places, **past})
            names = [one.name for one in step.get_outputs()]
            past = {name: made[names.index(name.replace("past_key_values", "present"))] for name in past}
            length = total
            second, first = numpy.partition(made[0][0, -1], -2)[-2:]
            assert first - second > 1e-3, "a near tie: choose another seed"
            out.append(int(made[0][0, -1].argmax()))
            if len(out) == count:
                return out
            new = self.embed(out[-1:], {})
            places, after = numpy.full((3 if mrope else 1, 1), after, numpy.int64), after + 1


def rope_index(ids):
    """Positions [3, s] where each run of 16 of the image's tokens is an image of 4 x 4 rows, and the position after them."""
    import numpy
    out, at, i = [], 0, 0
    while i < len(ids):
        if ids[i] == IMAGE:
            out += [(at, at + row // 4, at + row % 4) for row in range(16)]
            at, i = at + 4, i + 16
        else:
            out.append((at, at, at))
            at, i = at + 1, i + 1
    return numpy.array(out, numpy.int64).T, at


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

    def options(self, tensors=None, **values):
        out = c_void_p()
        self.plait.call("options_create", ctypes.byref(out))
        for key, value in values.items():
            self.plait.call("options_set", out, key.encode(), str(value).encode(), c_int64(-1))
        for name, array in (tensors or {}).items():
            tensor = self.plait.tensor(array)
            self.plait.call("options_set_tensor", out, name.encode(), tensor)
            self.plait.call("tensor_release", tensor)
        return out

    def submit(self, ids, rows, parent=None, **values):
        """`rows`: tensors by option, or those of inputs_embeds."""
        if rows is not None and not isinstance(rows, dict):
            rows = {"inputs_embeds": rows}
        request, options = c_void_p(), self.options(rows, temperature=0, **values)
        try:
            self.plait.call("generator_submit_ids", self.handle, (c_int32 * len(ids))(*ids), c_int64(len(ids)), options, parent,
                            ctypes.byref(request))
        finally:
            self.plait.call("options_release", options)
        return request

    def answer(self, request, samples=1, release=True):
        out, event = [[] for _ in range(samples)], Event(struct_size=ctypes.sizeof(Event))
        while True:
            self.plait.call("request_next", request, c_int64(60000), ctypes.byref(event))
            if event.kind == EVENT_END:
                break
            if event.token >= 0:
                out[event.sample].append(event.token)
        if release:
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


def with_sound(given):
    """The same prompts with sounds between: (ids, rows by token)."""
    import numpy
    random = numpy.random.default_rng(12)
    out = []
    for ids, rows, _ in given:
        ids, sounds = [4 if one == SOUND else one for one in ids], random.standard_normal((5, HIDDEN)).astype(numpy.float32)
        for count in (2, 3):
            at = int(random.integers(0, 2)) * len(ids)
            ids[at:at] = [SOUND] * count
        out.append((ids, {IMAGE: rows, SOUND: sounds}))
    return out


OPTIONS = {IMAGE: "image_features", SOUND: "audio_features"}
LITTLE = 4 * 4 * 2 * HIDDEN * LAYERS * 22
WAYS = {"by themselves": {}, "in chunks": {"step_tokens": 5}, "in little memory": {"cache_bytes": LITTLE},
        "on tensor=2": {"mesh": "tensor=2"}, "on data=2": {"mesh": "data=2"}, "on pipeline=2": {"mesh": "pipeline=2"},
        "as written": {"off": "raise"}}


def grids(ids):
    """Of images of 4 x 4 rows, each of 2 x 2 patches."""
    import numpy
    return numpy.array([[1, 8, 8]] * (ids.count(IMAGE) // 16), numpy.int64).reshape(-1, 3)


def check_ways(plait, name, files, given, wanted, ways):
    """given: (ids, tensors by option)."""
    for way in ways:
        generator = Generator(plait, files, **{"step_tokens": 64} | WAYS[way])
        for together in (False, True):
            answers, running = [], []
            for ids, tensors in given:
                running.append(generator.submit(ids, tensors, max_tokens=12))
                if not together:
                    answers.append(generator.answer(running.pop())[0])
            answers += [generator.answer(one)[0] for one in running]
            assert answers == wanted, f"{name}, {way}, {'in company' if together else 'one by one'}: {answers}, expected {wanted}"
        ids, tensors = given[1]
        assert generator.answer(generator.submit(ids, tensors, max_tokens=12, samples=3), 3) == [wanted[1]] * 3, (name, way)
        generator.close()
        print(f"{name}, {way}: {len(given)} prompts, one by one and in company")


def check_conversation(plait, name, files, first, second, wanted):
    """A conversation continues, also after it was saved and restored in another generator."""
    here, there = (Generator(plait, files, step_tokens=7, **{"mesh": mesh} if mesh else {}) for mesh in ("", "tensor=2"))
    begun = here.submit(*first, max_tokens=5, keep="true")
    begin = here.answer(begun, release=False)[0]
    assert IMAGE not in begin, "choose another seed"
    saved, restored = c_void_p(), c_void_p()
    plait.call("request_save", begun, ctypes.byref(saved))
    data = plait.array(saved).tobytes()
    plait.call("tensor_release", saved)
    plait.call("generator_restore", there.handle, data, c_int64(len(data)), ctypes.byref(restored))
    for generator, parent in ((here, begun), (there, restored)):
        got = generator.answer(generator.submit(*second, parent=parent, max_tokens=8))[0]
        assert got == wanted(begin), f"{name}: the conversation continues with {got}, expected {wanted(begin)}"
        plait.call("request_release", parent)
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 1
    try:
        plait.call("generator_restore", here.handle, bytes(damaged), c_int64(len(damaged)), ctypes.byref(restored))
        raise AssertionError("damaged bytes were restored")
    except Refused as error:
        assert "damaged" in str(error), error
    here.close()
    there.close()
    print(f"{name}: a conversation, saved and restored")


def check_refused(generator, ids, rows):
    import numpy
    for wrong in ((ids, rows[:-1]), (ids, rows[:, :-1]), (ids, rows.astype(numpy.int64)), (ids[:3], rows)):
        try:
            generator.answer(generator.submit(*wrong, max_tokens=2))
            raise AssertionError("rows that do not fit were taken")
        except Refused as error:
            assert "inputs_embeds" in str(error) or "embeddings" in str(error), error


def check_table(plait, files, given):
    """transformers.js and optimum: a table, and rows as inputs_embeds."""
    expected = Expected(files)
    wanted = [expected.tokens(ids, rows, 12) for ids, rows, _ in given]
    assert all(len(set(one)) > 5 for one in wanted), "the decoder repeats itself: choose another seed"
    moved = expected.tokens(given[0][0], given[0][1][::-1], 12)
    assert moved != wanted[0], "the image has no effect"
    options = [(ids, {"inputs_embeds": rows[None]} if len(rows) else {}) for ids, rows, _ in given]
    check_ways(plait, "a table", files, options, wanted, WAYS)
    generator = Generator(plait, files)
    check_refused(generator, *given[1][:2])
    check_training(plait, generator, files, given)
    generator.close()
    ids, rows, more, others = *given[0][:2], *given[3][:2]
    both = {"inputs_embeds": others}, {IMAGE: [*rows, *others]}
    check_conversation(plait, "a table", files, (ids, rows), (more, both[0]),
                       lambda begin: expected.tokens([*ids, *begin, *more], both[1], 8))


def check_three_positions(plait, program, files, given):
    """onnxruntime-genai's files of Qwen-VL: rows that the embeddings put in the places of tokens, and M-RoPE."""
    import numpy
    expected = Expected(files)
    wanted = [expected.tokens(ids, rows, 12, True) for ids, rows, _ in given]
    assert all(len(set(one)) > 5 for one in wanted), "the decoder repeats itself: choose another seed"

    def tensors(ids, rows):
        return {"image_features": rows, "image_grid_thw": grids(ids)} if len(rows) else {}
    options = [(ids, tensors(ids, rows)) for ids, rows, _ in given]
    check_ways(plait, "three positions", files, options, wanted, WAYS)
    generator = Generator(plait, files)
    ids, rows, pixels = given[1]
    for wrong, what in (({"image_features": rows}, "no grid for them in image_grid_thw"),
                        ({"image_features": rows, "image_grid_thw": grids(ids)[:-1]}, "have 16 rows"),
                        ({"image_features": rows, "image_grid_thw": grids(ids).astype(numpy.float32)}, "expected i64[n, 3]"),
                        ({"image_features": rows[:-1], "image_grid_thw": grids(ids)}, "rows of embeddings")):
        try:
            generator.submit(ids, wrong)
            raise AssertionError(f"taken: {what}")
        except Refused as error:
            assert what in str(error), error
    generator.close()
    more, others, _ = given[3]
    check_conversation(plait, "three positions", files, (ids, tensors(ids, rows)), (more, tensors(more, others)),
                       lambda begin: expected.tokens([*ids, *begin, *more], [*rows, *others], 8, True))
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        numpy.save(os.path.join(folder, "pixels.npy"), pixels)
        numpy.save(os.path.join(folder, "grids.npy"), grids(ids))
        command = [program, "generate", folder, "--ids", ",".join(map(str, ids)), "--max-tokens", "12", "--temperature", "0", "--json",
                   "--image-grid-thw", os.path.join(folder, "grids.npy")]
        for image in (["--pixel-values", os.path.join(folder, "pixels.npy")],
                      ["--input", "pixel_values=" + os.path.join(folder, "pixels.npy")]):
            made = subprocess.run(command + image, capture_output=True, text=True, timeout=HANG_S)
            assert made.returncode == 0 and json.loads(made.stdout)["ids"] == wanted[1], made.stdout + made.stderr
        made = subprocess.run(command + ["--input", "pixel_mask=" + os.path.join(folder, "grids.npy")], capture_output=True, text=True)
        assert made.returncode and "pixel_mask" in made.stderr and "vision.onnx" in made.stderr, made.stderr
    print("three positions: plait generate runs the encoder")


def check_image_and_sound(plait, files, given):
    expected = Expected(files)
    wanted = [expected.tokens(ids, rows, 12) for ids, rows in given]
    options = [(ids, {OPTIONS[token]: one for token, one in rows.items() if len(one)}) for ids, rows in given]
    check_ways(plait, "image and sound", files, options, wanted, ["by themselves", "in chunks", "as written"])


def main():
    if not has_onnxruntime():
        return 0
    import numpy
    plait = Plait(sys.argv[1])
    plain, sees = decoder(), {"vision_encoder.onnx": vision_encoder()}
    table = {"decoder_model_merged.onnx": plain, "embed_tokens.onnx": embed_tokens(), **sees,
             "config.json": json.dumps({"model_type": "seer", "image_token_id": IMAGE}).encode()}
    expected = Expected(table)
    given = prompts(expected)
    for ids, rows, pixels in given:
        if len(rows):
            seen = plait.run(sees["vision_encoder.onnx"], {"pixel_values": pixels}, ["image_features"])[0]
            error = numpy.abs(seen.reshape(rows.shape) - rows).max() / numpy.abs(rows).max()
            assert error < 1e-5, f"the encoder's rows differ by {error:.1e}"
    check_table(plait, table, given)
    genai = {"model": {"type": "qwen2_5_vl", "decoder": {"filename": "decoder_model_merged.onnx"},
                       "embedding": {"filename": "embedding.onnx"}, "vision": {"filename": "vision.onnx", "spatial_merge_size": 2}}}
    check_three_positions(plait, sys.argv[2], {
        "decoder_model_merged.onnx": decoder(mrope=True), "embedding.onnx": rows_scattered({"image_features": IMAGE}),
        "vision.onnx": sees["vision_encoder.onnx"], "genai_config.json": json.dumps(genai).encode()}, given)
    check_image_and_sound(plait, {
        "decoder_model_merged.onnx": plain, "embedding.onnx": rows_put({"image_features": IMAGE, "audio_features": SOUND})},
        with_sound(given))
    return 0


if __name__ == "__main__":
    sys.exit(main())

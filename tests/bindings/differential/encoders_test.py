"""Encoders of text, images and sound, written as exporters write them, give what they give in ONNX Runtime, in batches of many sizes by
one session each.

usage: encoders_test.py LIBRARY [NAME...]

LIBRARY is libplait.so. Weights are random, sizes small; the structure is that of the model by which a graph is named. Runs in the
environment of get_onnxruntime.sh; says NOT RUN and ends where there is none.
"""
import ctypes
import sys
from ctypes import c_char_p, c_int64, c_void_p

from differential_test import Plait, has_onnxruntime
from graph_writer import Writer

HIDDEN, VOCABULARY, POSITIONS = 32, 67, 64
LIMIT = 3e-5  # of the largest: f32, sums in other orders through a few layers
IDS, MASK = ("input_ids", "int64", ["batch_size", "sequence_length"]), ("attention_mask", "int64", ["batch_size", "sequence_length"])


def table(w, rows=VOCABULARY):
    return w.weight(rows, HIDDEN, scale=0.5)


def array_of(values, dtype):
    import numpy
    return numpy.array(values, dtype)


def positions(w, x):
    """[1, s], sliced from a buffer as BERT's are."""
    buffer = w.constant([list(range(POSITIONS))], "int64")
    length = w.op("Unsqueeze", [w.size(x, 1), w.ints(0)])
    return w.op("Slice", [buffer, w.ints(0), length, w.ints(1), w.ints(1)])


def post_norm_layers(w, x, bias, count=2):
    for _ in range(count):
        x = w.norm(w.op("Add", [w.attention(x, bias), x]))
        x = w.norm(w.op("Add", [w.feed_forward(x), x]))
    return x


def pre_norm_layers(w, x, bias=None, activation=None, count=2):
    for _ in range(count):
        x = w.op("Add", [x, w.attention(w.norm(x), bias)])
        x = w.op("Add", [x, w.feed_forward(w.norm(x), activation)])
    return x


def bert_body(w):
    words = w.op("Gather", [table(w), "input_ids"])
    kinds = w.op("Gather", [table(w, 2), "token_type_ids"])
    x = w.op("Add", [w.op("Add", [words, kinds]), w.op("Gather", [table(w, POSITIONS), positions(w, "input_ids")])])
    return post_norm_layers(w, w.norm(x), w.padding("attention_mask"))


def bert():
    w = Writer(1)
    x = w.op("Identity", [bert_body(w)], outputs=["last_hidden_state"])
    first = w.op("Gather", [x, w.constant(0, "int64")], {"axis": 1})
    w.op("Tanh", [w.linear(first, HIDDEN, HIDDEN)], outputs=["pooler_output"])
    kinds = ("token_type_ids", *IDS[1:])
    return w.file([IDS, MASK, kinds], ["last_hidden_state", "pooler_output"])


def roberta():
    """Positions count the tokens that are no padding."""
    w = Writer(2)
    seen = w.op("Cast", [w.op("Not", [w.op("Equal", ["input_ids", w.constant(1, "int64")])])], {"to": 6})
    counted = w.op("Mul", [w.op("CumSum", [seen, w.constant(1, "int64")]), seen])
    at = w.op("Add", [w.op("Cast", [counted], {"to": 7}), w.constant(1, "int64")])
    x = w.norm(w.op("Add", [w.op("Gather", [table(w), "input_ids"]), w.op("Gather", [table(w, POSITIONS + 2), at])]))
    x = w.linear(post_norm_layers(w, x, w.padding("attention_mask")), HIDDEN, VOCABULARY)
    w.op("Identity", [x], outputs=["logits"])
    return w.file([IDS, MASK], ["logits"])


def modern_bert():
    """Rotary positions, a window on every second layer, gated feed forward, no biases."""
    w = Writer(3)
    length = w.size("input_ids", 1)
    places = w.op("Range", [w.constant(0, "int64"), length, w.constant(1, "int64")])
    row = w.op("Unsqueeze", [places, w.ints(0)])
    distance = w.op("Abs", [w.op("Sub", [row, w.op("Transpose", [row], {"perm": [1, 0]})])])
    near = w.op("LessOrEqual", [distance, w.constant(3, "int64")])
    padding = w.padding("attention_mask")
    local = w.op("Where", [near, padding, w.constant(-3.4028235e38)])
    x = w.norm(w.op("Gather", [table(w), "input_ids"]))
    for layer in range(3):
        inverse = w.constant([(160000.0 if layer == 0 else 10000.0) ** (-2 * i / w.head) for i in range(w.head // 2)])
        angles = w.op("Mul", [w.op("Unsqueeze", [w.op("Cast", [places], {"to": 1}), w.ints(1)]), inverse])
        angles = w.op("Concat", [angles, angles], {"axis": -1})
        cosine, sine = w.op("Cos", [angles]), w.op("Sin", [angles])

        def rotate(x):
            first, second = f"half_{len(w.nodes)}", f"other_{len(w.nodes)}"
            w.op("Split", [x, w.ints(w.head // 2, w.head // 2)], {"axis": -1}, [first, second])
            turned = w.op("Concat", [w.op("Neg", [second]), first], {"axis": -1})
            return w.op("Add", [w.op("Mul", [x, cosine]), w.op("Mul", [turned, sine])])

        x = w.op("Add", [x, w.attention(w.norm(x), padding if layer == 0 else local, biases=False, rotate=rotate)])
        gate, up = f"gate_{layer}", f"up_{layer}"
        w.op("Split", [w.linear(w.norm(x), HIDDEN, 96, False), w.ints(48, 48)], {"axis": -1}, [gate, up])
        x = w.op("Add", [x, w.linear(w.op("Mul", [w.gelu(gate), up]), 48, HIDDEN, False)])
    w.op("Identity", [w.norm(x)], outputs=["last_hidden_state"])
    return w.file([IDS, MASK], ["last_hidden_state"])


def t5_encoder():
    """A bias by bucket of relative positions, unscaled scores, RMS norms, no biases."""
    w = Writer(4)
    places = w.op("Range", [w.constant(0, "int64"), w.size("input_ids", 1), w.constant(1, "int64")])
    relative = w.op("Sub", [w.op("Unsqueeze", [places, w.ints(0)]), w.op("Unsqueeze", [places, w.ints(1)])])
    later = w.op("Mul", [w.op("Cast", [w.op("Greater", [relative, w.constant(0, "int64")])], {"to": 7}), w.constant(16, "int64")])
    distance = w.op("Abs", [relative])
    share = w.op("Div", [w.op("Log", [w.op("Div", [w.op("Cast", [distance], {"to": 1}), w.constant(8.0)])]), w.constant(2.7725887)])
    large = w.op("Add", [w.op("Cast", [w.op("Mul", [share, w.constant(8.0)])], {"to": 7}), w.constant(8, "int64")])
    large = w.op("Min", [large, w.op("ConstantOfShape", [w.op("Shape", [large])], {"value": array_of([15], "int64")})])
    bucket = w.op("Add", [later, w.op("Where", [w.op("Less", [distance, w.constant(8, "int64")]), distance, large])])
    bias = w.op("Transpose", [w.op("Gather", [w.weight(32, w.heads), bucket])], {"perm": [2, 0, 1]})
    bias = w.op("Add", [w.op("Unsqueeze", [bias, w.ints(0)]), w.padding("attention_mask")])
    x = w.op("Gather", [table(w), "input_ids"])
    for _ in range(2):
        x = w.op("Add", [x, w.attention(w.rms_norm(x), bias, biases=False, scale=False)])
        x = w.op("Add", [x, w.feed_forward(w.rms_norm(x), lambda y: w.op("Relu", [y]), biases=False)])
    w.op("Identity", [w.rms_norm(x)], outputs=["last_hidden_state"])
    return w.file([IDS, MASK], ["last_hidden_state"])


def whisper_encoder():
    """Mel frames [b, 10, 2 n] through two convolutions; the second halves them."""
    w = Writer(5)
    x = w.gelu(w.op("Conv", ["input_features", w.weight(HIDDEN, 10, 3, scale=0.2), w.weight(HIDDEN, scale=0.1)],
                    {"kernel_shape": [3], "pads": [1, 1]}))
    x = w.gelu(w.op("Conv", [x, w.weight(HIDDEN, HIDDEN, 3, scale=0.1), w.weight(HIDDEN, scale=0.1)],
                    {"kernel_shape": [3], "pads": [1, 1], "strides": [2]}))
    x = w.op("Add", [w.op("Transpose", [x], {"perm": [0, 2, 1]}), w.weight(12, HIDDEN, scale=0.3)])
    w.op("Identity", [w.norm(pre_norm_layers(w, x))], outputs=["last_hidden_state"])
    return w.file([("input_features", "float32", ["batch_size", 10, 24])], ["last_hidden_state"])


def patches(w, images):
    x = w.op("Conv", [images, w.weight(HIDDEN, 3, 4, 4, scale=0.2)], {"kernel_shape": [4, 4], "strides": [4, 4]})
    flat = w.op("Reshape", [x, w.shape(w.size(x, 0), HIDDEN, -1)])
    return w.op("Transpose", [flat], {"perm": [0, 2, 1]})


def unit(w, x):
    return w.op("Div", [x, w.op("ReduceL2", [x, w.ints(-1)], {"keepdims": 1})])


def clip():
    """Both towers: images with a token of their class, texts whose last token is the one of the largest id."""
    w = Writer(6)
    rows = patches(w, "pixel_values")
    kind = w.op("Expand", [w.weight(1, 1, HIDDEN), w.shape(w.size("pixel_values", 0), 1, HIDDEN)])
    x = w.norm(w.op("Add", [w.op("Concat", [kind, rows], {"axis": 1}), w.weight(17, HIDDEN, scale=0.3)]))
    x = pre_norm_layers(w, x, activation=w.quick_gelu)
    image = w.linear(w.norm(w.op("Gather", [x, w.constant(0, "int64")], {"axis": 1})), HIDDEN, 24, False)
    length = w.size("input_ids", 1)
    x = w.op("Add", [w.op("Gather", [table(w), "input_ids"]), w.op("Gather", [table(w, POSITIONS), positions(w, "input_ids")])])
    square = w.op("Expand", [w.constant(-3.4028235e38), w.shape(length, length)])
    causal = w.op("Trilu", [square, w.constant(1, "int64")], {"upper": 1})
    x = w.norm(pre_norm_layers(w, x, w.op("Add", [causal, w.padding("attention_mask")]), w.quick_gelu))
    last = w.op("ArgMax", ["input_ids"], {"axis": -1, "keepdims": 0})
    row = w.op("Range", [w.constant(0, "int64"), w.size("input_ids", 0), w.constant(1, "int64")])
    at = w.op("Concat", [w.op("Unsqueeze", [row, w.ints(1)]), w.op("Unsqueeze", [last, w.ints(1)])], {"axis": 1})
    text = w.linear(w.op("GatherND", [x, at]), HIDDEN, 24, False)
    image, text = (w.op("Identity", [unit(w, one)], outputs=[name]) for one, name in ((image, "image_embeds"), (text, "text_embeds")))
    scores = w.op("MatMul", [text, w.op("Transpose", [image], {"perm": [1, 0]})])
    scores = w.op("Mul", [scores, w.op("Exp", [w.constant(2.6592)])], outputs=["logits_per_text"])
    w.op("Transpose", [scores], {"perm": [1, 0]}, ["logits_per_image"])
    texts = [(one[0], one[1], ["text_batch_size", "sequence_length"]) for one in (IDS, MASK)]
    return w.file([texts[0], ("pixel_values", "float32", ["image_batch_size", 3, 16, 16]), texts[1]],
                  ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"])


def siglip_vision():
    """A probe attends to all patches: its query is one row, and its projections are one matrix in slices."""
    w = Writer(7)
    x = w.op("Add", [patches(w, "pixel_values"), w.weight(16, HIDDEN, scale=0.3)])

    def gelu_tanh(y):
        cube = w.op("Mul", [w.op("Pow", [y, w.constant(3.0)]), w.constant(0.044715)])
        inner = w.op("Mul", [w.op("Add", [y, cube]), w.constant(0.7978845608)])
        return w.op("Mul", [w.op("Mul", [y, w.constant(0.5)]), w.op("Add", [w.op("Tanh", [inner]), w.constant(1.0)])])

    x = w.op("Identity", [w.norm(pre_norm_layers(w, x, activation=gelu_tanh))], outputs=["last_hidden_state"])
    probe = w.op("Tile", [w.weight(1, 1, HIDDEN), w.shape(w.size("pixel_values", 0), 1, 1)])
    packed = w.weight(3 * HIDDEN, HIDDEN, scale=0.2)
    query, key, value = (w.split_heads(w.op("MatMul", [one, w.op("Transpose", [w.op("Slice", [
        packed, w.ints(k * HIDDEN), w.ints((k + 1) * HIDDEN), w.ints(0)])], {"perm": [1, 0]})])) for k, one in enumerate((probe, x, x)))
    seen = w.linear(w.join_heads(w.attend(query, key, value)), HIDDEN, HIDDEN)
    seen = w.op("Add", [seen, w.feed_forward(w.norm(seen), gelu_tanh)])
    w.op("Squeeze", [seen, w.ints(1)], outputs=["pooler_output"])
    return w.file([("pixel_values", "float32", ["batch_size", 3, 16, 16])], ["last_hidden_state", "pooler_output"])


def sentence_embedder():
    """BERT, the mean over tokens that are no padding, unit length."""
    w = Writer(8)
    x = w.op("Identity", [bert_body(w)], outputs=["token_embeddings"])
    wide = w.op("Expand", [w.op("Unsqueeze", ["attention_mask", w.ints(2)]), w.op("Shape", [x])])
    seen = w.op("Cast", [wide], {"to": 1})
    total = w.op("ReduceSum", [w.op("Mul", [x, seen]), w.ints(1)], {"keepdims": 0})
    count = w.op("Clip", [w.op("ReduceSum", [seen, w.ints(1)], {"keepdims": 0}), w.constant(1e-9)])
    mean = w.op("Div", [total, count])
    norm = w.op("Clip", [w.op("ReduceL2", [mean, w.ints(1)], {"keepdims": 1}), w.constant(1e-12)])
    w.op("Div", [mean, w.op("Expand", [norm, w.op("Shape", [mean])])], outputs=["sentence_embedding"])
    return w.file([IDS, MASK, ("token_type_ids", *IDS[1:])], ["token_embeddings", "sentence_embedding"])


GRAPHS = {"bert": bert, "roberta": roberta, "modern_bert": modern_bert, "t5_encoder": t5_encoder, "whisper_encoder": whisper_encoder,
          "clip": clip, "siglip_vision": siglip_vision, "sentence_embedder": sentence_embedder}


class Session:
    """One of Plait's, for runs of any size."""

    def __init__(self, plait, model):
        import numpy
        self.plait, self.model, self.handle = plait, c_void_p(), c_void_p()
        self.file = plait.tensor(numpy.frombuffer(model, numpy.uint8))
        plait.call("model_open_memory", (c_char_p * 1)(b"model.onnx"), (c_void_p * 1)(self.file), c_int64(1), None,
                   ctypes.byref(self.model))
        plait.call("session_create", self.model, plait.options, ctypes.byref(self.handle))

    def run(self, operands, outputs):
        tensors = [self.plait.tensor(array) for array in operands.values()]
        names = (c_char_p * len(operands))(*(name.encode() for name in operands))
        wanted, made = (c_char_p * len(outputs))(*(name.encode() for name in outputs)), (c_void_p * len(outputs))()
        self.plait.call("session_run", self.handle, names, (c_void_p * len(tensors))(*tensors), c_int64(len(tensors)), wanted, made,
                        c_int64(len(outputs)))
        out = [self.plait.array(c_void_p(one)) for one in made]
        for one in (*tensors, *map(c_void_p, made)):
            self.plait.call("tensor_release", one)
        return out

    def close(self):
        for kind, handle in (("session", self.handle), ("model", self.model), ("tensor", self.file)):
            self.plait.call(kind + "_release", handle)


def operands(session, random, batch, images, length):
    """Of a batch whose rows end in padding."""
    import numpy
    lengths = [length, *(int(one) for one in random.integers(1, length + 1, batch - 1))]
    mask = numpy.array([[int(i < one) for i in range(length)] for one in lengths], numpy.int64)
    out = {}
    for one in session.get_inputs():
        if one.name == "input_ids":
            out[one.name] = numpy.where(mask == 1, random.integers(3, VOCABULARY, mask.shape), 1)
        elif one.name == "attention_mask":
            out[one.name] = mask
        elif one.name == "token_type_ids":
            out[one.name] = random.integers(0, 2, mask.shape)
        else:
            sizes = [images if isinstance(size, str) else size for size in one.shape]
            out[one.name] = random.standard_normal(sizes).astype(numpy.float32)
    return out


def main():
    if not has_onnxruntime():
        return 0
    import onnxruntime
    import numpy
    plait = Plait(sys.argv[1])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    wrong = 0
    for name in sys.argv[2:] or GRAPHS:
        model = GRAPHS[name]()
        theirs, ours = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]), Session(plait, model)
        outputs, random, worst = [one.name for one in theirs.get_outputs()], numpy.random.default_rng(5), 0
        for batch, images, length in ((1, 1, 7), (3, 2, 20), (2, 5, 1), (4, 1, 64), (1, 3, 2), (3, 2, 20)):
            given = operands(theirs, random, batch, images, length)
            for output, got, expected in zip(outputs, ours.run(given, outputs), theirs.run(outputs, given)):
                assert got.shape == expected.shape, f"{name}, {output}: {got.shape}, expected {expected.shape}"
                assert numpy.isfinite(expected).all(), f"{name}, {output}: not finite in ONNX Runtime"
                error = float(numpy.abs(got - expected).max() / numpy.abs(expected).max())
                worst = max(worst, error)
                if not error <= LIMIT:
                    wrong += 1
                    print(f"{name}, {output}, batch {batch}, images {images}, length {length}: differs by {error:.1e} of the largest")
        ours.close()
        print(f"{name}: at most {worst:.1e} of the largest")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

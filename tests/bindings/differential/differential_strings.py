"""Ops on strings, for differential_graphs.py: those that read texts, and those that only move elements, on strings.

Next to each op that moves, compares or labels elements of any type stands which operands have the type of its data: these become
strings, by the elements they had.
"""
import numpy

from differential_graphs import OPS, op

WORDS = ["", "a", "b", "A", "ab", "B c", " two  words ", "a-b--c", "straße", "日本", "12", "x1"]


def texts(b, shape, words=WORDS):
    out = numpy.empty(shape, object)
    out.reshape(-1)[:] = [b.pick(words) for _ in range(out.size)]
    return b.add(out)


def old_or_new(b, shape=None):
    return b.old(lambda one: one.dtype == "object" and shape in (None, one.shape), 0.5) or texts(b, b.sizes() if shape is None else shape)


@op("StringConcat", exact=True)
def concat(b, name):
    x = old_or_new(b)
    return [x, texts(b, tuple(b.broadcast(x)))], {}, 1


@op("StringSplit", exact=True)
def split(b, name):
    made = {} if b.chance(0.4) else {"delimiter": b.pick(["-", " ", "", "b", "--"])}
    # Of an empty string ONNX Runtime makes no piece, the standard's reference one.
    words = WORDS[1:] if made.get("delimiter") else WORDS
    return [texts(b, b.sizes(b.integer(1, 3)), words)], made | ({"maxsplit": b.integer(1, 3)} if b.chance(0.4) else {}), 2


@op("StringNormalizer", exact=True)
def normalizer(b, name):
    words = [word for word in WORDS if word.isascii()]  # engines differ in the letters that they know
    count = b.integer(1, 5)
    return [texts(b, b.pick([(count,), (1, count)]), words)], {
        "case_change_action": b.pick(["NONE", "LOWER", "UPPER"]), "is_case_sensitive": b.integer(0, 1),
        **({"stopwords": [b.pick(words[1:]) for _ in range(b.integer(1, 3))]} if b.chance(0.7) else {})}, 1


@op("RegexFullMatch", exact=True)
def match(b, name):
    return [old_or_new(b)], {"pattern": b.pick(["a", "a|ab", "[a-z]*", ".*\\d", "(?i)A.*", "\\w+", "", "^a$", "日.", "[^a]+"])}, 1


@op("ai.onnx.ml.CategoryMapper", exact=True)
def mapper(b, name):
    made = {"cats_strings": ["a", "b", "", "12"], "cats_int64s": [3, 7, 0, 12], "default_string": "none", "default_int64": -5}
    x = old_or_new(b) if b.chance(0.5) else b.add(b.random.integers(-1, 13, size=b.sizes(2)))
    return [x], made, 1


@op("TfIdfVectorizer")
def ngrams(b, name):
    pool = ["a", "b", "", "a", "b", "b", "12", "ab", "a"]
    attributes = {"pool_strings": pool, "ngram_counts": [0, 3], "ngram_indexes": [0, 1, 2, 3, 4, 5], "min_gram_length": 1,
                  "max_gram_length": 2, "max_skip_count": b.integer(0, 2), "mode": b.pick(["TF", "IDF", "TFIDF"])}
    if b.chance(0.5):
        attributes["weights"] = [0.5, 1.0, 2.0, 3.0, 4.0, 5.0]
    return [texts(b, b.pick([(5,), (2, 4)]), ["a", "b", "", "12", "ab", "other"])], attributes, 1


# The operands with the type of the data.
MOVING = {"Compress": [0], "Concat": None, "Equal": [0, 1], "Expand": [0], "Flatten": [0], "Gather": [0], "GatherElements": [0],
          "GatherND": [0], "Identity": [0], "Reshape": [0], "ReverseSequence": [0], "ScatterElements": [0, 2], "ScatterND": [0, 2],
          "Shape": [0], "Size": [0], "Slice": [0], "Split": [0], "Squeeze": [0], "Tile": [0], "Transpose": [0], "Unique": [0],
          "Unsqueeze": [0], "Where": [1, 2]}


def as_texts(b, value):
    """Strings that are equal where the elements are."""
    out = numpy.empty(value.shape, object)
    out.reshape(-1)[:] = [str(one) for one in value.array.reshape(-1).tolist()]
    return b.add(out)


def sometimes_of_strings(make, places):
    def made(b, name):
        node = make(b, name)
        if not node:
            return node
        operands, attributes, outputs = node
        strings = b.chance(0.25)
        if name == "Gather":  # ONNX Runtime 1.32 gives the first string only, the others are empty
            return None if operands[0].dtype == "object" else node
        if not strings or attributes.get("reduction", "none") != "none":
            return node
        return [as_texts(b, one) if one is not None and (places is None or i in places) else one
                for i, one in enumerate(operands)], attributes, outputs
    return made


for key, places in MOVING.items():
    if key in OPS:
        OPS[key] = (sometimes_of_strings(OPS[key][0], places), *OPS[key][1:])


def labelled(make):
    """Classifiers and encoders with strings where they had integers."""
    def made(b, name):
        node = make(b, name)
        if not node or b.chance(0.6):
            return node
        operands, attributes, outputs = node
        for ints in ("classlabels_ints", "classlabels_int64s"):
            if len(attributes.get(ints, ())) > 1:  # of one string ONNX Runtime reads the second, and aborts
                attributes["classlabels_strings"] = [f"label {one}" for one in attributes.pop(ints)]
        if name.endswith("OneHotEncoder"):
            return [texts(b, operands[0].shape)], {"cats_strings": ["a", "", "ab"], "zeros": attributes["zeros"]}, outputs
        if name.endswith("LabelEncoder"):
            values = b.pick([{"values_int64s": [5, 6, 7, 8]}, {"values_floats": [0.5, 6.0, 7.0, 8.0]},
                             {"values_strings": ["w", "x", "y", ""]}])
            fallback = {"default_string": "none", "default_int64": 3, "default_float": 2.5} if b.chance(0.5) else {}
            return [texts(b, operands[0].shape)], {"keys_strings": ["a", "b", "", "12"], **values, **fallback}, outputs
        return operands, attributes, outputs
    return made


for key in ("LabelEncoder", "LinearClassifier", "SVMClassifier", "OneHotEncoder", "TreeEnsembleClassifier"):
    key = "ai.onnx.ml." + key
    OPS[key] = (labelled(OPS[key][0]), *OPS[key][1:])

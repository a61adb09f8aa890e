"""Ops of ai.onnx.ml, for differential_graphs.py: features, labels, linear models, support vectors, trees."""
import numpy

from differential_graphs import op

TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]


def table(b, types=("float32",)):
    """x [n, f]"""
    return b.new((b.integer(1, 5), b.integer(1, 4)), list(types))


def reals(b, count, least=-2.0, most=2.0):
    return [float(numpy.float32(one)) for one in b.random.uniform(least, most, count)]


@op("ai.onnx.ml.Scaler", "ai.onnx.ml.Normalizer", "ai.onnx.ml.Binarizer", finite=True)
def features(b, name):
    x = table(b, ["float32", "float64", "int32", "int64"])
    if name.endswith("Binarizer"):
        return [x], {"threshold": b.pick([0.0, 0.5, -1.0])}, 1
    if name.endswith("Normalizer"):
        return [x], {"norm": b.pick(["MAX", "L1", "L2"])}, 1
    count = x.shape[1] if b.chance(0.5) else 1
    return [x], {"offset": reals(b, count), "scale": reals(b, count)}, 1


@op("ai.onnx.ml.Imputer")
def imputer(b, name):
    x = table(b, ["float32", "int64"])
    count = x.shape[1] if b.chance(0.5) else 1
    replaced = x.array.ravel()[0]
    if x.array.dtype.kind == "i":
        return [x], {"imputed_value_int64s": [7 + i for i in range(count)], "replaced_value_int64": int(replaced)}, 1
    replaced = float("nan") if b.chance(0.3) else float(replaced)
    return [x], {"imputed_value_floats": reals(b, count), "replaced_value_float": replaced}, 1


@op("ai.onnx.ml.FeatureVectorizer")
def vectorizer(b, name):
    rows = b.integer(1, 5)
    dtype = b.pick(["float32", "float64", "int32", "int64"])
    parts = [b.new((rows, b.integer(1, 4)), [dtype]) for _ in range(b.integer(1, 3))]
    return parts, {"inputdimensions": [part.shape[1] for part in parts]}, 1


def likeness(b):
    return {"kernel_type": b.pick(["LINEAR", "POLY", "RBF", "SIGMOID"]), "kernel_params": [0.25, 0.5, 2.0]}


@op("ai.onnx.ml.SVMRegressor", finite=True)
def regressor(b, name):
    x = table(b)
    features, vectors = x.shape[1], b.pick([0, 1, 4])
    made = likeness(b) | {"n_supports": vectors, "rho": reals(b, 1), "coefficients": reals(b, vectors or features)}
    return [x], made | ({"support_vectors": reals(b, vectors * features)} if vectors else {}), 1


@op("ai.onnx.ml.SVMClassifier", finite=True)
def classifier(b, name):
    x = table(b, ["float32", "float64", "int32", "int64"])
    features, classes = x.shape[1], b.integer(2, 4)
    pairs = classes * (classes - 1) // 2
    each = [b.integer(1, 3) for _ in range(classes)] if b.chance(0.8) else []
    made = likeness(b) | {"classlabels_ints": [5, 7, 4, 9][:classes], "rho": reals(b, pairs), "post_transform": b.pick(TRANSFORMS[:4])}
    if each:
        made |= {"vectors_per_class": each, "support_vectors": reals(b, sum(each) * features)}
        made |= {"coefficients": reals(b, sum(each) * (classes - 1))}
        if b.chance(0.5):
            made |= {"prob_a": reals(b, pairs, -2.0, -0.5), "prob_b": reals(b, pairs, -0.5, 0.5)}
    else:
        made |= {"coefficients": reals(b, classes * features)}
    return [x], made, 2


@op("ai.onnx.ml.ArrayFeatureExtractor")
def extract(b, name):
    x = table(b, ["float32", "float64", "int32", "int64"])
    return [x, b.add(b.random.integers(0, x.shape[1], size=(b.integer(1, 3),)).astype("int64"))], {}, 1


@op("ai.onnx.ml.OneHotEncoder", exact=True)
def one_hot(b, name):
    x = b.add(b.random.integers(0, 6, size=(2, 3)).astype(b.pick(["int64", "int32", "float32", "float64"])))
    return [x], {"cats_int64s": [5, 1, 3] if b.chance(0.5) else [0, 1, 2, 3, 4, 5], "zeros": b.integer(0, 1)}, 1


@op("ai.onnx.ml.LabelEncoder", exact=True)
def label_encoder(b, name):
    keys, values = b.pick(["int64", "float32"]), b.pick(["int64", "float32"])
    x = b.add(b.random.integers(-1, 5, size=b.pick([(4,), (2, 3)])).astype(keys))
    if b.chance(0.3):  # as tensors
        keys = values = b.pick(["int64", "float64", "float32"])
        x = b.add(x.array.astype(keys))
        return [x], {"keys_tensor": numpy.asarray([0, 3, 4, 0], keys), "values_tensor": numpy.asarray([5, 6, 7, 8], values),
                     **({"default_tensor": numpy.asarray([9], values)} if b.chance(0.5) else {})}, 1
    made = {"keys_int64s": [0, 3, 4, 0]} if keys == "int64" else {"keys_floats": [0.0, 3.0, float("nan"), 1.0]}
    made |= {"values_int64s": [5, 6, 7, 8]} if values == "int64" else {"values_floats": [0.5, 6.0, 7.0, 8.0]}
    return [x], made | ({"default_int64": 3, "default_float": 2.5} if b.chance(0.5) else {}), 1


@op("ai.onnx.ml.LinearRegressor", "ai.onnx.ml.LinearClassifier", finite=True)
def linear_model(b, name):
    x, targets, transform = table(b), b.integer(1, 3), b.pick(TRANSFORMS)
    made = {"coefficients": reals(b, targets * x.shape[1]), "post_transform": transform}
    if transform == "PROBIT":  # near 1/2 ONNX Runtime's formula is noise
        made |= {"coefficients": [0.0] * len(made["coefficients"]), "intercepts": reals(b, targets, 0.6, 0.9)}
    if name.endswith("Regressor"):
        return [x], ({"intercepts": reals(b, targets)} if b.chance(0.6) else {}) | made | {"targets": targets}, 1
    if targets == 1 and transform == "PROBIT":  # ONNX Runtime's scores of one row are written over those of another
        return None
    return [x], {"intercepts": reals(b, targets)} | made | {"classlabels_ints": [3, 5, 4][:max(targets, 2)]}, 2


MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def grow(b, features, depth):
    """A tree as nested tuples: (mode, feature, split, missing, true, false), or None for a leaf."""
    if depth == 0 or b.chance(0.2):
        return None
    split = float(b.random.integers(-2, 3)) / 2
    return (b.integer(0, 5), b.integer(0, features - 1), split, b.integer(0, 1), grow(b, features, depth - 1), grow(b, features, depth - 1))


def listed(trees, stem):
    """Attributes of opsets 1 to 3, and the leaves: (tree, node)."""
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    rows, leaves = [], []
    for number, tree in enumerate(trees):
        base, waiting = len(rows), [tree]
        for node in waiting:  # breadth first: grows as it is walked
            here = len(rows) - base
            if node is None:
                rows.append((number, here, 0, 0.0, "LEAF", 0, 0, 0))
                leaves.append((number, here))
                continue
            mode, feature, split, missing, yes, no = node
            rows.append((number, here, feature, split, MODES[mode], len(waiting), len(waiting) + 1, missing))
            waiting += [yes, no]
    made = {"nodes_" + name: [row[i] for row in rows] for i, name in enumerate(names)}
    return {**made, stem + "_treeids": [one[0] for one in leaves], stem + "_nodeids": [one[1] for one in leaves]}, len(leaves)


def points(b, features, types):
    """Halves, many of which are the trees' splits; some are NaN."""
    x = b.random.integers(-3, 4, size=(b.integer(1, 70), features)) / 2
    dtype = b.pick(types)
    if dtype.startswith("float") and b.chance(0.5):
        x[b.random.random(x.shape) < 0.2] = numpy.nan
    return b.add(x.astype(dtype))


@op("ai.onnx.ml.TreeEnsembleRegressor", "ai.onnx.ml.TreeEnsembleClassifier")
def listed_trees(b, name):
    features, stem = b.integer(1, 4), "target" if name.endswith("Regressor") else "class"
    made, leaves = listed([grow(b, features, 3) or (0, 0, 0.0, 0, None, None) for _ in range(b.integer(1, 5))], stem)
    targets = b.integer(1, 3)
    made |= {stem + "_weights": reals(b, leaves, b.pick([0.0, -1.0]), 1.0), "post_transform": b.pick(TRANSFORMS)}
    made[stem + "_ids"] = [int(one) for one in b.random.integers(0, targets, leaves)]
    probit = made["post_transform"] == "PROBIT"
    if probit:  # away from 1/2
        made[stem + "_weights"] = reals(b, leaves, 0.6, 0.9)
    elif b.chance(0.4):
        made["base_values"] = reals(b, targets)
    if stem == "target":
        return [points(b, features, ["float32", "float64"])], \
            made | {"n_targets": targets, "aggregate_function": "MAX" if probit else b.pick(["SUM", "AVERAGE", "MIN", "MAX"])}, 1
    if targets == 2:
        if made["post_transform"] == "PROBIT":  # ONNX Runtime leaves a score unset
            return None
        if b.chance(0.5):  # weights of one class for two
            made[stem + "_ids"] = [0] * leaves
            if "base_values" in made and b.chance(0.5):
                made["base_values"] = made["base_values"][:1]
    return [points(b, features, ["float32", "float64", "int32", "int64"])], \
        made | {"classlabels_int64s": [5, 7, 4][:targets]}, 2


@op("ai.onnx.ml.TreeEnsemble")
def indexed_trees(b, name):
    features, targets, dtype = b.integer(1, 4), b.integer(1, 3), b.pick(["float32", "float64"])
    nodes, leaves, roots, transform = [], [], [], b.pick([0, 3, 4])
    signs = [1] if transform == 4 else [1, -1]  # PROBIT: away from 1/2

    def place(node):
        """(is a leaf, index) of a node, whose children follow it."""
        if node is None:
            leaves.append((int(b.integer(0, targets - 1)), b.random.uniform(0.6, 0.9) * b.pick(signs)))
            return 1, len(leaves) - 1
        here = len(nodes)
        nodes.append(None)
        mode, feature, split, missing, yes, no = node
        nodes[here] = (mode, feature, split, missing, place(yes), place(no))
        return 0, here

    for _ in range(b.integer(1, 4)):
        roots.append(place(grow(b, features, 3) or (0, 0, 0.0, 0, None, None))[1])
    # No BRANCH_MEMBER: ONNX Runtime 1.31 takes -0.5 for a member of {-1, 0}; tests/unit/reference/trees_test.cpp has them.
    # Of transforms: ONNX Runtime takes 1 for LOGISTIC and 2 for SOFTMAX, where the standard has them the other way round.
    made = {"tree_roots": roots, "n_targets": targets, "post_transform": transform,
            "aggregate_function": 3 if transform == 4 else b.integer(0, 3),
            "nodes_modes": numpy.asarray([one[0] for one in nodes], "uint8"), "nodes_featureids": [one[1] for one in nodes],
            "nodes_splits": numpy.asarray([one[2] for one in nodes], dtype),
            "nodes_missing_value_tracks_true": [one[3] for one in nodes],
            "nodes_trueleafs": [one[4][0] for one in nodes], "nodes_truenodeids": [one[4][1] for one in nodes],
            "nodes_falseleafs": [one[5][0] for one in nodes], "nodes_falsenodeids": [one[5][1] for one in nodes],
            "leaf_targetids": [one[0] for one in leaves], "leaf_weights": numpy.asarray([one[1] for one in leaves], dtype)}
    return [points(b, features, [dtype])], made, 1

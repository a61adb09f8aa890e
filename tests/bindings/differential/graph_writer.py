"""Writes graphs of layers as exporters do: nodes and weights, named as they come. What embeddings_test.py and encoders_test.py share."""


class Writer:
    def __init__(self, seed, hidden=32, heads=4):
        import numpy
        self.random, self.nodes, self.weights = numpy.random.default_rng(seed), [], []
        self.hidden, self.heads, self.head = hidden, heads, hidden // heads

    def op(self, kind, inputs, attributes=None, outputs=None):
        import onnx_file
        outputs = outputs or [f"{kind}_{len(self.nodes)}"]
        self.nodes.append(onnx_file.node(kind, inputs, outputs, attributes, f"/{kind}_{len(self.nodes)}"))
        return outputs[0]

    def constant(self, value, dtype="float32"):
        import numpy
        self.weights.append((f"constant_{len(self.weights)}", numpy.asarray(value, dtype)))
        return self.weights[-1][0]

    def ints(self, *values):
        return self.constant(values, "int64")

    def weight(self, *shape, scale=1.0):
        return self.constant(self.random.standard_normal(shape) * scale)

    def linear(self, x, rows, columns, bias=True):
        out = self.op("MatMul", [x, self.weight(rows, columns, scale=rows ** -0.5)])
        return self.op("Add", [out, self.weight(columns, scale=0.1)]) if bias else out

    def norm(self, x):
        return self.op("LayerNormalization", [x, self.weight(self.hidden), self.weight(self.hidden, scale=0.1)], {"axis": -1})

    def rms_norm(self, x):
        mean = self.op("ReduceMean", [self.op("Pow", [x, self.constant(2.0)]), self.ints(-1)], {"keepdims": 1})
        root = self.op("Sqrt", [self.op("Add", [mean, self.constant(1e-6)])])
        return self.op("Mul", [self.weight(self.hidden), self.op("Mul", [x, self.op("Div", [self.constant(1.0), root])])])

    def gelu(self, x):
        """As exporters write it before opset 20."""
        erf = self.op("Erf", [self.op("Div", [x, self.constant(2 ** 0.5)])])
        half = self.op("Mul", [x, self.op("Add", [erf, self.constant(1.0)])])
        return self.op("Mul", [half, self.constant(0.5)])

    def size(self, x, axis):
        return self.op("Gather", [self.op("Shape", [x]), self.constant(axis, "int64")], {"axis": 0})

    def shape(self, *sizes):
        """i64 [n] of numbers and scalars."""
        parts = [self.op("Unsqueeze", [one, self.ints(0)]) if isinstance(one, str) else self.ints(one) for one in sizes]
        return self.op("Concat", parts, {"axis": 0})

    def split_heads(self, x):
        split = self.op("Reshape", [x, self.ints(0, 0, self.heads, self.head)])
        return self.op("Transpose", [split], {"perm": [0, 2, 1, 3]})

    def join_heads(self, x):
        return self.op("Reshape", [self.op("Transpose", [x], {"perm": [0, 2, 1, 3]}), self.ints(0, 0, self.hidden)])

    def attend(self, query, key, value, bias=None, scale=True):
        """Of heads [b, h, s, d]; `bias` is added to scores."""
        scores = self.op("MatMul", [query, self.op("Transpose", [key], {"perm": [0, 1, 3, 2]})])
        if scale:
            scores = self.op("Mul", [scores, self.constant(self.head ** -0.5)])
        if bias:
            scores = self.op("Add", [scores, bias])
        return self.op("MatMul", [self.op("Softmax", [scores], {"axis": -1}), value])

    def attention(self, x, bias=None, biases=True, scale=True, rotate=None):
        heads = [self.split_heads(self.linear(x, self.hidden, self.hidden, biases)) for _ in range(3)]
        if rotate:
            heads[:2] = [rotate(one) for one in heads[:2]]
        return self.linear(self.join_heads(self.attend(*heads, bias, scale)), self.hidden, self.hidden, biases)

    def feed_forward(self, x, activation=None, biases=True, width=64):
        return self.linear((activation or self.gelu)(self.linear(x, self.hidden, width, biases)), width, self.hidden, biases)

    def quick_gelu(self, x):
        return self.op("Mul", [x, self.op("Sigmoid", [self.op("Mul", [x, self.constant(1.702)])])])

    def padding(self, mask):
        """f32 [b, 1, 1, s], to add to scores, of a mask i64 [b, s]."""
        wide = self.op("Unsqueeze", [self.op("Unsqueeze", [mask, self.ints(1)]), self.ints(2)])
        hidden = self.op("Sub", [self.constant(1.0), self.op("Cast", [wide], {"to": 1})])
        return self.op("Mul", [hidden, self.constant(-3.4028235e38)])

    def file(self, inputs, outputs, opset=18):
        import onnx_file
        return onnx_file.model(self.nodes, inputs, outputs, self.weights, opset)

"""Any graph, arrays in and out: python session_tensors.py MODEL.onnx OUTPUT TOKEN..."""
import sys

import numpy
import plait

tokens = numpy.array([sys.argv[3:]], numpy.int64)
with plait.open(sys.argv[1]) as model, model.session() as session:
    inputs = {one.name: numpy.ones_like(tokens) if "mask" in one.name else numpy.zeros_like(tokens) for one in session.inputs()}
    inputs[session.inputs()[0].name] = tokens
    result = session.run(inputs, [sys.argv[2]])[sys.argv[2]]
    print(*result.shape, f"{result.flat[0]:.3f}")

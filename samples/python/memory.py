"""A model from memory: python memory.py MODEL_DIRECTORY PROMPT"""
import pathlib
import sys

import plait

names = ("model.onnx", "model.onnx.data", "tokenizer.json", "tokenizer_config.json")
with plait.open({name: pathlib.Path(sys.argv[1], name).read_bytes() for name in names}) as model, model.generator() as generator:
    print(generator.generate(sys.argv[2], max_tokens=16, temperature=0))

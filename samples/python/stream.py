"""The smallest program that generates text: python stream.py MODEL_DIRECTORY PROMPT"""
import sys

import plait

with plait.open(sys.argv[1]) as model, model.generator() as generator:
    for token in generator.submit(sys.argv[2], max_tokens=64):
        print(token.text, end="", flush=True)
    print()

"""A model over several ranks: python sharded.py MODEL_DIRECTORY MESH PROMPT"""
import sys

import plait

with plait.open(sys.argv[1]) as model, model.generator(mesh=sys.argv[2]) as generator:
    print(generator.generate(sys.argv[3], max_tokens=16, temperature=0))
    print(generator.ranks(), file=sys.stderr)

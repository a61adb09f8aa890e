"""How near two texts are, by their mean hidden states: python embeddings.py MODEL_DIRECTORY TEXT TEXT"""
import sys

import numpy
import plait

with plait.open(sys.argv[1]) as model, model.generator() as generator:
    one, two = (generator.submit(text, kind="embed", pooling="mean").result() for text in sys.argv[2:4])
    print(f"{one @ two / numpy.sqrt((one @ one) * (two @ two)):.3f}")

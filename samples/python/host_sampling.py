"""A sampler of the host's, which takes even tokens only: python host_sampling.py MODEL_DIRECTORY PROMPT"""
import sys

import plait

with plait.open(sys.argv[1]) as model, model.generator() as generator:
    request = generator.submit(sys.argv[2], sampler=lambda logits: 2 * int(logits[::2].argmax()), max_tokens=16)
    print(request.text())

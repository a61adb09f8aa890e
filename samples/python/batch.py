"""Prompts that run together: python batch.py MODEL_DIRECTORY PROMPT..."""
import sys

import plait

with plait.open(sys.argv[1]) as model, model.generator() as generator:
    for request in [generator.submit(prompt, max_tokens=16, temperature=0) for prompt in sys.argv[2:]]:
        print(request.text())

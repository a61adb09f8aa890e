"""Three steps of training on one text: python three_steps.py MODEL_DIRECTORY TEXT"""
import sys

import plait

with plait.open(sys.argv[1]) as model, model.trainer(optimizer="sgd", lr=0.5, schedule="constant") as trainer:
    document = model.tokenizer().encode(sys.argv[2]).reshape(1, -1)
    for _ in range(3):
        print(f"{trainer.step(document).loss:.3f}")

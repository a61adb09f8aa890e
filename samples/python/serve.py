"""A server for OpenAI's clients within this process, until its input ends: python serve.py MODEL_DIRECTORY [ADDRESS]"""
import sys

import plait

with plait.open(sys.argv[1]) as model, model.generator() as generator:
    with plait.Server(address=sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:8080") as server:
        server.add("model", model, generator)  # which this process may use, too: all requests share steps
        print(server.address, flush=True)
        sys.stdin.read()
        server.drain(30)

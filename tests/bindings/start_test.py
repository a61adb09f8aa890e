#!/usr/bin/env python3
"""Follows docs/start.md: its ```sh blocks, word for word, in a clone of the repository. The tuned model has to have learned its way to
answer. Needs a network, and minutes: with the large tests.

usage: start_test.py ROOT [FOLDER]     FOLDER: where to clone; a new one by default
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile


def main():
    root = os.path.abspath(sys.argv[1])
    with open(os.path.join(root, "docs/start.md")) as file:
        blocks = re.findall(r"^```sh\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)
    folder = tempfile.mkdtemp(dir=sys.argv[2] if len(sys.argv) > 2 else None)
    try:
        clone = os.path.join(folder, "plait")
        subprocess.run(["git", "clone", "--quiet", root, clone], check=True)
        said = ""
        for block in blocks:
            done = subprocess.run(["bash", "-eu", "-c", block], cwd=clone, stdout=subprocess.PIPE, text=True, timeout=3600)
            if done.returncode:
                sys.exit(f"exit status {done.returncode}:\n{block}")
            said += done.stdout
        # The adapter's answer and the merged model's.
        if said.count("Arr, matey!") < 2:
            sys.exit(f"the model did not learn:\n{said}")
    finally:
        shutil.rmtree(folder)
    print(f"{len(blocks)} blocks of docs/start.md")


if __name__ == "__main__":
    main()

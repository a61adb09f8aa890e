#!/usr/bin/env python3
"""docs/recognised.md is what the fixtures hold: the decoders that `unit.zoo` and `bindings.converted` run, by family and exporter.

usage: recognised.py ROOT [--write]
"""
import json
import os
import re
import sys

import sources

PAGE = "docs/recognised.md"
# Exporters and their forms, and the names of them in the manifest.
EXPORTERS = [
    ("optimum (`optimum-cli export onnx`)", {"optimum14": "opset 14", "optimum18": "opset 18", "optimum_nocache": "without a cache",
                                             "pair11": "two files", "merged13": "merged", "merged14": "merged"}),
    ("torch.onnx (`dynamo=True`)", {"dynamo18": "opset 18", "dynamo18_eager": "eager attention", "dynamo23": "opset 23",
                                    "hf5": "transformers 5"}),
    ("onnxruntime-genai's builder", {"genai_fp32": "f32", "genai_int4": "int4"}),
    ("ONNX Runtime's quantiser", {"q_dynamic": "dynamic int8", "q_dynamic_uint8": "dynamic uint8", "q_static": "static int8",
                                  "q_int4": "int4", "q_int4_qdq": "int4 as QDQ", "q_experts": "int4 experts"}),
]
HEAD = """# What is recognised

A graph that is recognised as a decoder is generated from with a paged cache, sharded over ranks, and fine-tuned; `plait inspect MODEL`
tells of a file at hand whether it is, and at which node it stopped if not. What matters is the structure (norms, rotary forms, masks,
caches), not a name: the families below are those whose every form here runs in the tests, against ONNX Runtime's or PyTorch's logits.
`python3 tests/checks/recognised.py . --write` makes this page of the fixtures.

## ONNX, by family and exporter

"""
MIDDLE = """
Not recognised, and run as the graph is written:

"""
FILES = """
## Files without a graph

GGUF files and directories of transformers, see [convert.md](convert.md). Run by `bindings.converted`:

"""


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def rows_of_exports(models, families):
    for family in sorted({model["name"].split("/")[0] for model in models}):
        forms = {model["name"].split("/")[1] for model in models if model["name"].startswith(family + "/") and not model["plain"]}
        cells = [", ".join(text for name, text in names.items() if name in forms) for _, names in EXPORTERS]
        kind, note = families[family]
        if forms:
            yield [f"{family}" if kind == family else f"{family} (`{kind}`)", note, *cells]


def table(head, rows):
    return "".join("| " + " | ".join(row) + " |\n" for row in [head, ["---"] * len(head), *rows])


def page(root):
    sys.path.append(os.path.join(root, "tests", "fixtures", "zoo"))
    from architectures import ARCHITECTURES

    models = json.loads(read(root, "tests/fixtures/zoo/manifest.json"))["models"]
    unknown = {model["name"].split("/")[1] for model in models} - {name for _, names in EXPORTERS for name in names}
    assert not unknown, f"EXPORTERS has no row for {unknown}"
    families = {row.name: (row.model_type, row.note) for row in ARCHITECTURES.values()}
    out = HEAD + table(["family", "what it has", *(name for name, _ in EXPORTERS)], rows_of_exports(models, families))
    forms = {name: text for _, names in EXPORTERS for name, text in names.items()}
    plain = [(*model["name"].split("/"), model["plain"]) for model in models if model["plain"]]
    out += MIDDLE + "".join(f"- {family}, {forms[form]}: {why}\n" for family, form, why in plain)
    made = re.findall(r'^    "(\w+)": \("(\w+)"', read(root, "tests/fixtures/huggingface/make.py"), re.MULTILINE)
    gguf = dict(re.findall(r'"(\w+)": "([A-Z0-9]+)"', read(root, "tests/bindings/converted_test.py").split("TYPES =")[0]))
    rows = [[name, f"`{kind}`", f"`{gguf[name].lower()}`" if name in gguf else ""] for name, kind in made]
    return out + FILES + table(["model", "`model_type` of config.json", "architecture of a GGUF file"], rows)


def main(root, write):
    text = page(root)
    if write:
        with open(os.path.join(root, PAGE), "w", encoding="utf-8") as file:
            file.write(text)
    same = os.path.exists(os.path.join(root, PAGE)) and read(root, PAGE) == text
    sources.finish(1, [] if same else [f"{PAGE} is not what the fixtures hold: python3 tests/checks/recognised.py . --write"])


if __name__ == "__main__":
    main(sys.argv[1], "--write" in sys.argv)

#!/usr/bin/env python3
"""Writes defaults.cpp: what each configuration class of transformers has for a field that config.json leaves out.

Needs transformers (tests/fixtures/requirements.txt). The values are those of the classes' constructors; what a class computes of other
fields, such as layer_types, is computed by config.cpp.
"""
import inspect
import json
import os
import textwrap

import transformers
from transformers import CONFIG_MAPPING, PretrainedConfig

TYPES = ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2", "gpt2", "gptj", "gpt_neox", "mixtral",
         "qwen2_moe", "qwen3_moe"]


def fields(kind):
    found = inspect.signature(kind.__init__).parameters.values()
    return {one.name: one.default for one in found if one.name != "self" and one.kind != one.VAR_KEYWORD}


def table():
    base = fields(PretrainedConfig)
    base |= {"model_type": "", "transformers_version": None, "torch_dtype": None}
    generation = PretrainedConfig._get_global_generation_defaults()
    out = {"base": base, "generation": sorted(generation), "types": {}, "names": {}, "text": {}}
    for name in TYPES:
        kind = CONFIG_MAPPING[name]
        out["types"][name] = fields(kind)
        if kind.attribute_map:
            out["names"][name] = dict(kind.attribute_map)
    # Models of more than text, by the kind of their text where the file does not tell.
    for name, kind in CONFIG_MAPPING.items():
        if name in TYPES or not isinstance(kind.sub_configs, dict) or "text_config" not in kind.sub_configs:
            continue
        try:
            text = kind().text_config.model_type
        except Exception:  # the class cannot be made without arguments
            continue
        if text in TYPES:
            out["text"][name] = text
    return out


def main():
    text = json.dumps(table(), indent=None, sort_keys=True)
    lines = textwrap.wrap(text, 116, break_long_words=False, break_on_hyphens=False)
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "defaults.cpp"), "w") as file:
        file.write(f"// Made by make_defaults.py of transformers {transformers.__version__}.\n"
                   '#include "importers/huggingface/config_fields.h"\n\n'
                   "namespace plait::huggingface {\n\n"
                   'const char* const defaults_json = R"json(\n' + "\n".join(lines) + '\n)json";\n\n'
                   "}  // namespace plait::huggingface\n")


if __name__ == "__main__":
    main()

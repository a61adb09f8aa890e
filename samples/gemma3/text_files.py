"""Writes the text side of the model from the GGUF's vocabulary: tokenizer, chat template and configuration."""

import json

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"  # how SentencePiece spells a space inside a piece

# Gemma's turns: `<start_of_turn>user`, the text, `<end_of_turn>`; the assistant is called model, and what a
# system message contains is put before the first user's text.
CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- set system = '' -%}
{%- set turns = messages -%}
{%- if messages and messages[0]['role'] == 'system' -%}
    {%- set system = messages[0]['content'] | trim ~ '\\n\\n' -%}
    {%- set turns = messages[1:] -%}
{%- endif -%}
{%- for turn in turns -%}
    {%- if (turn['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('Turns must alternate: user, assistant, user, ...') -}}
    {%- endif -%}
    {%- set name = 'model' if turn['role'] == 'assistant' else turn['role'] -%}
    {{- '<start_of_turn>' ~ name ~ '\\n' ~ (system if loop.first else '') ~ (turn['content'] | trim) -}}
    {{- '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<start_of_turn>model\\n' -}}
{%- endif -%}
"""


def merge_list(pieces, scores, kinds, tick):
    """BPE merges that do what SentencePiece does: join the neighbours whose union has the best score.

    Every split of a normal piece into two normal pieces is a merge; better scores come first. `tick(1)` is called
    for each piece.
    """
    ids = {piece: i for i, piece in enumerate(pieces) if kinds[i] == NORMAL}
    order = sorted((i for i in ids.values() if len(pieces[i]) > 1), key=lambda i: -scores[i])
    merges = []
    for i in order:
        piece = pieces[i]
        splits = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        found = [(ids[left], ids[right], left, right) for left, right in splits if left in ids and right in ids]
        merges += [[left, right] for _, _, left, right in sorted(found)]
        tick(1)
    return merges


def added_token(index, text, special):
    return {"id": index, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": special}


def tokenizer_json(fields, tick):
    """The tokenizer in the form of Hugging Face's `tokenizers`; `fields` is the GGUF's metadata."""
    pieces = fields["tokenizer.ggml.tokens"]
    kinds = fields["tokenizer.ggml.token_type"].tolist()
    scores = fields["tokenizer.ggml.scores"].tolist()
    bos = fields["tokenizer.ggml.bos_token_id"]
    special = (CONTROL, UNKNOWN)
    added = [added_token(i, piece, kinds[i] in special) for i, piece in enumerate(pieces)
             if kinds[i] in (*special, USER_DEFINED)]
    opening = {"SpecialToken": {"id": pieces[bos], "type_id": 0}}
    opening_pair = {"SpecialToken": {"id": pieces[bos], "type_id": 1}}
    first, second = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing", "single": [opening, first], "pair": [opening, first, opening_pair, second],
            "special_tokens": {pieces[bos]: {"id": pieces[bos], "ids": [bos], "tokens": [pieces[bos]]}},
        },
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}]},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": pieces[fields["tokenizer.ggml.unknown_token_id"]],
            "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
            "ignore_merges": False, "vocab": {piece: i for i, piece in enumerate(pieces)},
            "merges": merge_list(pieces, scores, kinds, tick),
        },
    }


def special_ids(fields):
    names = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}
    return {name: int(fields["tokenizer.ggml." + key]) for name, key in names.items()}


def tokenizer_config(fields, context):
    pieces = fields["tokenizer.ggml.tokens"]
    tokens = {f"{name}_token": pieces[i] for name, i in special_ids(fields).items()}
    return {"tokenizer_class": "GemmaTokenizer", **tokens, "add_bos_token": True, "add_eos_token": False,
            "clean_up_tokenization_spaces": False, "model_max_length": context, "chat_template": CHAT_TEMPLATE}


def model_config(config, context, ids, dtype):
    """config.json, in the names of transformers."""
    kinds = ["sliding_attention" if window else "full_attention" for window in config.windows]
    return {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": config.vocab,
        "hidden_size": config.hidden, "intermediate_size": config.ffn, "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads, "head_dim": config.head_dim,
        "max_position_embeddings": context, "rms_norm_eps": config.epsilon,
        "rope_theta": max(config.rope_bases), "rope_local_base_freq": min(config.rope_bases),
        "sliding_window": max(config.windows), "layer_types": kinds, "query_pre_attn_scalar": config.head_dim,
        "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False, "tie_word_embeddings": True,
        "bos_token_id": ids["bos"], "eos_token_id": ids["eos"], "pad_token_id": ids["pad"],
        "torch_dtype": "bfloat16" if dtype == "bf16" else "float32",
    }


def generation_config(fields):
    """The sampling that Gemma's authors recommend; a turn's end stops as the text's end does."""
    ids = special_ids(fields)
    pieces = fields["tokenizer.ggml.tokens"]
    stops = [ids["eos"], pieces.index("<end_of_turn>")]
    return {"bos_token_id": ids["bos"], "eos_token_id": stops, "pad_token_id": ids["pad"], "do_sample": True,
            "temperature": 1.0, "top_k": 64, "top_p": 0.95}


def write_json(path, value, compact=False):
    # dumps, not dump: only the former is done by the C encoder, which is ten times as fast on the tokenizer.
    path.write_text(json.dumps(value, ensure_ascii=False, indent=None if compact else 2), encoding="utf-8")

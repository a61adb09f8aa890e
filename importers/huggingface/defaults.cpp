// Made by make_defaults.py of transformers 4.57.6.
#include "importers/huggingface/config_fields.h"

namespace plait::huggingface {

const char* const defaults_json = R"json(
{"base": {"add_cross_attention": false, "architectures": null, "bos_token_id": null, "chunk_size_feed_forward": 0,
"cross_attention_hidden_size": null, "decoder_start_token_id": null, "dtype": null, "eos_token_id": null,
"finetuning_task": null, "id2label": null, "is_decoder": false, "is_encoder_decoder": false, "label2id": null,
"model_type": "", "num_labels": null, "output_attentions": false, "output_hidden_states": false, "pad_token_id":
null, "prefix": null, "problem_type": null, "pruned_heads": null, "return_dict": true, "sep_token_id": null,
"task_specific_params": null, "tie_encoder_decoder": false, "tie_word_embeddings": true, "tokenizer_class": null,
"torch_dtype": null, "torchscript": false, "transformers_version": null}, "generation": ["bad_words_ids",
"begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
"exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id", "length_penalty", "max_length",
"min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_scores",
"remove_invalid_values", "repetition_penalty", "return_dict_in_generate", "suppress_tokens", "temperature", "top_k",
"top_p", "typical_p"], "names": {"gpt2": {"hidden_size": "n_embd", "max_position_embeddings": "n_positions",
"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}, "gptj": {"hidden_size": "n_embd",
"max_position_embeddings": "n_positions", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}}, "text":
{"colpali": "gemma", "deepseek_vl": "llama", "deepseek_vl_hybrid": "llama", "gemma3": "gemma3_text", "got_ocr2":
"qwen2", "granitevision": "llama", "idefics2": "mistral", "idefics3": "llama", "internvl": "qwen2", "janus":
"llama", "llava": "llama", "llava_next": "llama", "llava_next_video": "llama", "llava_onevision": "qwen2",
"mistral3": "mistral", "ovis2": "qwen2", "paligemma": "gemma", "perception_lm": "llama", "qwen2_audio": "qwen2",
"shieldgemma2": "gemma3_text", "smolvlm": "llama", "video_llava": "llama", "vipllava": "llama", "voxtral": "llama"},
"types": {"gemma": {"attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 2, "eos_token_id": 1,
"head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": null, "hidden_size": 3072,
"initializer_range": 0.02, "intermediate_size": 24576, "max_position_embeddings": 8192, "num_attention_heads": 16,
"num_hidden_layers": 28, "num_key_value_heads": 16, "pad_token_id": 0, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
"tie_word_embeddings": true, "use_cache": true, "vocab_size": 256000}, "gemma2": {"attention_bias": false,
"attention_dropout": 0.0, "attn_logit_softcapping": 50.0, "bos_token_id": 2, "eos_token_id": 1,
"final_logit_softcapping": 30.0, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
"initializer_range": 0.02, "intermediate_size": 9216, "layer_types": null, "max_position_embeddings": 8192,
"num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "pad_token_id": 0,
"query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096,
"tie_word_embeddings": true, "use_cache": true, "vocab_size": 256000}, "gemma3_text": {"attention_bias": false,
"attention_dropout": 0.0, "attn_logit_softcapping": null, "bos_token_id": 2, "eos_token_id": 1,
"final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
"initializer_range": 0.02, "intermediate_size": 9216, "layer_types": null, "max_position_embeddings": 131072,
"num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "pad_token_id": 0,
"query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_scaling": null,
"rope_theta": 1000000.0, "sliding_window": 4096, "tie_word_embeddings": true, "use_bidirectional_attention": false,
"use_cache": true, "vocab_size": 262208}, "gpt2": {"activation_function": "gelu_new", "attn_pdrop": 0.1,
"bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon":
1e-05, "n_embd": 768, "n_head": 12, "n_inner": null, "n_layer": 12, "n_positions": 1024, "reorder_and_upcast_attn":
false, "resid_pdrop": 0.1, "scale_attn_by_inverse_layer_idx": false, "scale_attn_weights": true,
"summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type":
"cls_index", "summary_use_proj": true, "use_cache": true, "vocab_size": 50257}, "gpt_neox": {"attention_bias": true,
"attention_dropout": 0.0, "bos_token_id": 0, "classifier_dropout": 0.1, "eos_token_id": 2, "hidden_act": "gelu",
"hidden_dropout": 0.0, "hidden_size": 6144, "initializer_range": 0.02, "intermediate_size": 24576, "layer_norm_eps":
1e-05, "max_position_embeddings": 2048, "num_attention_heads": 64, "num_hidden_layers": 44, "rope_scaling": null,
"rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false, "use_cache": true,
"use_parallel_residual": true, "vocab_size": 50432}, "gptj": {"activation_function": "gelu_new", "attn_pdrop": 0.0,
"bos_token_id": 50256, "embd_pdrop": 0.0, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon":
1e-05, "n_embd": 4096, "n_head": 16, "n_inner": null, "n_layer": 28, "n_positions": 2048, "resid_pdrop": 0.0,
"rotary_dim": 64, "tie_word_embeddings": false, "use_cache": true, "vocab_size": 50400}, "llama": {"attention_bias":
false, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "head_dim": null, "hidden_act": "silu",
"hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 2048,
"mlp_bias": false, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": null, "pad_token_id":
null, "pretraining_tp": 1, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000.0,
"tie_word_embeddings": false, "use_cache": true, "vocab_size": 32000}, "mistral": {"attention_dropout": 0.0,
"bos_token_id": 1, "eos_token_id": 2, "head_dim": null, "hidden_act": "silu", "hidden_size": 4096,
"initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072, "num_attention_heads": 32,
"num_hidden_layers": 32, "num_key_value_heads": 8, "pad_token_id": null, "rms_norm_eps": 1e-06, "rope_theta":
10000.0, "sliding_window": 4096, "tie_word_embeddings": false, "use_cache": true, "vocab_size": 32000}, "mixtral":
{"attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "head_dim": null, "hidden_act": "silu",
"hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
"num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
"num_local_experts": 8, "output_router_logits": false, "pad_token_id": null, "rms_norm_eps": 1e-05, "rope_theta":
1000000.0, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "sliding_window": null, "tie_word_embeddings":
false, "use_cache": true, "vocab_size": 32000}, "olmo2": {"attention_bias": false, "attention_dropout": 0.0,
"bos_token_id": null, "eos_token_id": 50279, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
"intermediate_size": 11008, "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 32,
"num_key_value_heads": null, "pad_token_id": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
"tie_word_embeddings": false, "use_cache": true, "vocab_size": 50304}, "phi3": {"attention_dropout": 0.0,
"bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072,
"initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 4096, "num_attention_heads": 32,
"num_hidden_layers": 32, "num_key_value_heads": null, "original_max_position_embeddings": 4096, "pad_token_id":
32000, "partial_rotary_factor": 1.0, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta":
10000.0, "sliding_window": null, "tie_word_embeddings": false, "use_cache": true, "vocab_size": 32064}, "qwen2":
{"attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
"intermediate_size": 22016, "layer_types": null, "max_position_embeddings": 32768, "max_window_layers": 28,
"num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06,
"rope_scaling": null, "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": false, "use_cache":
true, "use_sliding_window": false, "vocab_size": 151936}, "qwen2_moe": {"attention_dropout": 0.0,
"decoder_sparse_step": 1, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size":
5632, "max_position_embeddings": 32768, "max_window_layers": 28, "mlp_only_layers": null, "moe_intermediate_size":
1408, "norm_topk_prob": false, "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
"num_hidden_layers": 24, "num_key_value_heads": 16, "output_router_logits": false, "qkv_bias": true, "rms_norm_eps":
1e-06, "rope_scaling": null, "rope_theta": 10000.0, "router_aux_loss_coef": 0.001,
"shared_expert_intermediate_size": 5632, "sliding_window": 4096, "tie_word_embeddings": false, "use_cache": true,
"use_sliding_window": false, "vocab_size": 151936}, "qwen3": {"attention_bias": false, "attention_dropout": 0.0,
"head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 22016,
"layer_types": null, "max_position_embeddings": 32768, "max_window_layers": 28, "num_attention_heads": 32,
"num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta":
10000.0, "sliding_window": 4096, "tie_word_embeddings": false, "use_cache": true, "use_sliding_window": false,
"vocab_size": 151936}, "qwen3_moe": {"attention_bias": false, "attention_dropout": 0.0, "decoder_sparse_step": 1,
"hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
"max_position_embeddings": 32768, "mlp_only_layers": null, "moe_intermediate_size": 768, "norm_topk_prob": false,
"num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 24,
"num_key_value_heads": 4, "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta":
10000.0, "router_aux_loss_coef": 0.001, "sliding_window": 4096, "tie_word_embeddings": false, "use_cache": true,
"use_sliding_window": false, "vocab_size": 151936}}}
)json";

}  // namespace plait::huggingface

#include "serving/http/wires/known_fields.h"

#include <algorithm>
#include <string>

#include "serving/http/base/failure.h"

namespace plait::http {
namespace {

constexpr auto read = KnownField::Use::read, harmless = KnownField::Use::harmless, refused = KnownField::Use::refused;

constexpr KnownField of_all[] = {
    {"model", read},
    {"stream", read},
    {"stream_options", read},
    {"temperature", read},
    {"top_p", read},
    {"top_k", read},
    {"min_p", read},
    {"repetition_penalty", read},
    {"presence_penalty", read},
    {"frequency_penalty", read},
    {"logit_bias", read},
    {"seed", read},
    {"min_tokens", read},
    {"priority", read},
    {"ignore_eos", read},
    {"stop_token_ids", read},
    {"skip_special_tokens", read},
    {"structured_outputs", read},
    {"guided_json", read},
    {"guided_json_object", read},
    {"guided_regex", read},
    {"guided_grammar", read},
    {"guided_choice", read},
    {"guided_decoding_backend", harmless},
    {"guided_whitespace_pattern", refused, nullptr,
     "blanks are bounded; \"structured_outputs\" may have \"disable_any_whitespace\""},
    {"metadata", harmless},
    {"user", harmless},
    {"service_tier", harmless},
    {"safety_identifier", harmless},
    {"prompt_cache_key", harmless},
    {"prompt_cache_retention", harmless},
    {"cache_salt", harmless},
    {"cache_prompt", harmless},
    {"request_id", harmless},
    {"id_slot", harmless},
    {"timings_per_token", harmless},
    {"return_progress", harmless},
    {"spaces_between_special_tokens", harmless},
    // vLLM's.
    {"use_beam_search", refused},
    {"length_penalty", refused, "1"},
    {"early_stopping", refused},
    {"include_stop_str_in_output", refused},
    {"truncate_prompt_tokens", refused, "-1", "is not supported: a prompt that is too long is an error"},
    {"allowed_token_ids", refused, nullptr, "is not supported: \"structured_outputs\" bounds an answer"},
    {"bad_words", refused, nullptr, "is not supported: \"logit_bias\" bans tokens"},
    {"logits_processors", refused},
    {"detokenize", refused, "true"},
    {"return_tokens_as_token_ids", refused},
    {"return_token_ids", refused},
    {"kv_transfer_params", refused},
    {"vllm_xargs", refused},
    {"mm_processor_kwargs", refused},
    // llama.cpp's.
    {"n_predict", refused, "-1", "is max_tokens here"},
    {"n_probs", refused, "0", "is logprobs here"},
    {"n_keep", refused, "0"},
    {"n_discard", refused, "0"},
    {"min_keep", refused, "0"},
    {"repeat_penalty", refused, "1", "is repetition_penalty here"},
    {"repeat_last_n", harmless},
    {"typical_p", refused, "1"},
    {"tfs_z", refused, "1"},
    {"top_a", refused, "0"},
    {"top_n_sigma", refused, "-1"},
    {"xtc_probability", refused, "0"},
    {"xtc_threshold", harmless},
    {"dry_multiplier", refused, "0"},
    {"dry_base", harmless},
    {"dry_allowed_length", harmless},
    {"dry_penalty_last_n", harmless},
    {"dry_sequence_breakers", harmless},
    {"mirostat", refused, "0"},
    {"mirostat_tau", harmless},
    {"mirostat_eta", harmless},
    {"dynatemp_range", refused, "0"},
    {"dynatemp_exponent", harmless},
    {"samplers", refused},
    {"grammar", refused, nullptr, "is structured_outputs.grammar here, in Lark's syntax"},
    {"json_schema", refused, nullptr, "is response_format, or structured_outputs.json, here"},
    {"t_max_predict_ms", refused, "0"},
    {"post_sampling_probs", refused},
    {"lora", refused, nullptr, "is not supported: adapters are models, by \"model\""},
    // transformers'.
    {"max_new_tokens", refused, nullptr, "is max_tokens here"},
    {"num_return_sequences", refused, "1", "is n here"},
    {"do_sample", refused, nullptr, "is not supported: \"temperature\" 0 is greedy"},
    {"num_beams", refused, "1"},
    {"num_beam_groups", refused, "1"},
    {"diversity_penalty", refused, "0"},
    {"penalty_alpha", refused, "0"},
    {"no_repeat_ngram_size", refused, "0"},
    {"encoder_repetition_penalty", refused, "1"},
    {"bad_words_ids", refused, nullptr, "is not supported: \"logit_bias\" bans tokens"},
    {"epsilon_cutoff", refused, "0"},
    {"eta_cutoff", refused, "0"},
    {"guidance_scale", refused, "1"},
};
constexpr KnownField of_chat[] = {
    {"messages", read},
    {"tools", read},
    {"tool_choice", read},
    {"parallel_tool_calls", read},
    {"response_format", read},
    {"max_completion_tokens", read},
    {"max_tokens", read},
    {"n", read},
    {"stop", read},
    {"logprobs", read},
    {"top_logprobs", read},
    {"prompt_logprobs", read},
    {"chat_template_kwargs", read},
    {"reasoning_effort", read},
    {"store", harmless},
    {"prediction", harmless},
    {"functions", refused, nullptr, "is the form before tools: use \"tools\""},
    {"function_call", refused, "\"none\"", "is the form before tools: use \"tool_choice\""},
    {"audio", refused, nullptr, "audio is not supported"},
    {"modalities", refused, "[\"text\"]", "only text is supported"},
    {"web_search_options", refused},
    {"verbosity", refused, "\"medium\"", "is not supported: ask for it in the conversation"},
    {"best_of", refused, "1"},
    {"echo", refused},
    {"add_generation_prompt", refused, "true", "an answer is always the assistant's next turn"},
    {"continue_final_message", refused, nullptr, "to continue the assistant's turn is not supported"},
    {"add_special_tokens", refused, nullptr, "the chat template writes them"},
    {"documents", refused, nullptr, "is not supported: give them in \"chat_template_kwargs\""},
    {"chat_template", refused, nullptr, "the model's own is used"},
    {"include_reasoning", refused, "true"},
    {"reasoning_format", refused, "\"auto\""},
};
constexpr KnownField of_completions[] = {
    {"prompt", read},
    {"max_tokens", read},
    {"n", read},
    {"best_of", read},
    {"stop", read},
    {"logprobs", read},
    {"echo", read},
    {"prompt_logprobs", read},
    {"response_format", read},
    {"suffix", refused},
    {"add_special_tokens", refused, "true"},
    {"prompt_embeds", refused},
};
constexpr KnownField of_responses[] = {
    {"input", read},
    {"instructions", read},
    {"text", read},
    {"tools", read},
    {"tool_choice", read},
    {"parallel_tool_calls", read},
    {"reasoning", read},
    {"max_output_tokens", read},
    {"chat_template_kwargs", read},
    {"stop", read},
    {"truncation", read},
    {"include", read},
    {"top_logprobs", read},
    {"store", refused, nullptr,
     "answers are not kept: leave it out, or false, and send the conversation with each call"},
    {"previous_response_id", refused, nullptr, "answers are not kept: send the conversation itself in \"input\""},
    {"conversation", refused, nullptr, "conversations are not kept: send it in \"input\""},
    {"background", refused, nullptr, "answers are not kept, so none can be had later"},
    {"prompt", refused, nullptr, "there are no stored prompts: send \"instructions\" and \"input\""},
    {"max_tool_calls", refused, nullptr, "is for tools of the server, which has none"},
    {"context_management", refused},
    {"max_tokens", refused, nullptr, "is max_output_tokens here"},
    {"max_completion_tokens", refused, nullptr, "is max_output_tokens here"},
    {"response_format", refused, nullptr, "is text.format here"},
    {"n", refused, "1", "one answer is given here"},
    {"logprobs", refused, nullptr, "log-probabilities are not supported here; /v1/chat/completions has them"},
    {"moderation", harmless},
};
constexpr KnownField of_messages[] = {
    {"messages", read},
    {"system", read},
    {"max_tokens", read},
    {"stop_sequences", read},
    {"tools", read},
    {"tool_choice", read},
    {"thinking", read},
    {"output_config", read},
    {"chat_template_kwargs", read},
    {"betas", harmless},
    {"cache_control", harmless},
    {"inference_geo", harmless},
    {"speed", harmless},
    {"mcp_servers", refused, nullptr, "is not supported: call them yourself, and give their tools in \"tools\""},
    {"container", refused},
    {"context_management", refused},
    {"output_format", refused, nullptr, "is output_config.format here"},
    {"stop", refused, nullptr, "is stop_sequences here"},
    {"n", refused, "1", "one answer is given here"},
    {"logprobs", refused, nullptr, "log-probabilities are not supported here; /v1/chat/completions has them"},
    {"response_format", refused, nullptr, "is output_config.format here"},
    {"max_completion_tokens", refused, nullptr, "is max_tokens here"},
};
constexpr KnownField of_embeddings[] = {
    {"model", read},
    {"input", read},
    {"encoding_format", read},
    {"dimensions", read},
    {"pooling", read},
    {"user", harmless},
    {"priority", harmless},
    {"truncate_prompt_tokens", refused, "-1", "is not supported: a text that is too long is an error"},
    {"add_special_tokens", refused, "true"},
    {"normalize", refused, "true"},
    {"request_id", harmless},
    {"metadata", harmless},
};

const KnownField* field_of(std::span<const KnownField> table, std::string_view name) {
  const auto found = std::ranges::find_if(table, [&](const KnownField& one) { return name == one.name; });
  return found == table.end() ? nullptr : &*found;
}

bool asks_for_nothing(const Json& value, const KnownField& field) {
  const bool empty = value.is_string() ? value.get_ref<const std::string&>().empty()
                                       : (value.is_array() || value.is_object()) && value.empty();
  const bool off = value == Json(false) && (!field.usual || std::string_view(field.usual) != "true");
  return value.is_null() || off || empty ||
         (field.usual && value == Json::parse(field.usual));
}

}  // namespace

std::span<const KnownField> known_fields() { return of_all; }

std::span<const KnownField> known_fields(Wire wire) {
  switch (wire) {
    case Wire::chat: return of_chat;
    case Wire::completions: return of_completions;
    case Wire::responses: return of_responses;
    case Wire::messages: return of_messages;
    case Wire::embeddings: return of_embeddings;
  }
  return {};
}

void check_fields(const Fields& body, Wire wire) {
  for (const auto& [name, value] : body.object().items()) {
    const KnownField* known = field_of(known_fields(wire), name);
    if (!known && wire != Wire::embeddings) known = field_of(known_fields(), name);
    // One body may be for several wires: the conversation of another is left aside.
    if (!known && (name == "messages" || name == "prompt" || name == "input")) continue;
    if (!known)
      throw HttpError(400, body.path(name.substr(0, 200)) + ": there is no such field", "unknown_parameter",
                      body.path(name.substr(0, 200)));
    if (known->use != refused || asks_for_nothing(value, *known)) continue;
    throw HttpError(400, body.path(name) + ": " + (known->why ? known->why : "is not supported"),
                    "unsupported_parameter", body.path(name));
  }
}

}  // namespace plait::http

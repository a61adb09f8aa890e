// plait generate: streams the continuation of a prompt.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "bindings/cli/common.h"
#include "bindings/cli/input_encoders.h"
#include "bindings/cli/text_tail.h"

namespace plait::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

const char* const finish_names[] = {"none", "eos", "stop", "length", "cancelled", "error"};

struct Output {
  std::vector<int32_t> ids;
  std::string text;
  plait_finish finish = PLAIT_FINISH_NONE;
  Json logprobs = Json::array();
  std::unique_ptr<TextTail> tail;
};

struct Timings {
  Clock::time_point start = Clock::now();
  double load_s = 0, first_token_s = 0;  ///< since the start
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Prints a run's texts: from the generator's events, or for prompts of ids from their tokens.
class Printer {
 public:
  Printer(const GenerateArguments& arguments, const plait_api::Model& model, std::vector<int32_t> prompt,
          bool own_text)
      : arguments_(arguments), model_(model), prompt_(std::move(prompt)), own_text_(own_text) {}

  void take(const plait_event& event) {
    if (event.sample >= static_cast<int32_t>(outputs_.size())) outputs_.resize(static_cast<size_t>(event.sample) + 1);
    Output& output = outputs_[static_cast<size_t>(event.sample)];
    if (event.kind == PLAIT_EVENT_PROMPT) return prompt_logprobs_.push_back(logprob_row(event));
    if (event.token >= 0) output.ids.push_back(event.token);
    if (!std::isnan(event.logprob)) output.logprobs.push_back(logprob_row(event));
    output.finish = event.finish;
    std::string text(event.text, static_cast<size_t>(event.text_length));
    if (own_text_) text += text_of(event, output);
    output.text += text;
    if (!arguments_.json && event.sample == 0) answer(text);
  }

  /// Ends the output; --json prints it here as a whole.
  void finish(const plait_usage& usage, const Json& timings) {
    if (outputs_.empty()) outputs_.resize(1);
    if (!arguments_.json) {
      answer("\n");
      for (size_t i = 1; i < outputs_.size(); ++i)
        answer("\n--- sample " + std::to_string(i + 1) + "\n" + outputs_[i].text + "\n");
      return;
    }
    Json out = row(outputs_[0]);
    if (!prompt_logprobs_.empty()) out["prompt_logprobs"] = prompt_logprobs_;
    out["usage"] = {{"prompt_tokens", usage.prompt_tokens},
                    {"cached_tokens", usage.cached_tokens},
                    {"new_tokens", usage.new_tokens},
                    {"seed", usage.seed}};
    out["timings"] = timings;
    for (size_t i = 0; outputs_.size() > 1 && i < outputs_.size(); ++i) out["samples"].push_back(row(outputs_[i]));
    answer(out.dump() + "\n");
  }

 private:
  static Json logprob_row(const plait_event& event) {
    Json top = Json::array();
    for (int32_t i = 0; i < event.top_count; ++i)
      top.push_back({{"id", event.top_tokens[i]}, {"logprob", event.top_logprobs[i]}});
    return {{"id", event.token}, {"logprob", event.logprob}, {"rank", event.rank}, {"top", top}};
  }

  static Json row(const Output& output) {
    Json out = {{"ids", output.ids}, {"text", output.text}, {"finish_reason", finish_names[output.finish]}};
    if (!output.logprobs.empty()) out["logprobs"] = output.logprobs;
    return out;
  }

  /// The text of a token of a prompt of ids if the model has a tokenizer, otherwise the id.
  std::string text_of(const plait_event& event, Output& output) {
    if (!looked_for_tokenizer_) find_tokenizer();
    std::string out;
    if (tokenizer_) {
      if (!output.tail) output.tail = std::make_unique<TextTail>(*tokenizer_, prompt_);
      if (event.token >= 0 && event.finish != PLAIT_FINISH_EOS) out = output.tail->push(event.token);
      if (event.finish != PLAIT_FINISH_NONE) out += output.tail->finish();
    } else if (event.token >= 0 && !arguments_.json) {
      out = (output.ids.size() > 1 ? "," : "") + std::to_string(event.token);
    }
    return out;
  }

  /// Called after the first token, so that it is not delayed. A tokenizer that does not load is not an error.
  void find_tokenizer() {
    looked_for_tokenizer_ = true;
    try {
      tokenizer_ = std::make_unique<plait_api::Tokenizer>(model_);
    } catch (const plait_api::Failure& failure) {
      const plait_status why = failure.status();
      if (why != PLAIT_NOT_FOUND && why != PLAIT_BAD_MODEL && why != PLAIT_UNSUPPORTED && why != PLAIT_INVALID_ARGUMENT) throw;
      if (why != PLAIT_NOT_FOUND) std::fprintf(stderr, "plait: warning: no text: %s\n", failure.what());
    }
  }

  const GenerateArguments& arguments_;
  const plait_api::Model& model_;
  std::vector<int32_t> prompt_;
  bool own_text_, looked_for_tokenizer_ = false;
  std::unique_ptr<plait_api::Tokenizer> tokenizer_;
  std::vector<Output> outputs_;
  Json prompt_logprobs_ = Json::array();  ///< log-probabilities of its tokens
};

/// Whether an option is an input of an encoder, which the model or a file next to it has.
bool is_input(std::string_view key) {
  return key == "input_features" || key == "input_values" || key == "pixel_values" || key == "image_grid_thw" ||
         key == "video_grid_thw";
}

plait_api::Request submit(const GenerateArguments& arguments, const plait_api::Generator& generator,
                          const std::vector<int32_t>& ids, const plait_api::Options& inputs) {
  if (arguments.has_ids) return generator.submit(ids, inputs);
  std::string prompt = arguments.has_file ? read_all(arguments.file) : arguments.prompt;
  if (!arguments.chat) return generator.submit(prompt, inputs);
  Json messages = Json::array({{{"role", "user"}, {"content", prompt}}});
  return generator.submit_chat(messages.dump(-1, ' ', false, Json::error_handler_t::replace), inputs);
}

Json timings_of(const Timings& timings, const plait_usage& usage) {
  auto rate = [](int64_t tokens, double seconds) {
    return tokens > 0 && seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  double decode_s = usage.first_token_s > 0 ? std::max(0.0, usage.total_s - usage.first_token_s) : 0.0;
  int64_t computed = usage.prompt_tokens - usage.cached_tokens;
  return {{"load_s", timings.load_s},
          {"prefill_s", usage.prefill_s},
          {"decode_s", decode_s},
          {"prefill_tokens_per_s", rate(computed, usage.prefill_s)},
          {"decode_tokens_per_s", rate(usage.new_tokens - 1, decode_s)},
          {"time_to_first_token_s", usage.first_token_s},
          {"start_to_first_token_s", timings.first_token_s},
          {"peak_memory_bytes", peak_memory_bytes()}};
}

void print_summary(const plait_usage& usage, const Json& timings) {
  auto number = [&](const char* key) { return timings.at(key).get<double>(); };
  std::fprintf(stderr,
               "prefill: %lld tokens, %.1f tokens/s; decode: %lld tokens, %.1f tokens/s; time to first token: %.3f s "
               "(%.3f s with loading); peak memory: %.0f MB\n",
               static_cast<long long>(usage.prompt_tokens - usage.cached_tokens), number("prefill_tokens_per_s"),
               static_cast<long long>(usage.new_tokens), number("decode_tokens_per_s"),
               number("time_to_first_token_s"), number("start_to_first_token_s"), number("peak_memory_bytes") / 1e6);
}

void print_profile(const plait_api::Generator& generator) {
  Json rows = Json::parse(generator.profile());
  for (const auto& [op, row] : rows.items()) {
    std::fprintf(stderr, "%10.3f ms %8lld  %s", row.at("seconds").get<double>() * 1e3,
                 static_cast<long long>(row.at("calls").get<int64_t>()), op.c_str());
    const auto waited = row.at("waited").get<double>();
    if (waited > 0) std::fprintf(stderr, " (waited %.3f ms)", waited * 1e3);
    std::fprintf(stderr, "\n");
  }
}

/// Prints the memory of each rank.
void print_ranks(const Json& ranks) {
  for (const Json& row : ranks) {
    std::fprintf(stderr, "rank %d: weights %.1f MB, cache %.1f MB, step %.1f MB\n", row.at("rank").get<int>(),
                 row.at("weight_bytes").get<double>() / 1e6, row.at("cache_bytes").get<double>() / 1e6,
                 row.at("arena_bytes").get<double>() / 1e6);
    if (const auto found = row.find("collectives"); found != row.end())
      std::fprintf(stderr, "collectives: %s\n", found->get<std::string>().c_str());
  }
}

}  // namespace

int generate(const GenerateArguments& arguments) {
  Timings timings;
  std::vector<int32_t> ids = arguments.has_ids ? parse_ids(arguments.ids) : std::vector<int32_t>{};
  if (arguments.has_ids && arguments.chat) throw UsageError("--chat needs a text", "use --prompt or --file");
  OptionSets options = option_sets(arguments, "generator");
  bool stops = false;
  InputFiles inputs;
  for (const std::string& one : arguments.inputs) inputs.push_back(name_and_value(one, "--input"));
  for (const auto& [key, value] : arguments.request) {
    if (is_input(key)) {
      inputs.emplace_back(key, value);
      continue;
    }
    set_option(options.rest, key, value);
    stops = stops || key == "stop";
    if (key == "logprobs" && !arguments.json) throw UsageError("--logprobs are printed with --json", "add --json");
  }
  if (!arguments.adapter.empty()) options.rest.set("adapter", arguments.adapter);
  if (arguments.profile) options.rest.set("profile", "true");
  // Stop strings are searched in the text, so they need the tokenizer from the start.
  bool own_text = arguments.has_ids && !stops;
  if (own_text) options.model.set("tokenizer", "late");

  plait_api::World world = open_world(arguments, options);
  if (is_worker(world)) return world.serve(), exit_ok;
  catch_interrupt();
  options.model.set("background", "true");
  plait_api::Model model(arguments.model, options.model);
  plait_api::Generator generator = make_on<plait_api::Generator>(world, model, options.rest);
  // The tokenizer loads in parallel to the weights, or later for prompts of ids.
  if (!load(generator) || !load(model)) return exit_interrupted;
  print_log(model);
  timings.load_s = seconds_since(timings.start);

  plait_api::Options of_request;
  set_inputs(model, inputs, of_request);
  plait_api::Request request = submit(arguments, generator, ids, of_request);
  Printer printer(arguments, model, ids, own_text);
  plait_event event{};
  bool cancelled = false;
  while (true) {
    bool came = request.next(event, patience_ms);
    if (interrupted() && !cancelled) {
      request.cancel();
      cancelled = true;
    }
    if (!came) continue;
    if (event.kind == PLAIT_EVENT_END) break;
    if (event.kind == PLAIT_EVENT_TOKEN && timings.first_token_s == 0)
      timings.first_token_s = seconds_since(timings.start);
    printer.take(event);
  }
  plait_usage usage = request.usage();
  Json figures = timings_of(timings, usage);
  const Json ranks = Json::parse(generator.ranks());
  if (!arguments.mesh.empty()) figures["ranks"] = ranks;
  printer.finish(usage, figures);
  print_summary(usage, figures);
  if (!arguments.mesh.empty()) print_ranks(ranks);
  if (arguments.profile) print_profile(generator);
  if (!arguments.trace.empty()) write_file(arguments.trace, generator.trace());
  return cancelled ? exit_interrupted : exit_ok;
}

}  // namespace plait::cli

// plait quantize: rounds a model's weights to few bits, and compares the perplexity.
#include <chrono>
#include <cstdio>
#include <future>

#include "bindings/cli/common.h"

namespace plait::cli {
namespace {

/// The log's lines so far, on stderr; progress replaces itself where it is a terminal.
void print_progress(const plait_api::Model& model) {
  while (const std::optional<LogLine> line = next_log(model))
    if (line->level != PLAIT_LOG_DEBUG)
      std::fprintf(stderr, "plait: %s%s\n", line->level == PLAIT_LOG_WARNING ? "warning: " : "", line->text.c_str());
}

/// Writes the rounded model, and its progress on stderr; false if it was interrupted, then nothing is left of it.
bool write_rounded(const QuantizeArguments& arguments, const OptionSets& options) {
  plait_api::Model model(arguments.model, options.model);
  if (!load(model)) return false;
  std::future<void> written = std::async(std::launch::async, [&] { model.write(arguments.out, options.rest); });
  bool stopped = false;
  while (written.wait_for(std::chrono::milliseconds(patience_ms)) != std::future_status::ready) {
    print_progress(model);
    if (!interrupted() || stopped) continue;
    model.cancel();
    stopped = true;
  }
  try {
    written.get();
  } catch (const plait_api::Failure& failure) {
    if (!stopped || failure.status() != PLAIT_CANCELLED) throw;
    return false;
  }
  print_progress(model);
  return true;
}

/// The perplexity of a model on a file, by the options of `plait eval`; nothing if it was interrupted.
std::optional<plait_evaluation> perplexity_of(const std::string& model, const std::string& data,
                                              const QuantizeArguments& arguments) {
  EvalArguments eval;
  static_cast<ModelArguments&>(eval) = arguments;
  eval.model = model;
  eval.options.clear();
  eval.data = data;
  eval.seq = arguments.seq;
  OptionSets options = option_sets(eval, "trainer");
  options.rest.set("cut_long", "true");
  return evaluated(eval, options, {});
}

void print_result(const QuantizeArguments& arguments, const std::string& data,
                  const std::optional<plait_evaluation>& before, const std::optional<plait_evaluation>& after,
                  double seconds) {
  if (arguments.json) {
    nlohmann::ordered_json out = {
        {"out", arguments.out}, {"files", nlohmann::ordered_json::object()}, {"seconds", seconds}};
    for (const auto& [name, bytes] : files_of(arguments.out)) out["files"][name] = bytes;
    if (before && after) {
      out["data"] = data;
      out["targets"] = after->targets;
      out["perplexity_before"] = before->perplexity;
      out["perplexity_after"] = after->perplexity;
    }
    answer(out.dump() + "\n");
    return;
  }
  print_written(arguments.out);
  if (!before || !after) return;
  char text[160];
  std::snprintf(text, sizeof text, "perplexity %.4f before, %.4f after (%+.2f %%), over %lld tokens\n",
                before->perplexity, after->perplexity, 100 * (after->perplexity / before->perplexity - 1),
                static_cast<long long>(after->targets));
  answer(text);
}

}  // namespace

int quantize(const QuantizeArguments& arguments) {
  OptionSets options = option_sets(arguments, "export");
  set_option(options.rest, "bits", "4");
  std::string data = arguments.eval_data;
  for (const auto& [key, value] : arguments.rounding) {
    set_option(options.rest, key, value);
    if (key == "calibration" && data.empty()) data = value;
  }
  options.model.set("background", "true");
  catch_interrupt();
  const auto start = std::chrono::steady_clock::now();
  std::optional<plait_evaluation> before, after;
  if (!data.empty() && !(before = perplexity_of(arguments.model, data, arguments))) return exit_interrupted;
  if (!write_rounded(arguments, options)) return exit_interrupted;
  if (!data.empty() && !(after = perplexity_of(arguments.out, data, arguments))) return exit_interrupted;
  print_result(arguments, data, before, after,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return exit_ok;
}

}  // namespace plait::cli

// plait eval: the loss of a model on a text.
#include <chrono>
#include <nlohmann/json.hpp>

#include "bindings/cli/common.h"
#include "bindings/cli/train_progress.h"

namespace plait::cli {

std::optional<plait_evaluation> evaluated(const EvalArguments& arguments, OptionSets& options,
                                          const plait_api::World& world) {
  options.rest.set("frozen", "true");
  if (arguments.seq > 0) set_option(options.rest, "seq", std::to_string(arguments.seq));
  if (!arguments.checkpoint.empty()) options.rest.set("checkpoint", arguments.checkpoint);
  if (!arguments.adapter.empty()) options.rest.set("adapter", arguments.adapter);
  options.model.set("background", "true");
  plait_api::Model model(arguments.model, options.model);
  auto trainer = make_on<plait_api::Trainer>(world, model, options.rest);
  if (!load(trainer)) return std::nullopt;
  const plait_evaluation found = trainer.evaluate(arguments.data);
  print_log(model);
  return found;
}

int evaluate(const EvalArguments& arguments) {
  OptionSets options = option_sets(arguments, "trainer");
  plait_api::World world = open_world(arguments, options);
  if (is_worker(world)) return world.serve(), exit_ok;
  catch_interrupt();
  const auto start = std::chrono::steady_clock::now();
  const std::optional<plait_evaluation> found = evaluated(arguments, options, world);
  if (!found) return exit_interrupted;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (arguments.json) {
    const nlohmann::ordered_json out = {{"loss", found->loss},
                                        {"perplexity", found->perplexity},
                                        {"targets", found->targets},
                                        {"seconds", seconds},
                                        {"peak_memory_bytes", peak_memory_bytes()}};
    answer(out.dump() + "\n");
  } else {
    char text[128];
    std::snprintf(text, sizeof text, "loss %.6f, perplexity %.4f, over %lld tokens\n", found->loss, found->perplexity,
                  static_cast<long long>(found->targets));
    answer(text);
  }
  return exit_ok;
}

}  // namespace plait::cli

// plait logits: the model's logits after every token of a prompt.
#include "bindings/cli/common.h"

namespace plait::cli {

int logits(const LogitsArguments& arguments) {
  std::vector<int32_t> ids = parse_ids(arguments.ids);
  OptionSets options = option_sets(arguments, "generator");
  options.model.set("tokenizer", "none");
  plait_api::World world = open_world(arguments, options);
  if (is_worker(world)) return world.serve(), exit_ok;
  plait_api::Model model(arguments.model, options.model);
  plait_api::Generator generator = make_on<plait_api::Generator>(world, model, options.rest);
  plait_api::Request request = generator.submit(ids, plait_api::Options().set("kind", "score"));
  request.result().write(arguments.out);
  if (!arguments.trace.empty()) write_file(arguments.trace, generator.trace());
  return exit_ok;
}

}  // namespace plait::cli

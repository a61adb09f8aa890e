// plait export: writes the model as a directory for any ONNX runtime.
#include "bindings/cli/common.h"

namespace plait::cli {

int export_model(const ExportArguments& arguments) {
  OptionSets options = option_sets(arguments, arguments.apart ? "trainer" : "export");
  if (!arguments.checkpoint.empty()) options.rest.set("checkpoint", arguments.checkpoint);
  if (!arguments.adapter.empty()) options.rest.set("adapter", arguments.adapter);
  options.model.set("tokenizer", "none");
  if (arguments.apart) {
    options.rest.set("frozen", "true");
    plait_api::Trainer(plait_api::Model(arguments.model, options.model), options.rest).save_adapter(arguments.out);
    return exit_ok;
  }
  plait_api::Model(arguments.model, options.model).write(arguments.out, options.rest);
  return exit_ok;
}

}  // namespace plait::cli

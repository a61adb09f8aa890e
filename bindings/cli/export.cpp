// plait export: the model as a directory that any ONNX runtime reads.
#include "bindings/cli/common.h"

namespace plait::cli {

int export_model(const ExportArguments& arguments) {
  OptionSets options = option_sets(arguments, "generator");
  options.model.set("tokenizer", "none");
  plait_api::Model(arguments.model, options.model).write(arguments.out, options.rest);
  return exit_ok;
}

}  // namespace plait::cli

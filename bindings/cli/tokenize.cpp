// plait tokenize: converts text from standard input to token ids, or back.
#include "bindings/cli/common.h"

namespace plait::cli {

int tokenize(const TokenizeArguments& arguments) {
  // Only the tokenizer: the model is not read.
  plait_api::Options options;
  if (!arguments.cache_dir.empty()) options.set("cache_dir", arguments.cache_dir);
  plait_api::Tokenizer tokenizer(plait_api::made<plait_tokenizer>(
      [&](plait_tokenizer** out) { return plait_tokenizer_open(arguments.model.c_str(), options.get(), out); }));
  std::string input = read_all("-");
  if (arguments.decode) {
    answer(tokenizer.decode(parse_ids(input), !arguments.plain) + "\n");
    return exit_ok;
  }
  std::string out;
  for (int32_t id : tokenizer.encode(input, !arguments.plain)) out += (out.empty() ? "" : ",") + std::to_string(id);
  answer(out + "\n");
  return exit_ok;
}

}  // namespace plait::cli

// The command line: reads the arguments, runs one command, prints its error.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <system_error>

#include "bindings/cli/arguments.h"
#include "bindings/cli/common.h"
#include "bindings/cli/mistakes.h"

namespace plait::cli {
namespace {

constexpr const char* overview =
    R"(Plait reads ONNX language models, generates from them and fine-tunes them.

Examples:
  plait generate models/gemma-3-270m --prompt "Once upon a time"
  plait generate -m models/gemma-3-270m -p "The old lighthouse keeper" -n 64 --temperature 0.8
  plait train models/gemma-3-270m --data texts.jsonl --lora 16 --out run
  plait inspect models/gemma-3-270m
  echo "Hello" | plait tokenize models/gemma-3-270m

MODEL is a directory with model.onnx (or another .onnx file) and, if available, tokenizer.json, config.json and
generation_config.json; or the path of an .onnx or .gguf file. A model without a tokenizer needs --ids.

`plait COMMAND --help` explains a command.)";

constexpr const char* statuses =
    R"(Exit status: 0 success; 1 the command failed (with a message on stderr); 2 the command line is wrong;
130 interrupted by Ctrl-C. stdout has only the result; statistics and messages go to stderr.

PLAIT_ISA=avx2 (or reference, avx512, avx512_bf16, amx) in the environment limits the instruction sets used.)";

/// Prints one line: control characters become spaces.
int report(int status, std::string message, const std::string& hint) {
  if (!hint.empty()) message += " (hint: " + hint + ")";
  for (char& letter : message) {
    if (static_cast<unsigned char>(letter) < ' ') letter = ' ';
  }
  std::fprintf(stderr, "plait: error: %s\n", message.c_str());
  return status;
}

int run(int count, char** words) {
  CLI::App app(overview, "plait");
  app.footer(statuses);
  app.set_version_flag("--version", std::string("plait ") + plait_version());
  app.require_subcommand(1);
  Arguments arguments;
  add_commands(app, arguments);
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const Mistake mistake = mistake_of(app, error, std::vector<std::string>(words + 1, words + count));
    return report(exit_usage, mistake.message, mistake.hint);
  }
  const CLI::App& command = *app.get_subcommands().at(0);
  const auto failed = [&](int status, const std::string& message, const std::string& hint) {
    return report(status, in_flags(message, command), in_flags(hint, command));
  };
  try {
    return dispatch(app, arguments);
  } catch (const UsageError& error) {
    return failed(exit_usage, error.what(), error.hint());
  } catch (const plait_api::Failure& error) {
    return failed(exit_failure, error.what(), error.hint());
  }
}

}  // namespace
}  // namespace plait::cli

int main(int count, char** words) {
  using namespace plait::cli;
  try {
    return run(count, words);
  } catch (const plait_api::Failure& error) {
    return report(exit_failure, error.what(), error.hint());
  } catch (const std::system_error& error) {
    const bool thread = error.code() == std::errc::resource_unavailable_try_again;
    return report(exit_failure, (thread ? "cannot start a thread: " : "") + std::string(error.what()),
                  thread ? "raise the limit of processes (ulimit -u)" : "");
  } catch (const std::exception& error) {
    return report(exit_failure, error.what(), {});
  }
}

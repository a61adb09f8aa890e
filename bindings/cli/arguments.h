#pragma once
// What the words of the command line mean.
#include <CLI/CLI.hpp>
#include <string>

#include "bindings/cli/commands.h"

namespace plait::cli {

/// Of all commands; those of the one that is given count.
struct Arguments {
  GenerateArguments generate;
  ServeArguments serve;
  ChatArguments chat;
  TrainArguments train;
  EvalArguments eval;
  LogitsArguments logits;
  RunArguments run;
  InspectArguments inspect;
  ExportArguments write, convert;
  QuantizeArguments quantize;
  TokenizeArguments tokenize;
  DoctorArguments doctor;
  PlanArguments plan;
  MachineArguments machine;
  bool json = false;  ///< of ops and options
  std::string shell;  ///< of completion
};

/// Adds all commands; parsing fills `arguments`, which have to live as long as `app`.
void add_commands(CLI::App& app, Arguments& arguments);
/// Runs the command that was given; its exit status.
int dispatch(const CLI::App& app, const Arguments& arguments);

}  // namespace plait::cli

#include "bindings/cli/completion.h"

#include <vector>

#include "bindings/cli/common.h"

namespace plait::cli {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// "--prompt --file ..."
std::string flags_of(const CLI::App& command) {
  std::string out;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) out += (out.empty() ? "--" : " --") + name;
  return out;
}

std::string bash(const CLI::App& app) {
  std::string names, cases;
  for (const CLI::App* command : commands_of(app)) {
    names += (names.empty() ? "" : " ") + command->get_name();
    cases += "    " + command->get_name() + ") words=\"" + flags_of(*command) + "\" ;;\n";
  }
  return "_plait() {\n"
         "  local words=\"" + names + " --help --version\"\n"
         "  [ \"$COMP_CWORD\" -gt 1 ] && case \"${COMP_WORDS[1]}\" in\n" + cases +
         "    *) words= ;;\n"
         "  esac\n"
         "  COMPREPLY=()\n"
         "  case \"$COMP_CWORD:$2\" in\n"
         "    1:* | *:-*) COMPREPLY=($(compgen -W \"$words\" -- \"$2\")) ;;\n"
         "  esac\n"
         "}\n"
         "complete -o default -F _plait plait\n";
}

/// In single quotes, as fish reads them.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char letter : text) {
    if (letter == '\'' || letter == '\\') out += '\\';
    out += letter;
  }
  return out + "'";
}

std::string fish(const CLI::App& app) {
  std::string out;
  for (const CLI::App* command : commands_of(app)) {
    const std::string name = command->get_name();
    out += "complete -c plait -f -n __fish_use_subcommand -a " + name + " -d " + quoted(command->get_description()) + "\n";
    for (const CLI::Option* option : command->get_options())
      for (const std::string& flag : option->get_lnames())
        out += "complete -c plait -n '__fish_seen_subcommand_from " + name + "' -l " + flag +
               (option->get_expected_min() > 0 ? " -r" : "") + " -d " + quoted(option->get_description()) + "\n";
  }
  return out;
}

}  // namespace

std::string completion(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return bash(app);
  if (shell == "zsh") return "autoload -U +X bashcompinit && bashcompinit\n" + bash(app);
  if (shell == "fish") return fish(app);
  throw UsageError("there is no completion for the shell \"" + shell + "\"", "bash, zsh or fish");
}

}  // namespace plait::cli

#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace plait::cli {

/// A script that completes commands and their options in "bash", "zsh" or "fish". Throws UsageError for another shell.
std::string completion(const CLI::App& app, const std::string& shell);

}  // namespace plait::cli

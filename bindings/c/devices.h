#pragma once
// Option device.
#include "bindings/c/options.h"
#include "core/passes/compile.h"

namespace plait::c_api {

/// The path of the plug-in for `device`, "cuda" or "emulated": option cuda_plugin, or next to this library.
std::string cuda_plugin(const Settings& settings, std::string_view device);

/// Sets the device of the compile options, and whose kernels are chosen. Throws Error(invalid_argument) for a text that the option does
/// not have. What is missing on this machine is thrown by CompileOptions::make_device: Error(unsupported).
void choose_device(const Settings& settings, CompileOptions& options);

}  // namespace plait::c_api

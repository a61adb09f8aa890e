#pragma once
// The machines that come with the library, as text.
#include <span>
#include <string_view>

namespace plait {

struct MachineFile {
  std::string_view name;  ///< "a100"
  std::string_view text;
};

/// The files of core/plan/machine/machines, by name.
std::span<const MachineFile> machine_files();

}  // namespace plait

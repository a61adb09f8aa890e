#pragma once
#include <optional>
#include <string_view>

#include "core/schedule/schedule.h"

namespace plait {

/// "2F7", "0F3@1"; nothing if the word is no action.
std::optional<Action> read_action(std::string_view word);

}  // namespace plait

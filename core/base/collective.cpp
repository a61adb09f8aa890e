#include "core/base/collective.h"

#include <iterator>

namespace plait {
namespace {

struct Names {
  std::string_view kind, op;
};
constexpr Names names[] = {{"all_reduce", "AllReduce"},
                           {"reduce_scatter", "ReduceScatter"},
                           {"all_gather", "AllGather"},
                           {"all_to_all", "AllToAll"},
                           {"shard", "Shard"}};

}  // namespace

std::string_view kind_name(CollectiveKind kind) { return names[static_cast<size_t>(kind)].kind; }
std::string_view op_name(CollectiveKind kind) { return names[static_cast<size_t>(kind)].op; }

std::optional<CollectiveKind> collective_kind(std::string_view op) {
  constexpr std::string_view prefix = "plait.";
  if (!op.starts_with(prefix)) return std::nullopt;
  for (size_t k = 0; k < std::size(names); ++k)
    if (op.substr(prefix.size()) == names[k].op) return static_cast<CollectiveKind>(k);
  return std::nullopt;
}

CollectiveWorkspace workspace_of(CollectiveKind kind, bool contiguous) {
  switch (kind) {
    case CollectiveKind::reduce_scatter: return {.inputs = contiguous ? 0 : 1};
    case CollectiveKind::all_gather: return {.outputs = contiguous ? 0 : 1};
    case CollectiveKind::all_to_all: return {.inputs = 2};
    case CollectiveKind::all_reduce:
    case CollectiveKind::shard: break;
  }
  return {};
}

}  // namespace plait

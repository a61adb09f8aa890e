// RegexFullMatch, by Rust's regex crate.
#include "core/text/pattern.h"
#include "kernels/reference/strings/register.h"
#include "kernels/reference/strings/texts.h"

namespace plait::reference {
namespace {

struct Matching {
  explicit Matching(const NodeInfo& node) : pattern(node.attributes.string("pattern", "")) {}
  Pattern pattern;
};

KernelStatus match_strings(const KernelCall& call, const Matching& matching) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  each_text(x, [&](int64_t i) { store_one<int64_t>(y, i, matching.pattern.matches(text_at(call, x, i)) ? 1 : 0); });
  return {};
}

}  // namespace

void add_string_patterns(KernelTable& table) { add<match_strings>(table, "RegexFullMatch", texts_only); }

}  // namespace plait::reference

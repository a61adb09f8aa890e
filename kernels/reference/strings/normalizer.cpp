// StringNormalizer, as two ops: how many texts are no stop words, then these, in a tensor of that size.
#include <set>

#include "core/text/pattern.h"
#include "kernels/reference/strings/register.h"
#include "kernels/reference/strings/texts.h"

namespace plait::reference {
namespace {

struct Normalizing {
  explicit Normalizing(const NodeInfo& node)
      : sensitive(node.attributes.integer("is_case_sensitive", 0) != 0),
        action(node.attributes.string("case_change_action", "NONE")) {
    const Attribute* found = node.attributes.find("stopwords");
    const auto* words = found ? std::get_if<std::vector<std::string>>(found) : nullptr;
    if (!words) return;
    for (const std::string& word : *words) stopwords.insert(sensitive ? word : in_case(word, LetterCase::lower));
  }
  bool keeps(std::string_view text) const {
    return stopwords.empty() || !stopwords.contains(sensitive ? std::string(text) : in_case(text, LetterCase::lower));
  }
  std::string changed(std::string_view text) const {
    if (action == "NONE") return std::string(text);
    return in_case(text, action == "UPPER" ? LetterCase::upper : LetterCase::lower);
  }
  bool sensitive;
  std::string action;
  std::set<std::string, std::less<>> stopwords;
};

/// x -> the number of texts that are left, at least 1.
KernelStatus count_kept(const KernelCall& call, const Normalizing& normalizing) {
  const TensorView& x = call.inputs[0];
  int64_t count = 0;
  each_text(x, [&](int64_t i) { count += normalizing.keeps(text_at(call, x, i)) ? 1 : 0; });
  store_one(call.outputs[0], 0, std::max<int64_t>(count, 1));
  return {};
}

/// x [c] or [1, c], count -> what is left, in the wanted case; one empty text if nothing is.
KernelStatus normalize_strings(const KernelCall& call, const Normalizing& normalizing) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  int64_t count = 0;
  each_text(x, [&](int64_t i) {
    const std::string_view text = text_at(call, x, i);
    if (!normalizing.keeps(text)) return;
    if (count < y.elements()) put_text(call, y, count, normalizing.changed(text));
    ++count;
  });
  if (count > y.elements()) return {KernelCode::bad_value, 1, y.elements()};
  for (; count < y.elements(); ++count) put_bits(y, count, 0);
  return {};
}

}  // namespace

void add_string_normalizer(KernelTable& table) {
  add<count_kept>(table, "plait.StringsKept", texts_only);
  add<normalize_strings>(table, "plait.StringNormalizer", texts_only);
}

}  // namespace plait::reference

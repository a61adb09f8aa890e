// StringSplit, as two ops: how many pieces each text has, then the pieces, in a tensor whose size the first one found.
#include <limits>

#include "kernels/reference/strings/register.h"
#include "kernels/reference/strings/texts.h"

namespace plait::reference {
namespace {

struct Splitting {
  explicit Splitting(const NodeInfo& node)
      : delimiter(node.attributes.string("delimiter", "")),
        most(node.attributes.integer("maxsplit", std::numeric_limits<int64_t>::max())) {}

  /// Calls f(piece) for each piece. Without a delimiter words are pieces: what white space (of ASCII) separates.
  template <class F>
  void each(std::string_view text, F f) const {
    constexpr std::string_view blanks = " \t\n\v\f\r";
    int64_t splits = 0;
    if (delimiter.empty()) {
      for (;;) {
        const size_t begin = text.find_first_not_of(blanks);
        if (begin == std::string_view::npos) return;
        text.remove_prefix(begin);
        const size_t end = splits++ < most ? text.find_first_of(blanks) : std::string_view::npos;
        if (end == std::string_view::npos) {
          // What is left whole keeps the white space within, not that at its end.
          f(text.substr(0, text.find_last_not_of(blanks) + 1));
          return;
        }
        f(text.substr(0, end));
        text.remove_prefix(end);
      }
    }
    for (;;) {
      const size_t end = splits++ < most ? text.find(delimiter) : std::string_view::npos;
      f(text.substr(0, end));
      if (end == std::string_view::npos) return;
      text.remove_prefix(end + delimiter.size());
    }
  }

  std::string delimiter;
  int64_t most;
};

/// x -> how many pieces each text has, and the greatest of these numbers.
KernelStatus count_pieces(const KernelCall& call, const Splitting& splitting) {
  const TensorView &x = call.inputs[0], counts = output(call, 0), most = output(call, 1);
  int64_t greatest = 0;
  for (int64_t i = 0; i < x.elements(); ++i) {
    int64_t count = 0;
    splitting.each(text_at(call, x, i), [&](std::string_view) { ++count; });
    if (counts.present()) store_one(counts, i, count);
    greatest = std::max(greatest, count);
  }
  if (most.present()) store_one(most, 0, greatest);
  return {};
}

/// x, most -> pieces [.., most]; empty texts after the last one.
KernelStatus split_strings(const KernelCall& call, const Splitting& splitting) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const int64_t most = y.shape.back(1);
  for (int64_t i = 0; i < x.elements(); ++i) {
    int64_t count = 0;
    splitting.each(text_at(call, x, i), [&](std::string_view piece) {
      if (count < most) put_text(call, y, i * most + count, piece);
      ++count;
    });
    if (count > most) return {KernelCode::bad_value, 1, most};
    for (; count < most; ++count) put_bits(y, i * most + count, 0);
  }
  return {};
}

}  // namespace

void add_string_splits(KernelTable& table) {
  add<count_pieces>(table, "plait.StringPieces", texts_only);
  add<split_strings>(table, "plait.StringSplit", texts_only);
}

}  // namespace plait::reference

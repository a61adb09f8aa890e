// TfIdfVectorizer.
#include <map>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/signal/register.h"

namespace plait::reference {
namespace {

struct NgramAttributes {
  explicit NgramAttributes(const NodeInfo& node)
      : least(node.attributes.integer("min_gram_length")),
        most(node.attributes.integer("max_gram_length")),
        skips(node.attributes.integer("max_skip_count")),
        mode(node.attributes.string("mode", "TF")),
        indexes(node.attributes.integers("ngram_indexes")) {
    const auto fail = [](std::string_view what) { return Error(Code::bad_model, cat("TfIdfVectorizer: ", what)); };
    const std::vector<int64_t> counts = node.attributes.integers("ngram_counts"), pool = pool_of(node);
    if (pool.empty())
      throw fail(cat("there is no pool of ", node.inputs[0].dtype == DType::string ? "strings" : "integers"));
    if (mode != "TF" && mode != "IDF" && mode != "TFIDF") throw fail(cat("mode is ", quote(mode)));
    if (least < 1 || most < least || most > 1024 || skips < 0) throw fail("the lengths of n-grams are out of range");
    if (const Attribute* found = node.attributes.find("weights")) {
      const auto* list = std::get_if<std::vector<double>>(found);
      if (!list) throw fail("weights are no floats");
      weights = *list;
    }
    for (size_t n = 1; n <= counts.size(); ++n) {
      const int64_t begin = counts[n - 1], end = n < counts.size() ? counts[n] : static_cast<int64_t>(pool.size());
      if (begin < 0 || end < begin || end > static_cast<int64_t>(pool.size()) ||
          (end - begin) % static_cast<int64_t>(n))
        throw fail("ngram_counts do not fit the pool");
      for (auto at = pool.begin() + begin; at != pool.begin() + end; at += static_cast<std::ptrdiff_t>(n)) {
        const size_t number = grams.size();
        grams.emplace(std::vector<int64_t>(at, at + static_cast<std::ptrdiff_t>(n)), number);
      }
    }
    if (indexes.size() < grams.size()) throw fail("there are fewer ngram_indexes than n-grams");
    if (!weights.empty() && weights.size() != indexes.size())
      throw fail("weights and ngram_indexes differ in number");
  }

  /// Strings are numbered as they occur in the pool.
  std::vector<int64_t> pool_of(const NodeInfo& node) {
    if (node.inputs[0].dtype != DType::string) return node.attributes.integers("pool_int64s");
    const Attribute* found = node.attributes.find("pool_strings");
    const auto* list = found ? std::get_if<std::vector<std::string>>(found) : nullptr;
    std::vector<int64_t> out;
    for (const std::string& text : list ? *list : std::vector<std::string>{})
      out.push_back(words.emplace(text, std::ssize(words)).first->second);
    return out;
  }
  /// The elements of x; -1 for a string that the pool does not have.
  std::vector<int64_t> values(const KernelCall& call) const {
    const TensorView& x = call.inputs[0];
    if (x.dtype != DType::string) return to_ints(x);
    std::vector<int64_t> out;
    for (const uint64_t number : load_all<uint64_t>(x)) {
      const auto found = words.find(call.strings->text(number));
      out.push_back(found == words.end() ? -1 : found->second);
    }
    return out;
  }

  int64_t least, most, skips;
  std::string mode;
  std::map<std::string, int64_t, std::less<>> words;  ///< of a pool of strings
  std::vector<int64_t> indexes;                  ///< of each n-gram: its element of the result
  std::vector<double> weights;                   ///< empty: ones
  std::map<std::vector<int64_t>, size_t> grams;  ///< n-grams of the pool, numbered
};

/// x [c] or [n, c] -> counts, weights where an n-gram occurs, or both multiplied. Elements of an n-gram are neighbours, or equally
/// far apart with at most max_skip_count between two.
KernelStatus ngrams(const KernelCall& call, const NgramAttributes& a) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const int64_t columns = x.shape.back(1), made = y.shape.back(1), rows = x.shape.rank() == 2 ? x.shape[0] : 1;
  const std::vector<int64_t> values = a.values(call);
  std::vector<double> result(static_cast<size_t>(y.elements()));
  std::vector<int64_t> gram;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t n = a.least; n <= a.most; ++n)
      for (int64_t step = 1; step <= (n == 1 ? 1 : std::min(a.skips, columns) + 1); ++step)
        for (int64_t i = 0; (n - 1) <= (columns - 1 - i) / step && i < columns; ++i) {
          gram.clear();
          for (int64_t k = 0; k < n; ++k) gram.push_back(values[static_cast<size_t>(row * columns + i + k * step)]);
          const auto found = a.grams.find(gram);
          if (found == a.grams.end()) continue;
          double& to = result[static_cast<size_t>(row * made + a.indexes[found->second])];
          const double weight = a.weights.empty() ? 1 : a.weights[found->second];
          if (a.mode == "IDF") to = weight;
          else to += a.mode == "TF" ? 1 : weight;
        }
  store_all(y, result);
  return {};
}

}  // namespace

void add_ngrams(KernelTable& table) { add<ngrams>(table, "TfIdfVectorizer", Domain{"integers, string", [](const NodeInfo& node) {
                                         return first_is(node, [](DType dtype) { return is_integer(dtype) || dtype == DType::string; });
                                       }}); }

}  // namespace plait::reference

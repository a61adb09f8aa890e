#include "core/ops/relayout.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

/// Factors of the dims on both sides, found by walking both from the left. The smaller of two sizes that divide is a
/// factor; the walk continues with the quotient. Correct for any sizes: row-major indices depend only on products.
class Matcher {
 public:
  Matcher(Dims in, Dims out) : in_(std::move(in)), out_(std::move(out)), left_(in_.size()), right_(out_.size()) {}

  void run() {
    size_t i = 0, j = 0;
    while (step(i, j)) {}
    // If the sizes do not divide, equal trailing dims may still match; those in between are whole.
    size_t i_end = in_.size(), j_end = out_.size();
    std::vector<std::string> tail;
    while (i_end > i && j_end > j && in_[i_end - 1] == out_[j_end - 1]) {
      --i_end, --j_end;
      put(left_[i_end], in_[i_end], next());
      right_[j_end] = left_[i_end];
    }
    for (; i < i_end; ++i) put(left_[i], in_[i], whole(next()));
    for (; j < j_end; ++j) put(right_[j], out_[j], whole(next()));
  }

  std::string left() const { return side(left_); }
  std::string right() const { return side(right_); }
  std::string next() { return factor_name(names_++); }

 private:
  static void put(DimNames& dim, const Dim& size, std::string name) {
    if (!is_one(size)) dim.push_back(std::move(name));
  }

  /// Matches the next dims i.. and j.. of equal product; false (and unchanged) if none are left, or none divide.
  bool step(size_t& i, size_t& j) {
    if (i < in_.size() && is_one(in_[i])) return ++i, true;
    if (j < out_.size() && is_one(out_[j])) return ++j, true;
    if (i >= in_.size() || j >= out_.size()) return false;
    const size_t names = names_;
    std::vector<DimNames> left = left_, right = right_;
    size_t at = i, to = j;
    for (Dim a = in_[i], b = out_[j]; a != b;) {
      std::optional<Dim> rest;
      size_t& moving = (rest = quotient(a, b)) ? to : at;
      if (!rest) rest = quotient(b, a);
      if (rest) share(at, to);
      const Dims& dims = &moving == &to ? out_ : in_;
      do ++moving;
      while (moving < dims.size() && is_one(dims[moving]));
      if (!rest || moving == dims.size()) {
        left_ = std::move(left), right_ = std::move(right), names_ = names;
        return false;
      }
      (&moving == &to ? a : b) = *rest;
      (&moving == &to ? b : a) = dims[moving];
    }
    share(at, to);
    i = at + 1, j = to + 1;
    return true;
  }

  static std::optional<Dim> quotient(const Dim& a, const Dim& b) {
    if (a == Dim(0) || b == Dim(0)) return std::nullopt;
    return a.divided(b);
  }

  void share(size_t a, size_t b) {
    std::string name = next();
    left_[a].push_back(name);
    right_[b].push_back(name);
  }

  static std::string side(const std::vector<DimNames>& dims) {
    DimNames out;
    for (const DimNames& dim : dims)
      out.push_back(dim.empty() ? "1" : dim.size() == 1 ? dim[0] : cat("(", spaced(dim), ")"));
    return spaced(out);
  }

  Dims in_, out_;
  std::vector<DimNames> left_, right_;
  size_t names_ = 0;
};

}  // namespace

std::string relayout_rule(const Node&, const std::vector<Type>& in, const std::vector<Type>& out) {
  if (!out[0].dims) return "";
  Matcher matcher(*in[0].dims, *out[0].dims);
  matcher.run();
  std::vector<std::string> operands{"*" + matcher.left()};
  for (size_t i = 1; i < in.size(); ++i) {
    DimNames names;
    for (size_t axis = 0; in[i].dims && axis < in[i].dims->size(); ++axis) names.push_back(whole(matcher.next()));
    operands.push_back(spaced(names));
  }
  return rule_text(operands, {matcher.right()});
}

}  // namespace plait

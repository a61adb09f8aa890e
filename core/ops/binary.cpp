// Elementwise ops of two or more operands, with broadcasting.
#include "core/ops/families.h"
#include "core/ops/base/rows.h"
#include "core/ops/base/shape_arithmetic.h"

namespace plait {

namespace {

std::optional<Dim> sum(const Dim& a, const Dim& b) { return a.plus(b); }
std::optional<Dim> difference(const Dim& a, const Dim& b) { return a.plus(b * Dim(-1)); }
std::optional<Dim> times(const Dim& a, const Dim& b) { return a.times(b); }

std::optional<Dim> as_dim(std::optional<bool> answer) {
  if (!answer) return std::nullopt;
  return Dim(*answer);
}
std::optional<bool> inverted(std::optional<bool> answer) {
  if (answer) answer = !*answer;
  return answer;
}
std::optional<Dim> equal(const Dim& a, const Dim& b) { return as_dim(known_equal(a, b)); }
std::optional<Dim> less(const Dim& a, const Dim& b) { return as_dim(known_less(a, b)); }
std::optional<Dim> greater(const Dim& a, const Dim& b) { return as_dim(known_less(b, a)); }
std::optional<Dim> at_least(const Dim& a, const Dim& b) { return as_dim(inverted(known_less(a, b))); }
std::optional<Dim> at_most(const Dim& a, const Dim& b) { return as_dim(inverted(known_less(b, a))); }

std::optional<Dim> both(const Dim& a, const Dim& b) {
  std::optional<bool> no_a = known_equal(a, Dim(0)), no_b = known_equal(b, Dim(0));
  if (no_a == true || no_b == true) return Dim(0);
  if (!no_a || !no_b) return std::nullopt;
  return Dim(1);
}
std::optional<Dim> either(const Dim& a, const Dim& b) {
  std::optional<bool> no_a = known_equal(a, Dim(0)), no_b = known_equal(b, Dim(0));
  if (no_a == false || no_b == false) return Dim(1);
  if (!no_a || !no_b) return std::nullopt;
  return Dim(0);
}
std::optional<Dim> one_of(const Dim& a, const Dim& b) { return as_dim(inverted(known_equal(a, b))); }

/// Integer powers of small exponents: head sizes squared and the like.
std::optional<Dim> power(const Dim& a, const Dim& b) {
  if (!b.is_constant() || b.constant() < 0 || b.constant() > 4) return std::nullopt;
  std::optional<Dim> out(1);
  for (int64_t i = 0; out && i < b.constant(); ++i) out = out->times(a);
  return out;
}

template <Binary function>
void infer_folded(InferContext& context) {
  context.set_type(0, context.dtype(0));
  fold_contents<function>(context);
}
/// A number that the size does not reach is no limit.
void infer_min(InferContext& context) {
  context.set_type(0, context.dtype(0));
  fold_contents(context, [&](const Dim& a, const Dim& b) {
    std::optional<Dim> known = known_min(a, b);
    auto below = [&](const Dim& size, const Dim& limit) {
      const std::optional<int64_t> most = limit.is_constant() ? context.most(size) : std::nullopt;
      return most && *most <= limit.constant();
    };
    if (!known && below(a, b)) known = a;
    if (!known && below(b, a)) known = b;
    return known;
  });
}
template <Binary function>
void infer_truth(InferContext& context) {
  context.set_type(0, DType::boolean);
  fold_contents<function>(context);
}
void infer_remainder(InferContext& context) {
  context.set_type(0, context.dtype(0));
  if (context.attributes().integer("fmod", 0) == 0) fold_contents<known_remainder>(context);
}

/// Where: elements with a known condition, or equal choices.
void infer_where(InferContext& context) {
  context.set_type(0, context.dtype(1));
  std::optional<size_t> length = common_length(context);
  if (!length) return;
  Dims out;
  for (size_t i = 0; i < *length; ++i) {
    const Dim& condition = element(*context.contents(0), i);
    const Dim& yes = element(*context.contents(1), i);
    const Dim& no = element(*context.contents(2), i);
    std::optional<bool> zero = known_equal(condition, Dim(0));
    if (!zero && yes != no) return;
    out.push_back(zero == true ? no : yes);
  }
  context.set_contents(0, std::move(out));
}

struct BinaryRow {
  const char* name;
  const char* dims;
  void (*infer)(InferContext&);
  int since;
  const char* doc;
  std::vector<AttributeRow> attributes = {};
};

constexpr const char* of_two = "..., ... -> ...";

std::vector<BinaryRow> binary_arithmetic_rows() {
  return {
      {"Add", "+..., +... -> ...", infer_folded<sum>, 14, "c = a + b"},
      {"Sub", "+..., +... -> ...", infer_folded<difference>, 14, "c = a - b"},
      {"Mul", "*..., *... -> ...", infer_folded<times>, 14, "c = a b"},
      {"Mod",
       of_two,
       infer_remainder,
       13,
       "c = a modulo b: the sign of b, with fmod that of a",
       {{"fmod", "int", "0"}}},
      {"Pow", of_two, infer_folded<power>, 15, "c = a^b, of a's dtype"},
      {"PRelu", of_two, nullptr, 16, "c = a where a >= 0, a b elsewhere"},
      {"BitwiseAnd", of_two, nullptr, 18, "c = a and b, bit by bit"},
      {"BitwiseOr", of_two, nullptr, 18, "c = a or b, bit by bit"},
      {"BitwiseXor", of_two, nullptr, 18, "c = a exclusive or b, bit by bit"},
      {"BitShift", of_two, nullptr, 11, "c = a shifted by b bits", {{"direction", "string", "required"}}},
  };
}

std::vector<BinaryRow> truth_rows() {
  return {
      {"Equal", of_two, infer_truth<equal>, 19, "c = whether a = b"},
      {"Less", of_two, infer_truth<less>, 13, "c = whether a < b"},
      {"LessOrEqual", of_two, infer_truth<at_most>, 16, "c = whether a <= b"},
      {"Greater", of_two, infer_truth<greater>, 13, "c = whether a > b"},
      {"GreaterOrEqual", of_two, infer_truth<at_least>, 16, "c = whether a >= b"},
      {"And", of_two, infer_truth<both>, 7, "c = a and b"},
      {"Or", of_two, infer_truth<either>, 7, "c = a or b"},
      {"Xor", of_two, infer_truth<one_of>, 7, "c = either a or b"},
  };
}

std::vector<BinaryRow> variadic_rows() {
  return {
      {"Sum", "+..., +... -> ...", infer_folded<sum>, 13, "the sum of all"},
      {"Mean", "+..., +... -> ...", nullptr, 13, "the mean of all"},
      {"Min", of_two, infer_min, 13, "the least of all"},
      {"Max", of_two, infer_folded<known_max>, 13, "the greatest of all"},
  };
}

void add_rows(OpSet& ops, const std::vector<BinaryRow>& rows, const char* inputs) {
  for (const BinaryRow& row : rows)
    ops.add({.name = row.name, .inputs = inputs, .outputs = "c", .attributes = row.attributes, .dims = row.dims,
             .infer = row.infer, .doc = row.doc, .since = row.since});
}

}  // namespace

void register_binary(OpSet& ops) {
  add_rows(ops, binary_arithmetic_rows(), "a b");
  ops.add({.name = "Div", .inputs = "a b", .outputs = "c", .dims = "*..., ... -> ...",
           .dims_of = [](const Node&, const std::vector<Type>& in, const std::vector<Type>&) -> std::string {
             return is_float(in[0].dtype) ? "*..., ... -> ..." : of_two;  // integers are rounded
           },
           .infer = infer_folded<known_quotient>, .doc = "c = a / b, integers towards zero", .since = 14});
  add_rows(ops, truth_rows(), "a b");
  add_rows(ops, variadic_rows(), "data...");
  ops.add({.name = "Where", .inputs = "condition x y", .outputs = "output", .dims = "..., +..., +... -> ...",
           .infer = infer_where, .doc = "x where the condition holds, y elsewhere", .since = 16});
}

}  // namespace plait

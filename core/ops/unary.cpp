// Elementwise ops of one operand. Linear ones ("*") commute with partial sums.
#include "core/ops/families.h"
#include "core/ops/base/rows.h"
#include "core/ops/base/shape_arithmetic.h"

namespace plait {

namespace {

constexpr const char* linear = "*... -> ...";
constexpr const char* plain = "... -> ...";

std::optional<Dim> negated(const Dim& a) { return Dim(0) - a; }
std::optional<Dim> absolute(const Dim& a) { return known_max(a, Dim(0) - a); }
std::optional<Dim> sign(const Dim& a) {
  std::optional<bool> positive = known_less(Dim(0), a), negative = known_less(a, Dim(0));
  if (!positive || !negative) return std::nullopt;
  return Dim(*positive ? 1 : *negative ? -1 : 0);
}
std::optional<Dim> logical_not(const Dim& a) {
  std::optional<bool> zero = known_equal(a, Dim(0));
  if (!zero) return std::nullopt;
  return Dim(*zero);
}

template <Unary function>
void infer_mapped(InferContext& context) {
  context.set_type(0, context.dtype(0));
  map_contents<function>(context);
}

struct UnaryRow {
  const char* name;
  const char* dims;
  int since;
  const char* doc;
  std::vector<AttributeRow> attributes = {};
  void (*infer)(InferContext&) = nullptr;
};

std::vector<UnaryRow> arithmetic_rows() {
  return {
      {"Neg", linear, 13, "y = -x", {}, infer_mapped<negated>},
      {"Abs", plain, 13, "y = |x|", {}, infer_mapped<absolute>},
      {"Sign", plain, 13, "y = -1, 0 or 1", {}, infer_mapped<sign>},
      {"Reciprocal", plain, 13, "y = 1 / x"},
      {"Sqrt", plain, 13, "y = square root of x"},
      {"Exp", plain, 13, "y = e^x"},
      {"Log", plain, 13, "y = natural logarithm of x"},
      {"Erf", plain, 13, "y = error function of x"},
      {"Floor", plain, 13, "y = the largest integer that is at most x"},
      {"Ceil", plain, 13, "y = the smallest integer that is at least x"},
      {"Round", plain, 22, "y = x rounded to the nearest integer, halves to even"},
      {"Not", plain, 1, "y = not x", {}, infer_mapped<logical_not>},
      {"BitwiseNot", plain, 18, "y = x with all bits flipped"},
      {"IsNaN", plain, 20, "y = whether x is NaN", {}, infer_dtype<DType::boolean>},
      {"IsInf", plain, 20, "y = whether x is infinite",
       {{"detect_negative", "int", "1"}, {"detect_positive", "int", "1"}}, infer_dtype<DType::boolean>},
  };
}

std::vector<UnaryRow> trigonometric_rows() {
  return {
      {"Sin", plain, 22, "y = sin x"},       {"Cos", plain, 22, "y = cos x"},
      {"Tan", plain, 22, "y = tan x"},       {"Asin", plain, 22, "y = arcsin x"},
      {"Acos", plain, 22, "y = arccos x"},   {"Atan", plain, 22, "y = arctan x"},
      {"Sinh", plain, 22, "y = sinh x"},     {"Cosh", plain, 22, "y = cosh x"},
      {"Tanh", plain, 13, "y = tanh x"},     {"Asinh", plain, 22, "y = arsinh x"},
      {"Acosh", plain, 22, "y = arcosh x"},  {"Atanh", plain, 22, "y = artanh x"},
  };
}

std::vector<UnaryRow> activation_rows() {
  return {
      {"Relu", plain, 14, "y = max(x, 0)"},
      {"Sigmoid", plain, 13, "y = 1 / (1 + e^-x)"},
      {"Softplus", plain, 22, "y = log(1 + e^x)"},
      {"Softsign", plain, 22, "y = x / (1 + |x|)"},
      {"Mish", plain, 22, "y = x tanh(softplus(x))"},
      {"HardSwish", plain, 22, "y = x max(0, min(1, x / 6 + 1/2))"},
      {"Swish", plain, 24, "y = x sigmoid(alpha x)", {{"alpha", "float", "1"}}},
      {"Gelu", plain, 20, "y = x Phi(x), exact or by tanh", {{"approximate", "string", "none"}}},
      {"LeakyRelu", plain, 16, "y = x where x >= 0, alpha x elsewhere", {{"alpha", "float", "0.01"}}},
      {"Elu", plain, 22, "y = x where x > 0, alpha (e^x - 1) elsewhere", {{"alpha", "float", "1"}}},
      {"Celu", plain, 12, "y = max(0, x) + min(0, alpha (e^(x / alpha) - 1))", {{"alpha", "float", "1"}}},
      {"Selu", plain, 22, "y = gamma x where x > 0, gamma (alpha e^x - alpha) elsewhere",
       {{"alpha", "float", "1.67326319217681884765625"}, {"gamma", "float", "1.05070102214813232421875"}}},
      {"ThresholdedRelu", plain, 22, "y = x where x > alpha, 0 elsewhere", {{"alpha", "float", "1"}}},
      {"Shrink", plain, 9, "y = x + bias where x < -lambd, x - bias where x > lambd, 0 between",
       {{"bias", "float", "0"}, {"lambd", "float", "0.5"}}},
      {"HardSigmoid", plain, 22, "y = max(0, min(1, alpha x + beta))",
       {{"alpha", "float", "0.2"}, {"beta", "float", "0.5"}}},
  };
}

}  // namespace

void register_unary(OpSet& ops) {
  for (const auto& rows : {arithmetic_rows(), trigonometric_rows(), activation_rows()})
    for (const UnaryRow& row : rows)
      ops.add({.name = row.name, .inputs = "x", .outputs = "y", .attributes = row.attributes, .dims = row.dims,
               .infer = row.infer, .doc = row.doc, .since = row.since});
  ops.add({.name = "Clip", .inputs = "x min? max?", .outputs = "y", .dims = "..., , -> ...",
           .doc = "y = min(max(x, min), max)", .since = 13});
}

}  // namespace plait

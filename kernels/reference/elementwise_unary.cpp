// Ops of one array, element by element: out[i] = f(in[i]).
#include <algorithm>
#include <limits>
#include <string>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/base/activations.h"
#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

constexpr int64_t unary_block = 1024;

/// f maps N to N (or to bool, as int64_t). Safe in place where both dtypes have one size.
template <class N, class F>
KernelStatus each(const KernelCall& call, F f) {
  using R = decltype(f(N{}));
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  N values[unary_block];
  R results[unary_block];
  for (int64_t begin = 0, count = in.elements(); begin < count; begin += unary_block) {
    int64_t n = std::min(unary_block, count - begin);
    load(in, begin, n, values);
    for (int64_t i = 0; i < n; ++i) results[i] = f(values[i]);
    store(out, begin, n, results);
  }
  return {};
}

template <double (*f)(double)>
KernelStatus of_reals(const KernelCall& call) {
  return each<double>(call, f);
}

/// F is a struct made of the node's attributes, with double operator()(double) const.
template <class F>
KernelStatus of_reals_with(const KernelCall& call, const F& f) {
  return each<double>(call, f);
}

/// F::apply is a template over the number types.
template <class F>
KernelStatus of_numbers(const KernelCall& call) {
  return with_number(call.inputs[0].dtype,
                     [&]<class N>(N) { return each<N>(call, [](N x) { return F::apply(x); }); });
}

struct Abs {
  template <class N>
  static N apply(N x) {
    if constexpr (std::is_same_v<N, double>) return std::fabs(x);
    else if constexpr (std::is_same_v<N, int64_t>) return x < 0 ? static_cast<N>(0u - static_cast<uint64_t>(x)) : x;
    else return x;
  }
};
struct Neg {
  template <class N>
  static N apply(N x) {
    if constexpr (std::is_same_v<N, double>) return -x;
    else return static_cast<N>(0u - static_cast<uint64_t>(x));
  }
};
struct Sign {
  template <class N>
  static N apply(N x) {
    if (x != x) return x;  // NaN
    return static_cast<N>((x > 0) - (x < 0));
  }
};
struct Relu {
  template <class N>
  static N apply(N x) { return x < 0 ? N{0} : x; }  // NaN stays
};
struct BitwiseNot {
  template <class N>
  static N apply(N x) {
    if constexpr (std::is_same_v<N, double>) return x;  // not reached: integers only
    else return ~x;
  }
};

double reciprocal(double x) { return 1 / x; }
double softsign(double x) { return x / (1 + std::fabs(x)); }
double hard_swish(double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double mish(double x) { return x * std::tanh(softplus(x)); }

struct Gelu {
  explicit Gelu(const NodeInfo& node) {
    std::string kind = node.attributes.string("approximate", "none");
    if (kind != "none" && kind != "tanh")
      throw Error(Code::bad_model, cat("Gelu: approximate is ", quote(kind), ", expected \"none\" or \"tanh\""));
    approximate = kind == "tanh";
  }
  double operator()(double x) const { return approximate ? gelu_tanh(x) : gelu(x); }
  bool approximate;
};
struct LeakyRelu {
  explicit LeakyRelu(const NodeInfo& node) : alpha(node.attributes.real("alpha", 0.01)) {}
  double operator()(double x) const { return x < 0 ? alpha * x : x; }
  double alpha;
};
struct Elu {
  explicit Elu(const NodeInfo& node) : alpha(node.attributes.real("alpha", 1)) {}
  double operator()(double x) const { return x < 0 ? alpha * std::expm1(x) : x; }
  double alpha;
};
struct Celu {
  explicit Celu(const NodeInfo& node) : alpha(node.attributes.real("alpha", 1)) {}
  double operator()(double x) const { return std::max(x, 0.0) + std::min(0.0, alpha * std::expm1(x / alpha)); }
  double alpha;
};
struct Selu {
  explicit Selu(const NodeInfo& node)
      : alpha(node.attributes.real("alpha", 1.67326319217681884765625)),
        gamma(node.attributes.real("gamma", 1.05070102214813232421875)) {}
  double operator()(double x) const { return gamma * (x > 0 ? x : alpha * std::expm1(x)); }
  double alpha, gamma;
};
struct ThresholdedRelu {
  explicit ThresholdedRelu(const NodeInfo& node) : alpha(node.attributes.real("alpha", 1)) {}
  double operator()(double x) const { return x > alpha ? x : 0; }
  double alpha;
};
struct HardSigmoid {
  explicit HardSigmoid(const NodeInfo& node)
      : alpha(node.attributes.real("alpha", 0.2)), beta(node.attributes.real("beta", 0.5)) {}
  double operator()(double x) const { return std::clamp(alpha * x + beta, 0.0, 1.0); }
  double alpha, beta;
};
struct Shrink {
  explicit Shrink(const NodeInfo& node)
      : lambda(node.attributes.real("lambd", 0.5)), bias(node.attributes.real("bias", 0)) {}
  double operator()(double x) const { return x < -lambda ? x + bias : x > lambda ? x - bias : 0; }
  double lambda, bias;
};
struct Swish {
  explicit Swish(const NodeInfo& node)  // com.microsoft.QuickGelu is the same with another default
      : alpha(node.attributes.real("alpha", node.op == "Swish" ? 1 : 1.702)) {}
  double operator()(double x) const { return x * sigmoid(alpha * x); }
  double alpha;
};
struct IsInf {
  explicit IsInf(const NodeInfo& node)
      : negative(node.attributes.integer("detect_negative", 1) != 0),
        positive(node.attributes.integer("detect_positive", 1) != 0) {}
  bool negative, positive;
};

KernelStatus is_inf(const KernelCall& call, const IsInf& which) {
  return each<double>(
      call, [&](double x) -> int64_t { return std::isinf(x) && (x > 0 ? which.positive : which.negative); });
}
KernelStatus is_nan(const KernelCall& call) {
  return each<double>(call, [](double x) -> int64_t { return std::isnan(x); });
}
KernelStatus logical_not(const KernelCall& call) {
  return each<int64_t>(call, [](int64_t x) -> int64_t { return x == 0; });
}

/// Clip: x, min?, max? (scalars). Where min > max the result is max.
KernelStatus clip(const KernelCall& call) {
  return with_number(call.inputs[0].dtype, [&]<class N>(N) {
    N low = std::numeric_limits<N>::lowest(), high = std::numeric_limits<N>::max();
    if constexpr (std::is_same_v<N, double>) low = -INFINITY, high = INFINITY;
    if (input(call, 1).present()) low = load_one<N>(call.inputs[1], 0);
    if (input(call, 2).present()) high = load_one<N>(call.inputs[2], 0);
    return each<N>(call, [low, high](N x) { return x != x ? x : std::min(std::max(x, low), high); });
  });
}

/// com.microsoft BiasGelu: gelu(x + bias); FastGelu: gelu_tanh(x + bias?). bias [last dimension of x].
template <double (*f)(double)>
KernelStatus gelu_of_sum(const KernelCall& call) {
  const TensorView &x = call.inputs[0], bias = input(call, 1);
  std::vector<double> values = load_all<double>(x), shift = load_all<double>(bias);
  if (shift.empty()) shift.assign(1, 0.0);
  for (size_t i = 0; i < values.size(); ++i) values[i] = f(values[i] + shift[i % shift.size()]);
  store_all(call.outputs[0], values);
  return {};
}

template <double (*f)(double)>
void add_real(KernelTable& table, std::string op) {
  add<of_reals<f>>(table, std::move(op), floats, 0);
}
template <class F>
void add_real_with(KernelTable& table, std::string op) {
  add<of_reals_with<F>>(table, std::move(op), floats, 0);
}

}  // namespace

void add_unary(KernelTable& table) {
  add<of_numbers<Abs>>(table, "Abs", numbers, 0);
  add<of_numbers<Neg>>(table, "Neg", numbers, 0);
  add<of_numbers<Sign>>(table, "Sign", numbers, 0);
  add<of_numbers<Relu>>(table, "Relu", numbers, 0);
  add<of_numbers<BitwiseNot>>(table, "BitwiseNot", integers, 0);
  add<logical_not>(table, "Not", booleans, 0);
  add<is_nan>(table, "IsNaN", floats);
  add<is_inf>(table, "IsInf", floats);
  add<clip>(table, "Clip", numbers, 0);

  add_real<std::exp>(table, "Exp");
  add_real<std::log>(table, "Log");
  add_real<std::sqrt>(table, "Sqrt");
  add_real<reciprocal>(table, "Reciprocal");
  add_real<std::sin>(table, "Sin");
  add_real<std::cos>(table, "Cos");
  add_real<std::tan>(table, "Tan");
  add_real<std::asin>(table, "Asin");
  add_real<std::acos>(table, "Acos");
  add_real<std::atan>(table, "Atan");
  add_real<std::sinh>(table, "Sinh");
  add_real<std::cosh>(table, "Cosh");
  add_real<std::tanh>(table, "Tanh");
  add_real<std::asinh>(table, "Asinh");
  add_real<std::acosh>(table, "Acosh");
  add_real<std::atanh>(table, "Atanh");
  add_real<std::erf>(table, "Erf");
  add_real<std::floor>(table, "Floor");
  add_real<std::ceil>(table, "Ceil");
  add_real<std::nearbyint>(table, "Round");  // ties to even
  add_real<sigmoid>(table, "Sigmoid");
  add_real<softplus>(table, "Softplus");
  add_real<softsign>(table, "Softsign");
  add_real<mish>(table, "Mish");
  add_real<hard_swish>(table, "HardSwish");

  add_real_with<LeakyRelu>(table, "LeakyRelu");
  add_real_with<Elu>(table, "Elu");
  add_real_with<Celu>(table, "Celu");
  add_real_with<Selu>(table, "Selu");
  add_real_with<ThresholdedRelu>(table, "ThresholdedRelu");
  add_real_with<HardSigmoid>(table, "HardSigmoid");
  add_real_with<Shrink>(table, "Shrink");
  add_real_with<Swish>(table, "Swish");
  add_real_with<Gelu>(table, "Gelu");
  add_real<gelu>(table, "com.microsoft.Gelu");
  add_real_with<Swish>(table, "com.microsoft.QuickGelu");
  add<gelu_of_sum<gelu>>(table, "com.microsoft.BiasGelu", floats);
  add<gelu_of_sum<gelu_tanh>>(table, "com.microsoft.FastGelu", floats);
}

}  // namespace plait::reference

// Ops of two and more arrays with NumPy's broadcasting.
#include <algorithm>
#include <limits>
#include <string>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

constexpr int64_t block = 1024;

/// Reads `count` elements from `begin`, or one element `count` times where step is 0.
template <class N>
void load_row(const TensorView& tensor, int64_t begin, int64_t count, int64_t step, N* out) {
  if (step) return load(tensor, begin, count, out);
  load(tensor, begin, 1, out);
  std::fill(out + 1, out + count, out[0]);
}

/// out[...] = f(a[...], b[...]); f(N, N, KernelStatus&) may set a status, which is returned.
template <class N, class F>
KernelStatus pairs(const TensorView& a, const TensorView& b, const TensorView& out, F f) {
  KernelStatus status;
  using R = decltype(f(N{}, N{}, status));
  Nest<3> nest(out.shape, {broadcast_strides(a.shape, out.shape), broadcast_strides(b.shape, out.shape),
                           strides_of(out.shape)});
  N x[block], y[block];
  R z[block];
  nest.rows([&](const std::array<int64_t, 3>& at) {
    for (int64_t begin = 0; begin < nest.row(); begin += block) {
      int64_t n = std::min(block, nest.row() - begin);
      load_row(a, at[0] + begin * nest.step(0), n, nest.step(0), x);
      load_row(b, at[1] + begin * nest.step(1), n, nest.step(1), y);
      for (int64_t i = 0; i < n; ++i) z[i] = f(x[i], y[i], status);
      store(out, at[2] + begin, n, z);
    }
  });
  return status;
}

template <class N>
constexpr bool real = std::is_floating_point_v<N>;

// Integers wrap: signed overflow is computed on the unsigned words.
struct Add {
  template <class N>
  static N apply(N a, N b) {
    if constexpr (real<N>) return a + b;
    else return static_cast<N>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
};
struct Sub {
  template <class N>
  static N apply(N a, N b) {
    if constexpr (real<N>) return a - b;
    else return static_cast<N>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  }
};
struct Mul {
  template <class N>
  static N apply(N a, N b) {
    if constexpr (real<N>) return a * b;
    else return static_cast<N>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};
struct Max {
  template <class N>
  static N apply(N a, N b) { return a != a ? a : b != b ? b : std::max(a, b); }  // a NaN wins
};
struct Min {
  template <class N>
  static N apply(N a, N b) { return a != a ? a : b != b ? b : std::min(a, b); }
};
struct PRelu {
  template <class N>
  static N apply(N a, N b) { return a < 0 ? Mul::apply(a, b) : a; }
};
struct Equal {
  template <class N>
  static int64_t apply(N a, N b) { return a == b; }
};
struct Less {
  template <class N>
  static int64_t apply(N a, N b) { return a < b; }
};
struct LessOrEqual {
  template <class N>
  static int64_t apply(N a, N b) { return a <= b; }
};
struct Greater {
  template <class N>
  static int64_t apply(N a, N b) { return a > b; }
};
struct GreaterOrEqual {
  template <class N>
  static int64_t apply(N a, N b) { return a >= b; }
};
struct And {  // of bools and, bit by bit, of integers
  template <class N>
  static N apply(N a, N b) {
    if constexpr (real<N>) return 0;  // not reached: integers only
    else return a & b;
  }
};
struct Or {
  template <class N>
  static N apply(N a, N b) {
    if constexpr (real<N>) return 0;
    else return a | b;
  }
};
struct Xor {
  template <class N>
  static N apply(N a, N b) {
    if constexpr (real<N>) return 0;
    else return a ^ b;
  }
};

template <class Op>
KernelStatus binary(const KernelCall& call) {
  return with_number(call.inputs[0].dtype, [&]<class N>(N) {
    return pairs<N>(call.inputs[0], call.inputs[1], call.outputs[0],
                    [](N a, N b, KernelStatus&) { return Op::apply(a, b); });
  });
}

/// True for a division that has no result; sets the status.
template <class N>
bool divides_by_zero(N divisor, KernelStatus& status) {
  if (divisor != 0) return false;
  status = {KernelCode::division_by_zero, 1, 0};
  return true;
}

KernelStatus divide(const KernelCall& call) {
  return with_number(call.inputs[0].dtype, [&]<class N>(N) {
    return pairs<N>(call.inputs[0], call.inputs[1], call.outputs[0], [](N a, N b, KernelStatus& status) -> N {
      if constexpr (real<N>) return a / b;
      else if (divides_by_zero(b, status)) return 0;
      else if (b == static_cast<N>(-1) && std::is_signed_v<N>) return Sub::apply(N{0}, a);  // the smallest / -1 wraps
      else return a / b;
    });
  });
}

struct ModAttributes {
  explicit ModAttributes(const NodeInfo& node) : fmod(node.attributes.integer("fmod", 0) != 0) {}
  bool fmod;  ///< the result has the sign of the dividend (C's), otherwise of the divisor (Python's)
};

KernelStatus modulo(const KernelCall& call, const ModAttributes& mode) {
  return with_number(call.inputs[0].dtype, [&]<class N>(N) {
    return pairs<N>(call.inputs[0], call.inputs[1], call.outputs[0], [&](N a, N b, KernelStatus& status) -> N {
      N rest;
      if constexpr (real<N>) rest = std::fmod(a, b);
      else if (divides_by_zero(b, status)) return 0;
      else rest = b == static_cast<N>(-1) && std::is_signed_v<N> ? 0 : a % b;
      if (!mode.fmod && rest != 0 && (rest < 0) != (b < 0)) rest += b;
      return rest;
    });
  });
}

int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, square = static_cast<uint64_t>(base);
  for (; exponent; exponent >>= 1, square *= square)
    if (exponent & 1) result *= square;
  return static_cast<int64_t>(result);
}

/// The result has the base's dtype; the exponent has its own.
KernelStatus power(const KernelCall& call) {
  const TensorView &base = call.inputs[0], &exponent = call.inputs[1], &out = call.outputs[0];
  if (is_integer(base.dtype) && is_integer(exponent.dtype))
    return pairs<int64_t>(base, exponent, out,
                          [](int64_t a, int64_t b, KernelStatus&) { return integer_power(a, b); });
  return pairs<double>(base, exponent, out, [](double a, double b, KernelStatus&) { return std::pow(a, b); });
}

struct ShiftAttributes {
  explicit ShiftAttributes(const NodeInfo& node)
      : width(dtype_bits(node.inputs[0].dtype)) {
    const std::string direction = node.attributes.string("direction", "");
    left = direction == "LEFT";
    if (!left && direction != "RIGHT")
      throw Error(Code::bad_model, cat("BitShift: attribute \"direction\" is ", quote(direction)),
                  "set it to LEFT or RIGHT");
  }
  bool left;
  int width;
};

/// By opset 28's text, which clarifies earlier forms: a right shift of a signed number is arithmetic, and a shift
/// that is negative or at least the width leaves sign bits only.
KernelStatus shift(const KernelCall& call, const ShiftAttributes& attributes) {
  return with_number(call.inputs[0].dtype, [&]<class N>(N) {
    return pairs<N>(call.inputs[0], call.inputs[1], call.outputs[0], [&](N a, N b, KernelStatus&) -> N {
      if constexpr (real<N>) return 0;  // not reached: integers only
      else {
        if (b < 0 || b >= static_cast<N>(attributes.width)) return !attributes.left && a < 0 ? static_cast<N>(-1) : N{0};
        return attributes.left ? static_cast<N>(static_cast<uint64_t>(a) << b) : static_cast<N>(a >> b);
      }
    });
  });
}

/// Any number of inputs, folded from the left without rounding in between; `mean` divides by their number.
template <class Op, bool mean>
KernelStatus variadic(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  return with_number(out.dtype, [&]<class N>(N) -> KernelStatus {
    std::vector<N> result;
    for (const TensorView& in : call.inputs) {
      Loaded<N> values(in);
      std::vector<int64_t> offsets = offsets_of(out.shape, broadcast_strides(in.shape, out.shape));
      bool first = result.empty();
      if (first) result.resize(offsets.size());
      for (size_t i = 0; i < offsets.size(); ++i)
        result[i] = first ? values[offsets[i]] : Op::apply(result[i], values[offsets[i]]);
    }
    if constexpr (mean)
      for (N& value : result) value /= static_cast<N>(call.inputs.size());
    store_all(out, result);
    return {};
  });
}

/// Where: condition bool, a, b of any one dtype.
KernelStatus where(const KernelCall& call) {
  const TensorView &condition = call.inputs[0], &a = call.inputs[1], &b = call.inputs[2], &out = call.outputs[0];
  Nest<4> nest(out.shape, {broadcast_strides(condition.shape, out.shape), broadcast_strides(a.shape, out.shape),
                           broadcast_strides(b.shape, out.shape), strides_of(out.shape)});
  nest.rows([&](const std::array<int64_t, 4>& at) {
    for (int64_t i = 0; i < nest.row(); ++i) {
      bool yes = condition.as<uint8_t>()[at[0] + i * nest.step(0)];
      const TensorView& from = yes ? a : b;
      size_t k = yes ? 1 : 2;
      put_bits(out, at[3] + i, get_bits(from, at[k] + i * nest.step(k)));
    }
  });
  return {};
}

}  // namespace

void add_binary(KernelTable& table) {
  add<binary<Add>>(table, "Add", numbers, 0);
  add<binary<Sub>>(table, "Sub", numbers, 0);
  add<binary<Mul>>(table, "Mul", numbers, 0);
  add<divide>(table, "Div", numbers, 0);
  add<modulo>(table, "Mod", numbers, 0);
  add<power>(table, "Pow", numbers, 0);
  add<binary<PRelu>>(table, "PRelu", numbers, 0);
  add<binary<Equal>>(table, "Equal", comparable);
  add<binary<Less>>(table, "Less", numbers);
  add<binary<LessOrEqual>>(table, "LessOrEqual", numbers);
  add<binary<Greater>>(table, "Greater", numbers);
  add<binary<GreaterOrEqual>>(table, "GreaterOrEqual", numbers);
  add<binary<And>>(table, "And", booleans, 0);
  add<binary<Or>>(table, "Or", booleans, 0);
  add<binary<Xor>>(table, "Xor", booleans, 0);
  add<binary<And>>(table, "BitwiseAnd", integers, 0);
  add<binary<Or>>(table, "BitwiseOr", integers, 0);
  add<binary<Xor>>(table, "BitwiseXor", integers, 0);
  add<shift>(table, "BitShift", integers, 0);
  add<variadic<Add, false>>(table, "Sum", floats);
  add<variadic<Add, true>>(table, "Mean", floats);
  add<variadic<Max, false>>(table, "Max", numbers);
  add<variadic<Min, false>>(table, "Min", numbers);
  add<where>(table, "Where", Domain{"any", [](const NodeInfo& node) {
                                      return node.inputs.size() == 3 && is_storable(node.inputs[1].dtype);
                                    }});
}

}  // namespace plait::reference

#pragma once
// Makes a kernel of the table from a plain function.
//
// A body is `KernelStatus body(const KernelCall&)`, or `KernelStatus body(const KernelCall&, const P&)` where P is a
// struct made once per node from its NodeInfo: the attributes in the body's form.
#include <utility>

#include "core/exec/kernel.h"

namespace plait::reference {

/// Which operands an op takes, judged by input 0; `name` is the table's word for it.
struct Domain {
  const char* name;
  bool (*accepts)(const NodeInfo& node);
};

inline bool first_is(const NodeInfo& node, bool (*test)(DType)) {
  return node.inputs.empty() || node.inputs[0].dtype == DType::none || test(node.inputs[0].dtype);
}
inline bool is_number(DType dtype) { return is_float(dtype) || is_integer(dtype); }
inline bool is_storable(DType dtype) { return dtype_bits(dtype) >= 1 && dtype_bits(dtype) <= 64; }
inline bool is_bool(DType dtype) { return dtype == DType::boolean; }
inline bool is_number_or_bool(DType dtype) { return is_number(dtype) || is_bool(dtype); }
inline bool is_comparable(DType dtype) { return is_number_or_bool(dtype) || dtype == DType::string; }

inline constexpr Domain floats{"floats", [](const NodeInfo& node) { return first_is(node, is_float); }};
inline constexpr Domain weights{"floats, 2 to 8 bits", [](const NodeInfo& node) {
                                  return first_is(node, [](DType dtype) {
                                    const int bits = dtype_bits(dtype);
                                    return is_float(dtype) || (is_integer(dtype) && bits == 8) || bits == 4 ||
                                           bits == 2;
                                  });
                                }};
inline constexpr Domain integers{"integers", [](const NodeInfo& node) { return first_is(node, is_integer); }};
inline constexpr Domain numbers{"numbers", [](const NodeInfo& node) { return first_is(node, is_number); }};
inline constexpr Domain numbers_and_bool{"numbers, bool",
                                         [](const NodeInfo& node) { return first_is(node, is_number_or_bool); }};
/// Ops that only ask whether elements are equal, or move them.
inline constexpr Domain comparable{"numbers, bool, string", [](const NodeInfo& node) { return first_is(node, is_comparable); }};
inline constexpr Domain texts_only{"string", [](const NodeInfo& node) {
                                  return first_is(node, [](DType dtype) { return dtype == DType::string; });
                                }};
inline constexpr Domain booleans{"bool", [](const NodeInfo& node) { return first_is(node, is_bool); }};
inline constexpr Domain anything{"any", [](const NodeInfo& node) { return first_is(node, is_storable); }};

template <class P>
struct State final : KernelState {
  explicit State(const NodeInfo& node) : value(node) {}
  P value;
};

template <auto body>
struct Adapter;

template <KernelStatus (*body)(const KernelCall&)>
struct Adapter<body> {
  static Kernel make() {
    Kernel kernel;
    kernel.run = body;
    return kernel;
  }
};

template <class P, KernelStatus (*body)(const KernelCall&, const P&)>
struct Adapter<body> {
  static Kernel make() {
    Kernel kernel;
    kernel.prepare = [](const NodeInfo& node) -> std::shared_ptr<const KernelState> {
      return std::make_shared<State<P>>(node);
    };
    kernel.run = [](const KernelCall& call) { return body(call, static_cast<const State<P>*>(call.state)->value); };
    return kernel;
  }
};

/// The kernel of `op` with this body; the caller may set further fields before adding it.
template <auto body>
Kernel kernel_of(std::string op, Domain domain) {
  Kernel kernel = Adapter<body>::make();
  kernel.op = std::move(op);
  kernel.isa = "reference";
  kernel.dtypes = domain.name;
  kernel.accepts = domain.accepts;
  return kernel;
}

template <auto body>
void add(KernelTable& table, std::string op, Domain domain, int in_place = -1) {
  Kernel kernel = kernel_of<body>(std::move(op), domain);
  kernel.in_place = in_place;
  table.add(std::move(kernel));
}

/// The operand, or an absent one if the node has fewer.
inline TensorView input(const KernelCall& call, size_t i) {
  return i < call.inputs.size() ? call.inputs[i] : TensorView{};
}
inline TensorView output(const KernelCall& call, size_t i) {
  return i < call.outputs.size() ? call.outputs[i] : TensorView{};
}

/// `axis` in [-rank, rank) as [0, rank).
inline int positive_axis(int64_t axis, int rank) { return static_cast<int>(axis < 0 ? axis + rank : axis); }

}  // namespace plait::reference

#pragma once
// Chains of element-wise ops that one kernel computes in one pass over memory: attribute "steps" of plait.Elementwise, and of ops that
// apply such a chain to their results.
//
// Registers 0, 1, ... are the operands, which broadcast as in NumPy; each step appends one. A step is the name of an ONNX op without
// attributes and its registers: "Mul 0 2". The last register is the result; without steps, register 0. Operands of 8 or 32 bits are
// converted to floats first.
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

enum class StepOp : int {
  add,
  sub,
  mul,
  div,
  max,
  min,
  prelu,
  abs,
  erf,
  exp,
  gelu,
  hard_swish,
  neg,
  reciprocal,
  relu,
  sigmoid,
  sqrt,
  swish,
  tanh,
  count
};

struct StepOpRow {
  std::string_view name;
  int operands;
};
constexpr std::array<StepOpRow, static_cast<size_t>(StepOp::count)> step_ops{{{"Add", 2},
                                                                              {"Sub", 2},
                                                                              {"Mul", 2},
                                                                              {"Div", 2},
                                                                              {"Max", 2},
                                                                              {"Min", 2},
                                                                              {"PRelu", 2},
                                                                              {"Abs", 1},
                                                                              {"Erf", 1},
                                                                              {"Exp", 1},
                                                                              {"Gelu", 1},
                                                                              {"HardSwish", 1},
                                                                              {"Neg", 1},
                                                                              {"Reciprocal", 1},
                                                                              {"Relu", 1},
                                                                              {"Sigmoid", 1},
                                                                              {"Sqrt", 1},
                                                                              {"Swish", 1},
                                                                              {"Tanh", 1}}};

inline std::optional<StepOp> step_op(std::string_view name) {
  for (size_t i = 0; i < step_ops.size(); ++i)
    if (step_ops[i].name == name) return static_cast<StepOp>(i);
  return std::nullopt;
}

/// b is -1 for ops of one operand.
struct ElementwiseStep {
  StepOp op = StepOp::add;
  int a = 0, b = -1;
};

/// Whether operands of a chain may be of that type, next to floats.
constexpr bool is_step_integer(DType dtype) { return dtype == DType::u8 || dtype == DType::i8 || dtype == DType::i32; }

/// Limits of a chain, which bound a kernel's scratch.
constexpr size_t most_steps = 32, most_step_operands = 16;

/// Steps over `operands` registers. Throws Error(bad_model) for unknown ops, and for registers that are not there yet.
inline std::vector<ElementwiseStep> parse_steps(const std::vector<std::string>& texts, size_t operands) {
  const auto fail = [](const std::string& step) {
    throw Error(Code::bad_model, cat("attribute \"steps\" has the entry ", quote(step)),
                "an entry is the name of an op and the numbers of its registers, as in \"Mul 0 2\"");
  };
  if (texts.size() > most_steps || operands > most_step_operands)
    throw Error(Code::bad_model,
                cat("attribute \"steps\" has ", texts.size(), " entries over ", operands, " operands, at most ",
                    most_steps, " over ", most_step_operands, " are allowed"));
  std::vector<ElementwiseStep> out;
  for (const std::string& step : texts) {
    const std::vector<std::string> words = split(step, ' ');
    const std::optional<StepOp> op = words.empty() ? std::nullopt : step_op(words[0]);
    if (!op || words.size() != 1 + static_cast<size_t>(step_ops[static_cast<size_t>(*op)].operands)) fail(step);
    ElementwiseStep made{*op, 0, -1};
    for (size_t k = 1; k < words.size(); ++k) {
      int64_t at = 0;
      if (!parse_int(words[k], at) || at < 0 || at >= static_cast<int64_t>(operands + out.size())) fail(step);
      (k == 1 ? made.a : made.b) = static_cast<int>(at);
    }
    out.push_back(made);
  }
  return out;
}

}  // namespace plait

#pragma once
// The op schema: one row per op describes it, without kernels; kernels/ implements the ops.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/type_rule.h"

namespace plait {

/// Interface of shape rules: a node's operands, and the outputs' types. One rule serves compile time, when sizes are
/// symbolic and contents mostly unknown, and run time, when all are numbers. Operands are numbered as in the node.
class InferContext {
 public:
  virtual ~InferContext() = default;

  virtual const Attributes& attributes() const = 0;
  virtual int inputs() const = 0;  ///< including absent ones
  virtual int outputs() const = 0;
  virtual bool has(int input) const = 0;
  virtual bool wants(int output) const = 0;
  virtual DType dtype(int input) const = 0;
  /// Null if the rank is unknown (the rule then leaves the output's dims open).
  virtual const Dims* dims(int input) const = 0;
  /// The elements of an integer or bool tensor of rank 0 or 1, if known, otherwise null. Symbolic: Shape of [b, s]
  /// gives {b, s}.
  virtual const Dims* contents(int input) const = 0;
  /// Of a list.
  virtual PartDims parts(int input) const = 0;
  /// The operand as numbers; null if it is not constant.
  virtual const Tensor* constant(int input) const = 0;
  /// The bodies of the node.
  virtual const Node& node() const = 0;

  /// A data-dependent size: a new symbol (at run time an error, since all contents are known there).
  virtual Dim unknown(std::string_view stem) = 0;
  /// Whether differently written sizes may differ at run time (Knowledge::exact).
  virtual bool exact() const = 0;
  /// An upper bound of a size (Knowledge::sum_bound); nullopt if none is known.
  virtual std::optional<int64_t> most(const Dim& size) const = 0;

  virtual void set_type(int output, DType dtype) = 0;
  virtual void set_dims(int output, Dims dims) = 0;
  virtual void set_contents(int output, Dims elements) = 0;
  virtual void set_parts(int output, PartDims parts) = 0;

  void set(int output, DType dtype, Dims dims) {
    set_type(output, dtype);
    set_dims(output, std::move(dims));
  }
  /// Throws Error(bad_model); the caller adds node, op and domain.
  [[noreturn]] static void fail(std::string message, std::string hint = {});
};

class GradientContext;

struct AttributeRow {
  std::string name;
  std::string kind;          ///< as attribute_kind; "graph" for a body
  std::string default_text;  ///< "": no default; "required"
  /// If set, the attribute is the product of the sizes of the leading factors of the dims rule ("g r": key heads, or
  /// query heads), and is smaller on a shard.
  std::string counts = {};
};

struct OpSchema {
  std::string name;    ///< as Node::op
  /// Names, in order; "?" after an optional one, "!" after one without a gradient though it may be of floats, "..."
  /// after a repeated last one: "data axes?".
  std::string inputs;
  std::string outputs;
  std::vector<AttributeRow> attributes;

  /// The dims rule: one string that names every dimension (grammar: core/graph/dims_rule.h). For ops whose rule
  /// depends on ranks or attributes this is that of a typical node, for documentation, and `dims_of` makes the rule
  /// of a node with known operand ranks. "": none, the op gets whole inputs.
  std::string dims;
  std::string (*dims_of)(const Node& node, const std::vector<Type>& inputs,
                         const std::vector<Type>& outputs) = nullptr;
  /// The operand whose elements are the dims of output 0 (the shape of a Reshape); -1 if none.
  int target = -1;
  /// The rank of each operand: "3-4, 1, , 2-" ("": any; "2-": at least 2). Inference checks each node, so `infer` and
  /// kernels can rely on it. "": any; the dims rule, if any, still fixes the rank.
  std::string ranks = {};

  /// Types and sizes of the outputs. Null: output 0 has input 0's dtype, and its dims follow from the dims rule.
  void (*infer)(InferContext& context) = nullptr;
  /// Whether `infer` assumes sizes of such a node that only a run determines: then the operands are checked again at
  /// run time. Null: never.
  bool (*assumes)(const Node& node, const std::vector<Type>& inputs) = nullptr;

  /// Adds the nodes that compute the gradients of the inputs from those of the outputs (core/graph/gradient.h). Null:
  /// not differentiable.
  void (*gradient)(GradientContext& context) = nullptr;

  /// How many leading inputs the op updates in place: output k is input k. They are the Store's.
  int updates = 0;

  /// Whether output 0 is input 0 with another shape, so that no kernel runs.
  bool view = false;

  /// Whether output 0 is a sequence of tensors.
  bool makes_sequence = false;

  std::string doc;  ///< one line
  int since = 0;    ///< the ONNX opset of the op's form in this row; 0 for Plait's own ops

  // Supported uses of an op of the standard (core/ops/claims.cpp):
  int oldest = 0;     ///< the first opset whose form of the op is read; 0: unrestricted
  std::string types;  ///< the types rule (grammar: core/graph/type_rule.h); "": the kernels' types
  /// If set, importers replace the op by the ops named here, and no graph contains it.
  std::string written_as;

  TypeRule type_rule;                       ///< derived from `types`
  std::vector<std::pair<int, int>> rank_limits;  ///< derived from `ranks`: minimum and maximum of each operand

  int min_inputs = 0, max_inputs = 0;  ///< derived from `inputs`; max -1 for a repeated last one
  int min_outputs = 0, max_outputs = 0;
};

/// All ops. Filled by one explicit call (register_ops in core/ops/ops.h), then constant: thread-safe to read.
class OpSet {
 public:
  void add(OpSchema schema);
  /// Ops of a part that this library was built without have no rows: what is added to rows of unknown ops is ignored then, and errors
  /// about unknown ops have this hint.
  void lack(std::string hint) { lacking_ = std::move(hint); }
  const std::string& lacking() const { return lacking_; }  ///< "" if nothing is
  /// Adds supported uses to the row of an op.
  void claim(std::string_view op, int oldest, std::string types);
  /// Adds the gradient to the row of an op.
  void differentiate(std::string_view op, void (*gradient)(GradientContext&));
  /// The row of an op that a graph may contain, or null.
  const OpSchema* find(std::string_view op) const;
  /// All rows, including those of ops that importers replace.
  const std::map<std::string, OpSchema, std::less<>>& all() const { return rows_; }

 private:
  /// The row of an op that claims or a gradient are added to; null if it is lacking. Throws Error(internal).
  OpSchema* row_of(std::string_view op, std::string_view what);

  std::map<std::string, OpSchema, std::less<>> rows_;
  std::string lacking_;
};

/// The name of an operand that is never trained, though it may be of floats: scales of quantised weights, tables of
/// angles. "": it has a gradient, if the op has.
std::string_view fixed_operand(const OpSchema& row, size_t operand);

/// Throws Error(unsupported) for an unknown op, Error(bad_model) for operand counts or attributes that do not fit the
/// schema. Names node, op and domain.
const OpSchema& check_node(const OpSet& ops, const Node& node);

/// Throws Error(bad_model), as check_node, for operand counts or attributes that do not fit this row.
void check_form(const OpSchema& row, const Node& node);

/// Throws Error(unsupported) if the op's form in `opset` is older than the supported ones. Names op, domain and
/// opset; unknown ops and ops without claims pass.
void check_opset(const OpSet& ops, std::string_view op, int64_t opset);

/// Throws Error, naming op, domain, opset and operand: unsupported for a dtype that the op does not take, bad_model
/// if operands of one type variable differ. DType::none is unknown. Dtypes are in the order of the node's operands.
void check_types(const OpSchema& row, const Node& node, std::span<const DType> inputs,
                 std::span<const DType> outputs);

/// Throws Error(bad_model), naming op and operand, for a rank that the op does not take.
void check_ranks(const OpSchema& row, const std::vector<Type>& inputs);

}  // namespace plait

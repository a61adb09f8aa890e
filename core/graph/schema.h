#pragma once
// The op schema: one row per op says what the op is. No kernels here; kernels/ implements what a row describes.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/type_rule.h"

namespace plait {

/// What a shape rule sees of one node and what it says of its outputs. The same rule serves compile time, where sizes
/// are symbolic and contents mostly unknown, and run time, where all are numbers. Operands are counted as in the node.
class InferContext {
 public:
  virtual ~InferContext() = default;

  virtual const Attributes& attributes() const = 0;
  virtual int inputs() const = 0;  ///< including absent ones
  virtual int outputs() const = 0;
  virtual bool has(int input) const = 0;
  virtual bool wants(int output) const = 0;
  virtual DType dtype(int input) const = 0;
  /// Null when not even the rank is known (the rule then leaves the output's dims open).
  virtual const Dims* dims(int input) const = 0;
  /// The elements of an integer or bool tensor of rank 0 or 1, as far as they are known, null otherwise. Symbolic:
  /// Shape of [b, s] gives {b, s}.
  virtual const Dims* contents(int input) const = 0;
  /// The operand as numbers, null if it is not constant.
  virtual const Tensor* constant(int input) const = 0;
  /// The bodies of the node.
  virtual const Node& node() const = 0;

  /// A size that is known only from data: a new symbol (at run time: an error, contents are all known there).
  virtual Dim unknown(std::string_view stem) = 0;
  /// Whether sizes that are written differently may differ when the program runs (Knowledge::exact).
  virtual bool exact() const = 0;
  /// An upper bound of a size (Knowledge::sum_bound); nullopt if none is known.
  virtual std::optional<int64_t> most(const Dim& size) const = 0;

  virtual void set_type(int output, DType dtype) = 0;
  virtual void set_dims(int output, Dims dims) = 0;
  virtual void set_contents(int output, Dims elements) = 0;

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
  std::string default_text;  ///< "" : absent means absent; "required"
  /// Set: the attribute is the product of the sizes of the first so many of these factors of the dims rule ("g r": key
  /// heads, or query heads), so that it is less where they are cut.
  std::string counts = {};
};

struct OpSchema {
  std::string name;    ///< as Node::op
  /// Names, in order; "?" after an optional one, "!" after one that has no gradient though it may be of floats, "..." after a
  /// repeated last one: "data axes?".
  std::string inputs;
  std::string outputs;
  std::vector<AttributeRow> attributes;

  /// The dims rule: one string that names every dimension (grammar: core/graph/dims_rule.h). For ops whose rule depends
  /// on ranks or attributes this is the rule of a typical node, for readers, and `dims_of` writes the one of a node
  /// whose operand ranks are known. "" means none: the op gets whole inputs.
  std::string dims;
  std::string (*dims_of)(const Node& node, const std::vector<Type>& inputs,
                         const std::vector<Type>& outputs) = nullptr;
  /// The operand whose elements are the dims of output 0 (the shape of a Reshape); -1: none.
  int target = -1;
  /// The rank of each operand: "3-4, 1, , 2-" ("": any; "2-": at least 2). Inference holds each node against it, so that `infer`
  /// and kernels read sizes that are there. "": any; the dims rule, where the node has one, still counts its dims.
  std::string ranks = {};

  /// Types and sizes of the outputs. Null: output 0 has input 0's dtype, and its dims are what the dims rule says.
  void (*infer)(InferContext& context) = nullptr;
  /// Whether `infer` settles sizes of such a node that only a run can tell: then its operands are asked again as it runs.
  /// Null: never.
  bool (*assumes)(const Node& node, const std::vector<Type>& inputs) = nullptr;

  /// Adds the nodes that compute the gradients of the inputs from those of the outputs (core/graph/gradient.h). Null: none
  /// is known, and nothing in front of such a node can be trained.
  void (*gradient)(GradientContext& context) = nullptr;

  /// How many of its leading inputs the op writes to in place and hands on: output k is input k. They are the Store's.
  int updates = 0;

  /// Whether output 0 is the bytes of input 0 under another shape, so that no kernel need run.
  bool view = false;

  std::string doc;  ///< one line
  int since = 0;    ///< the ONNX opset whose form of the op this row describes; 0 for ops of Plait's own

  // What Plait claims of an op of the standard: it takes these uses and no others (core/ops/claims.cpp).
  int oldest = 0;     ///< the first opset whose form of the op is read; 0: claims are not kept for this op
  std::string types;  ///< the types rule (grammar: core/graph/type_rule.h); "": what its kernels take
  /// Set: importers write the op as others, named here, and no graph holds it.
  std::string written_as;

  TypeRule type_rule;                       ///< derived from `types`
  std::vector<std::pair<int, int>> rank_limits;  ///< derived from `ranks`: the least and the most of each operand

  int min_inputs = 0, max_inputs = 0;  ///< derived from `inputs`; max -1 for a repeated last one
  int min_outputs = 0, max_outputs = 0;
};

/// All ops there are. Filled by one explicit call (register_ops in core/ops/ops.h), then constant: thread-safe to read.
class OpSet {
 public:
  void add(OpSchema schema);
  /// Adds what is claimed to the row of an op.
  void claim(std::string_view op, int oldest, std::string types);
  /// Adds how gradients pass to the row of an op.
  void differentiate(std::string_view op, void (*gradient)(GradientContext&));
  /// The row of an op that a graph may hold, or null.
  const OpSchema* find(std::string_view op) const;
  /// All rows, those of ops that importers write as others included.
  const std::map<std::string, OpSchema, std::less<>>& all() const { return rows_; }

 private:
  std::map<std::string, OpSchema, std::less<>> rows_;
};

/// Throws Error(unsupported) when the op is unknown, Error(bad_model) when its operand counts or attributes are not as
/// the schema says. Names node, op and domain.
const OpSchema& check_node(const OpSet& ops, const Node& node);

/// Throws Error(unsupported) when the form that the op has in `opset` is older than those that are read. Names op,
/// domain and opset; an op that is not known, or of no claims, passes.
void check_opset(const OpSet& ops, std::string_view op, int64_t opset);

/// Throws Error, naming op, domain, opset and operand: unsupported when a dtype is none of those that the op takes, bad_model
/// when operands of one type variable differ. DType::none is one that is not known. Dtypes are in the order of the node's
/// operands.
void check_types(const OpSchema& row, const Node& node, std::span<const DType> inputs,
                 std::span<const DType> outputs);

/// Throws Error(bad_model), naming op and operand, when the rank of an operand is none of those that the op takes.
void check_ranks(const OpSchema& row, const std::vector<Type>& inputs);

}  // namespace plait

#pragma once
// Model constants, derived lazily from the file by a few invertible steps.
//
// A weight of the canonical graph is often a transpose, a slice of a fused matrix, or a cast of the file's tensor.
// Keeping source and steps apart means that compiling copies nothing, each rank loads only its own part, and a
// trained weight can be written back to the user's file.
#include <map>
#include <string>
#include <vector>

#include "core/base/tensor.h"

namespace plait {

class ThreadPool;

struct RecipeStep {
  enum class Kind {
    transpose,    ///< numbers: the permutation, as ONNX's Transpose
    slice,        ///< numbers: axis, begin, end
    part,         ///< a rank's; numbers: axis, number of equal parts, mesh sub-axes that count them
    reshape,      ///< numbers: the sizes
    cast,         ///< dtype: the new element type (between f32, f64, f16 and bf16, or integers)
    reinterpret,  ///< dtype: bit cast; the last dimension keeps its bits
  };
  Kind kind;
  std::vector<int64_t> numbers;
  DType dtype = DType::none;
  bool operator==(const RecipeStep&) const = default;
};

struct Constant {
  std::string initializer;        ///< tensor name in the file; "" if computed
  Tensor source;                  ///< as the file has it
  std::vector<RecipeStep> steps;  ///< applied in order
  /// If not empty: the source is these, of one dtype and shape, stacked along a new first axis; it is no single
  /// tensor of the file.
  std::vector<Constant> parts;
  /// A Constant node of the file, not an initializer: part of the computation, never trained.
  bool literal = false;

  DType dtype() const;  ///< after the steps
  Shape shape() const;
  int64_t source_bytes() const;  ///< of the file
  /// Hints that the file's bytes will not be read again soon.
  void drop_source() const;
  /// Throws Error(io) if the file changed (Blob::check).
  void check_source() const;
};

/// Throws Error(invalid_argument) if a step does not fit its operand; for constants parsed from text.
void check_steps(const Constant& constant);

/// The bytes: the source itself without steps (or with reshapes only), otherwise new memory. Uses `pool` if given.
/// Throws Error(unsupported) for a meaningless cast, Error(io) if the file changed.
Tensor materialize(const Constant& constant, ThreadPool* pool = nullptr);

/// The inverse: writes `value`, of the constant's dtype and shape, to its source. `tensors`: the file's, by name, in
/// writable memory; missing ones are added as copies of the constant's sources. Elements outside the steps are kept,
/// so constants of one tensor can be written in turn. Afterwards the steps yield `value` again, up to the precision
/// of the file's dtype. Throws Error(unsupported) for computed constants and reinterpreted bytes.
void write_back(const Constant& constant, const Tensor& value, std::map<std::string, Tensor>& tensors,
                ThreadPool* pool = nullptr);

/// The same constant with slices as early as possible, so that a rank's part of a weight that is transposed, cast or
/// stacked in the file is made from that part only.
Constant slices_first(Constant constant);

/// Appends a step, merged with the last if possible: reshapes replace each other, transposes compose.
void add_step(Constant& constant, RecipeStep step);
/// "transpose 1 0; cast bf16", for messages and the text form.
std::string text(const std::vector<RecipeStep>& steps);

}  // namespace plait

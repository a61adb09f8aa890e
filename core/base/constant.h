#pragma once
// Constants of a model that are derived from the file by a few invertible steps, and made only when they are needed.
//
// A weight of the canonical graph is often not what the file holds but its transpose, a slice of a fused matrix, or
// another dtype of it. Keeping source and steps apart means that nothing is copied while compiling, that each rank
// makes only its own part while it loads, and that a trained weight finds its way back into the user's file.
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
    reshape,      ///< numbers: the sizes
    cast,         ///< dtype: the new element type (between f32, f64, f16 and bf16, or integers)
    reinterpret,  ///< dtype: what the bytes are from here on; the last dimension counts as many bits as before
  };
  Kind kind;
  std::vector<int64_t> numbers;
  DType dtype = DType::none;
  bool operator==(const RecipeStep&) const = default;
};

struct Constant {
  std::string initializer;        ///< the tensor's name in the file; "" for what was computed
  Tensor source;                  ///< as the file has it
  std::vector<RecipeStep> steps;  ///< applied in order
  /// Not empty: these, of one dtype and shape, stacked along a new first axis, stand for the source, and no tensor of the
  /// file is the whole.
  std::vector<Constant> parts;
  /// The file writes it among its nodes, not among its tensors: it is part of what is computed, and is not trained.
  bool literal = false;

  DType dtype() const;  ///< after the steps
  Shape shape() const;
  int64_t source_bytes() const;  ///< of the file
  /// Tells the file that these bytes will not be read again soon.
  void drop_source() const;
  /// Throws Error(io) when the file is not any more what it was (Blob::check).
  void check_source() const;
};

/// Throws Error(invalid_argument) when a step does not fit what it is applied to: of a constant that was read from text.
void check_steps(const Constant& constant);

/// The bytes: the source itself when there are no steps (or reshapes alone), else fresh memory. Work is shared out
/// over `pool` when one is given. Throws Error(unsupported) for a cast that has no meaning, Error(io) where the file changed.
Tensor materialize(const Constant& constant, ThreadPool* pool = nullptr);

/// The way back: puts `value`, of the constant's dtype and shape, where it comes from. `tensors` are those of the file by name,
/// in memory that may be written; those that it lacks are added as copies of the constant's sources. What the steps leave
/// out stays, so that constants of one tensor are written one after the other. Behind it the steps lead from the tensors to
/// `value` again, as far as the file's dtype holds it. Throws Error(unsupported) for what is not of the file, and for bytes
/// that are read as another type.
void write_back(const Constant& constant, const Tensor& value, std::map<std::string, Tensor>& tensors,
                ThreadPool* pool = nullptr);

/// Appends a step, merged with the last one where possible: reshapes replace each other, transposes compose.
void add_step(Constant& constant, RecipeStep step);
/// "transpose 1 0; cast bf16", for messages and the text form.
std::string text(const std::vector<RecipeStep>& steps);

}  // namespace plait

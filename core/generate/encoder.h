#pragma once
// The encoder of an encoder-decoder: runs once for a sequence, and makes what each run of the decoder attends to.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/exec/executor.h"
#include "core/passes/compile.h"

namespace plait {

/// What a request gives an encoder: its inputs, checked. Immutable.
struct EncoderInput {
  std::vector<Tensor> values;  ///< by input of the graph
  int64_t tokens = 0;          ///< ids of a text; 0: it is no text
  int64_t bytes = 0;           ///< of what the encoder makes, as far as its sizes are known before the run
};

/// A mask [1, length] that hides nothing.
Tensor ones(DType dtype, int64_t length);

/// Runs a graph as written. Thread-safe except `run`, which is for one thread.
class Encoder {
 public:
  /// The graph's name is for messages. `longest`: ids of a text; 0: no limit. `pool` outlives it. Throws
  /// Error(unsupported) unless the graph has one input, token ids [b, n] or floats, and at most a mask; and what
  /// compiling and loading throw.
  Encoder(const Graph& graph, const CompileOptions& options, int64_t longest, ThreadPool& pool,
          std::shared_ptr<MemoryBudget> budget, LoadProgress* progress);

  /// The input that is not text, by the name that transformers gives it: "input_features"; "" if the encoder takes token ids.
  const std::string& tensor_name() const { return tensor_name_; }
  /// Of a text. Throws Error(invalid_argument) if it is empty, too long, or an id is out of range; Error(unsupported) if the encoder takes
  /// no text.
  std::shared_ptr<const EncoderInput> take_text(std::span<const int32_t> ids) const;
  /// Of the input `name`, which may leave out the batch; floats are cast. Throws Error(invalid_argument), naming input and dimension, if
  /// it does not fit, or `name` is another input.
  std::shared_ptr<const EncoderInput> take_tensor(const std::string& name, const Tensor& given) const;

  /// The graph's outputs. Throws as Executor::run.
  std::vector<Tensor> run(const EncoderInput& input);
  Executor& executor() const { return *executor_; }
  int64_t weight_bytes() const { return store_.bytes(); }

 private:
  std::shared_ptr<const EncoderInput> with_mask(Tensor main, int64_t length) const;
  int64_t bytes_of(const std::vector<Tensor>& inputs) const;

  PlainModel model_;
  Store store_;
  std::unique_ptr<Executor> executor_;
  std::string tensor_name_;
  size_t main_ = 0;             ///< number of the input
  std::optional<size_t> mask_;  ///< of the mask
  const int64_t longest_;
  int64_t vocabulary_ = 0;  ///< 0: not known
};

}  // namespace plait

#pragma once
// Rounds a model's weights to blocks of 2 to 8 bits.
#include <functional>
#include <string>
#include <vector>

#include "core/passes/compile.h"
#include "core/quantize/block_quantizer.h"
#include "importers/onnx/import.h"

namespace plait {

class ThreadPool;

struct QuantizeOptions {
  BlockFormat format;
  int64_t head_bits = 8, embedding_bits = 8;  ///< 0: stays as it is
  /// Token ids, read in windows of `window`: products are rounded by GPTQ for the activations that these give. Empty: each weight is
  /// rounded to nearest.
  std::vector<int32_t> calibration;
  int64_t window = 512;
};

struct QuantizedWeights {
  BlockWeights weights;                       ///< by output, for with_block_weights
  std::vector<std::string> kept;              ///< what stays as it is, each with the reason
  int64_t bytes_before = 0, bytes_after = 0;  ///< of the weights in blocks
};

/// A head and an embedding of one tensor stay one if their bits are equal, and are rounded to nearest then. GPTQ takes the products in
/// the order of the graph, each for what the rounded ones before it give; memory holds the values between them for all windows, that
/// is tokens times the widest layer. `note`: called with progress in words. `places`: outputs_with_weights of the file. Throws
/// Error(unsupported) if there is nothing to round, or for a calibration of a graph that is not a language model's;
/// Error(invalid_argument) for ids outside its vocabulary; the errors of running the graph; Error(cancelled).
QuantizedWeights quantize(const ImportedModel& model, const std::set<std::string>& places,
                          const CompileOptions& compile, const QuantizeOptions& options, ThreadPool& pool,
                          LoadProgress& progress, const std::function<void(const std::string&)>& note);

}  // namespace plait

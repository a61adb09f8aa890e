#pragma once
// Converts between a run's low-rank adapter parameters and the modules of an adapter file.
#include <map>
#include <string>
#include <vector>

#include "core/passes/base/adapters.h"
#include "core/passes/base/training.h"

namespace plait {

/// The two arrays of one adapter among a run's parameters.
struct AdapterParameters {
  std::string module;  ///< for experts: * in the place of an expert's number
  const TrainedParameter *a = nullptr, *b = nullptr;
  bool of_table = false;
  /// Number of experts, whose a and b are [e, rank, k] and [e, n, rank]; 0: one adapter, [rank, k] and [n, rank].
  int64_t experts() const { return a->shape.rank() == 3 ? a->shape[0] : 0; }
  int64_t k() const { return a->shape[a->shape.rank() - 1]; }
  int64_t n() const { return b->shape[b->shape.rank() - 2]; }
};

/// Ordered by module. The results point into `parameters`.
std::vector<AdapterParameters> adapters_among(const std::vector<TrainedParameter>& parameters);

/// Adds the matrices of the adapter's module, or of each expert's.
void give_pairs(const AdapterParameters& adapter, const Tensor& a, const Tensor& b, AdapterWeights& out);

/// The file's arrays by parameter key. Throws Error naming the array: invalid_argument if it has no partner or
/// another shape; unsupported if packed projections would need a rank of their own.
std::map<std::string, Tensor> arrays_of(const std::vector<TrainedParameter>& parameters, const AdapterWeights& file);

}  // namespace plait

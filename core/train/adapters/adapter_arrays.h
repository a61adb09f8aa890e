#pragma once
// What a run trains of low-rank adapters, as the modules of a file, and back.
#include <map>
#include <string>
#include <vector>

#include "core/passes/base/adapters.h"
#include "core/passes/base/training.h"

namespace plait {

/// The two arrays of an adapter among a run's parameters.
struct AdapterParameters {
  std::string module;  ///< of experts with * in the place of an expert's number
  const TrainedParameter *a = nullptr, *b = nullptr;
  bool of_table = false;
  /// 0: a and b are one adapter's, [rank, k] and [n, rank]; else so many experts', [e, rank, k] and [e, n, rank].
  int64_t experts() const { return a->shape.rank() == 3 ? a->shape[0] : 0; }
  int64_t k() const { return a->shape[a->shape.rank() - 1]; }
  int64_t n() const { return b->shape[b->shape.rank() - 2]; }
};

/// In the order of their modules. They point into `parameters`.
std::vector<AdapterParameters> adapters_among(const std::vector<TrainedParameter>& parameters);

/// The matrices of each module, of experts each one's own.
void give_pairs(const AdapterParameters& adapter, const Tensor& a, const Tensor& b, AdapterWeights& out);

/// The file's arrays by the keys of the parameters that they are of. Throws Error(invalid_argument), naming it, where one of
/// either has no partner, or another shape; unsupported where packed products would have a rank of their own.
std::map<std::string, Tensor> arrays_of(const std::vector<TrainedParameter>& parameters, const AdapterWeights& file);

}  // namespace plait

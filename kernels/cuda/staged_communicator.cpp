#include "kernels/cuda/staged_communicator.h"

namespace plait::cuda {

Tensor StagedCommunicator::fetch(const TensorView& array) const {
  Tensor out(array.dtype, array.shape);
  device_.read(queue(), out.data(), array.data, array.bytes());
  return out;
}

void StagedCommunicator::put(const Tensor& host, const TensorView& array) const {
  device_.write(queue(), array.data, host.data(), array.bytes());
}

void StagedCommunicator::all_reduce_into(const TensorView& in, const TensorView& out, Reduction reduction) {
  const Tensor here = fetch(in);
  host_->all_reduce(here.view(), reduction);
  put(here, out);
}

void StagedCommunicator::all_gather(const TensorView& part, const TensorView& all) {
  const Tensor own = fetch(part), whole(all.dtype, all.shape);
  host_->all_gather(own.view(), whole.view());
  put(whole, all);
}

void StagedCommunicator::reduce_scatter(const TensorView& all, const TensorView& part, Reduction reduction) {
  const Tensor whole = fetch(all), own(part.dtype, part.shape);
  host_->reduce_scatter(whole.view(), own.view(), reduction);
  put(own, part);
}

void StagedCommunicator::all_to_all(const TensorView& from, const TensorView& to) {
  const Tensor given = fetch(from), taken(to.dtype, to.shape);
  host_->all_to_all(given.view(), taken.view());
  put(taken, to);
}

void StagedCommunicator::broadcast(const TensorView& data, int root) {
  const Tensor here = rank() == root ? fetch(data) : Tensor(data.dtype, data.shape);
  host_->broadcast(here.view(), root);
  if (rank() != root) put(here, data);
}

void StagedCommunicator::send(const TensorView& data, int to, int64_t tag) {
  host_->send(fetch(data).view(), to, tag);
}

void StagedCommunicator::recv(const TensorView& data, int from, int64_t tag, Patience patience) {
  const Tensor here(data.dtype, data.shape);
  host_->recv(here.view(), from, tag, patience);
  put(here, data);
}

}  // namespace plait::cuda

#pragma once
// What the launch code of all kernels shares. A `run` computes a geometry, enqueues, and returns.
#include <array>

#include "core/exec/kernel.h"
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/kernels/geometry.h"
#include "kernels/cuda/peer_sums.h"

namespace plait::cuda {

void add_norms(KernelTable& table);
void add_linear(KernelTable& table);
void add_moves(KernelTable& table);
void add_rope(KernelTable& table);
void add_attention(KernelTable& table);
void add_elementwise(KernelTable& table);
void add_logic(KernelTable& table);
void add_experts(KernelTable& table);
void add_adapters(KernelTable& table);
void add_recurrences(KernelTable& table);
void add_indexing(KernelTable& table);
void add_reductions(KernelTable& table);
void add_sampling(KernelTable& table);

/// Adds a kernel for CUDA devices.
inline void add_kernel(KernelTable& table, Kernel kernel) {
  kernel.isa = "cuda";
  kernel.device = DeviceKind::cuda;
  kernel.priority = 1;
  table.add(std::move(kernel));
}

/// Enqueues a kernel; nothing if its grid has no blocks.
template <class... P>
KernelStatus launch(const KernelCall& call, const char* kernel, const Geometry& geometry, const P&... parameters) {
  if (!geometry.grid_x || !geometry.grid_y || !geometry.grid_z) return {};
  return CudaQueue::of(call).launch(kernel, {geometry.grid_x, geometry.grid_y, geometry.grid_z}, {geometry.threads},
                                    geometry.shared_bytes, parameters...);
}

inline bool has_element(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }
inline Element element_of(DType dtype) {
  return dtype == DType::f32 ? Element::f32 : dtype == DType::bf16 ? Element::bf16 : Element::f16;
}
/// One of a kernel's names by the type of its elements.
inline const char* by_element(DType dtype, const char* f32, const char* bf16, const char* f16) {
  return dtype == DType::f32 ? f32 : dtype == DType::bf16 ? bf16 : f16;
}

/// Whether elements are copied as words of 1, 2, 4 or 8 bytes, and one of a kernel's names by their size.
inline bool has_word(DType dtype) {
  const int bits = dtype_bits(dtype);
  return bits == 8 || bits == 16 || bits == 32 || bits == 64;
}
inline const char* by_word(DType dtype, const std::array<const char*, 4>& names) {
  const int bits = dtype_bits(dtype);
  return names[bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3];
}

inline bool is_index(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }
inline Indices indices_of(const TensorView& view) { return {view.data, view.dtype == DType::i64}; }
inline FaultReport report_of(const KernelCall& call) { return {CudaQueue::of(call).fault_word(), call.instruction}; }

/// The ranks to which the call's kernel writes its result too, for kernels that can; none if its sum is not next.
inline PeerRanks ranks_of(const KernelCall& call) {
  const PeerRanks* const ranks = CudaQueue::of(call).take_ranks();
  return ranks ? *ranks : PeerRanks{};
}

/// Operand `i` of a node, or of a call; absent if there are fewer.
inline OperandInfo operand(std::span<const OperandInfo> operands, size_t i) {
  return i < operands.size() ? operands[i] : OperandInfo{};
}
inline TensorView operand(std::span<const TensorView> operands, size_t i) {
  return i < operands.size() ? operands[i] : TensorView{};
}
/// Data of an operand as the kernel takes them; null if it is absent.
template <class T>
T* data_of(const TensorView& view) {
  return reinterpret_cast<T*>(view.data);
}

}  // namespace plait::cuda

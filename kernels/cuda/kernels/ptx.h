#pragma once
// The machine's instructions, a function each. Under nvcc they are PTX (PTX ISA 9.0), under the host's compiler their meaning
// (kernels/emulated/instructions.h). Kernels use no other: tests hold these against CUTLASS's tables, and on a device against the
// emulation.
#if defined(__CUDACC__)

/// A lane's registers of a 16 x 16 operand of 16 bits, or four 8 x 8 matrices.
struct Fragment {
  uint32_t r[4];
};
/// A lane's part of a 16 x 8 sum: rows g and g + 8, columns 2 t and 2 t + 1, of lane 4 g + t.
struct Sums {
  float c[4];
};

PLAIT_DEVICE float bf16_low(uint32_t two) { return __uint_as_float(two << 16); }
PLAIT_DEVICE float bf16_high(uint32_t two) { return __uint_as_float(two & 0xffff0000U); }
PLAIT_DEVICE uint32_t pack_bf16(float low, float high) {
  uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
PLAIT_DEVICE float f16_to_float(uint16_t half) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(half));
  return out;
}
PLAIT_DEVICE float f16_low(uint32_t two) { return f16_to_float(static_cast<uint16_t>(two)); }
PLAIT_DEVICE float f16_high(uint32_t two) { return f16_to_float(static_cast<uint16_t>(two >> 16)); }
PLAIT_DEVICE uint32_t pack_f16(float low, float high) {
  uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
/// Byte i of the result is byte `selector >> 4 i & 7` of the eight of a, then b.
PLAIT_DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(selector));
  return out;
}
/// (a & mask) | bits in one instruction; with two constants the compiler makes two of it.
PLAIT_DEVICE uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(a), "r"(mask), "r"(bits));
  return out;
}

/// 16 bytes of weights, which are read once: past L1.
PLAIT_DEVICE uint4 load_once(const void* from) {
  uint4 out;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "l"(from));
  return out;
}

/// sums += a b^T: a 16 x 16 (rows g, g + 8; columns 2 t and 2 t + 8), b 8 x 16 (row g; columns 2 t and 2 t + 8).
PLAIT_DEVICE void mma_bf16(Sums& sums, const Fragment& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
      "%2, %3};"
      : "+f"(sums.c[0]), "+f"(sums.c[1]), "+f"(sums.c[2]), "+f"(sums.c[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
}
PLAIT_DEVICE void mma_f16(Sums& sums, const Fragment& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sums.c[0]), "+f"(sums.c[1]), "+f"(sums.c[2]), "+f"(sums.c[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
}

/// a b^T, as `mma` with sums of 0, which take no registers.
PLAIT_DEVICE Sums product_bf16(const Fragment& a, uint32_t b0, uint32_t b1) {
  Sums out;
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, "
      "%10, %10};"
      : "=f"(out.c[0]), "=f"(out.c[1]), "=f"(out.c[2]), "=f"(out.c[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1), "f"(0.0F));
  return out;
}
PLAIT_DEVICE Sums product_f16(const Fragment& a, uint32_t b0, uint32_t b1) {
  Sums out;
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, "
      "%10, %10};"
      : "=f"(out.c[0]), "=f"(out.c[1]), "=f"(out.c[2]), "=f"(out.c[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1), "f"(0.0F));
  return out;
}

/// Four 8 x 8 matrices of 16 bits in shared memory. Lane i has the address of row i % 8 of matrix i / 8, and gets elements 2 t and
/// 2 t + 1 of row g of each.
PLAIT_DEVICE Fragment load_matrices(const void* row) {
  Fragment out;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.r[0]), "=r"(out.r[1]), "=r"(out.r[2]), "=r"(out.r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row))));
  return out;
}
/// The same, each transposed: a lane gets rows 2 t and 2 t + 1 of column g.
PLAIT_DEVICE Fragment load_matrices_transposed(const void* row) {
  Fragment out;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.r[0]), "=r"(out.r[1]), "=r"(out.r[2]), "=r"(out.r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row))));
  return out;
}

/// 16 bytes from global to shared memory, there after the wait for their group; zeros unless `present`.
PLAIT_DEVICE void copy_async(void* to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from), "r"(present ? 16 : 0));
}
PLAIT_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;"); }
template <int left>
PLAIT_DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left));
}

/// A word and its flag, in one write that other devices see whole.
PLAIT_DEVICE void store_flagged(uint64_t* to, uint32_t word, uint32_t flag) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(to), "l"(static_cast<uint64_t>(flag) << 32 | word) : "memory");
}
/// The word, once another device has written it with that flag; false if *stop becomes other than 0 before. What is waited for must not
/// come after this launch.
PLAIT_DEVICE bool spin_until(const uint64_t* at, uint32_t flag, const int32_t* stop, uint32_t& word) {
  for (int looks = 1;; ++looks) {
    uint64_t pair;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(pair) : "l"(at) : "memory");
    word = static_cast<uint32_t>(pair);
    if (pair >> 32 == flag) return true;
    if (looks % 1024) continue;
    int32_t stopped;
    asm volatile("ld.relaxed.sys.global.s32 %0, [%1];" : "=r"(stopped) : "l"(stop) : "memory");
    if (stopped) return false;
  }
}

/// Raises a flag for another device, after all that the block wrote before its last barrier.
PLAIT_DEVICE void raise_flag(uint32_t* at, uint32_t flag) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(at), "r"(flag) : "memory");
}
/// Waits until another device has raised the flag: what it wrote before is there for this thread, and after a barrier for its block. False
/// if *stop becomes other than 0 before. As for spin_until, what is waited for must not come after this launch.
PLAIT_DEVICE bool wait_for_flag(const uint32_t* at, uint32_t flag, const int32_t* stop) {
  for (int looks = 1;; ++looks) {
    uint32_t found;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(at) : "memory");
    if (found == flag) return true;
    if (looks % 1024) continue;
    int32_t stopped;
    asm volatile("ld.relaxed.sys.global.s32 %0, [%1];" : "=r"(stopped) : "l"(stop) : "memory");
    if (stopped) return false;
  }
}

#else
#include "kernels/emulated/instructions.h"
#endif

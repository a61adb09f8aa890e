#include "kernels/cpu/simd/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace plait::cpu {
namespace {

/// Register state that the operating system saves (XCR0).
uint64_t saved_state() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low | uint64_t{high} << 32;
}

bool allowed_amx() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr uint32_t amx = 1u << 22 | 1u << 24 | 1u << 25;  // BF16, TILE and INT8, EDX of leaf 7.0
  if ((d & amx) != amx) return false;
  constexpr uint64_t tile_state = uint64_t{3} << 17;  // XTILECFG and XTILEDATA
  if ((saved_state() & tile_state) != tile_state) return false;
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, asm/prctl.h
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

bool has_f16c() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

}  // namespace

std::string_view isa_name(Isa isa) {
  constexpr std::string_view names[] = {"avx2", "avx512", "avx512_bf16", "amx"};
  return names[static_cast<int>(isa)];
}

int isa_priority(Isa isa) { return 10 * (static_cast<int>(isa) + 1); }

std::vector<Isa> usable_isas() {
  std::vector<Isa> out;
  __builtin_cpu_init();  // its results include whether the system saves the wide registers
  auto add = [&](Isa isa, bool usable) {
    if (usable && static_cast<int>(out.size()) == static_cast<int>(isa)) out.push_back(isa);
  };
  add(Isa::avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                     __builtin_cpu_supports("bmi2") && has_f16c());
#ifndef PLAIT_ONLY_AVX2
  add(Isa::avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512cd"));
  add(Isa::avx512_bf16, __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni"));
  add(Isa::amx, allowed_amx());
#endif
  return out;
}

}  // namespace plait::cpu

#include "kernels/cpu/cpu.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/cpu/attention/register.h"
#include "kernels/cpu/image/register.h"
#include "kernels/cpu/linear/register.h"
#include "kernels/cpu/recurrent/register.h"
#include "kernels/cpu/rows/register.h"
#include "kernels/cpu/training/register.h"

namespace plait {

namespace {

/// Those that can be used, up to the limit.
std::vector<cpu::Isa> isas_up_to(std::string_view isa_limit) {
  std::vector<cpu::Isa> out = cpu::usable_isas();
  if (isa_limit.empty()) return out;
  int count = isa_limit == "reference" ? 0 : -1;
  for (int isa = 0; isa <= static_cast<int>(cpu::Isa::amx); ++isa)
    if (cpu::isa_name(static_cast<cpu::Isa>(isa)) == isa_limit) count = isa + 1;
  if (count < 0)
    throw Error(Code::invalid_argument, cat("unknown instruction set ", quote(isa_limit)),
                "use reference, avx2, avx512, avx512_bf16 or amx");
  out.resize(std::min(out.size(), static_cast<size_t>(count)));
  return out;
}

}  // namespace

void register_cpu_kernels(KernelTable& table, std::string_view isa_limit) {
  using namespace cpu;
  for (Isa isa : isas_up_to(isa_limit)) {
    add_training(table, isa);  // before add_linear, whose kernels take all Linears
    add_linear(table, isa);
    add_adapters(table, isa);
    add_experts(table, isa);
    add_array_attention(table, isa);
    add_attention(table, isa);
    add_rows(table, isa);
    add_moves(table, isa);
    add_elementwise(table, isa);
    add_comparisons(table, isa);
    add_steps(table, isa);
    add_matmul(table, isa);
    add_integer_products(table, isa);
    add_quantize(table, isa);
    add_packed_attention(table, isa);
    add_reduce(table, isa);
    add_transpose(table, isa);
    add_image(table, isa);
    add_recurrent(table, isa);
    add_layers(table, isa);
    add_packed_recurrent(table, isa);
  }
}

std::vector<std::string> cpu_isas(std::string_view isa_limit) {
  std::vector<std::string> out;
  for (cpu::Isa isa : isas_up_to(isa_limit)) out.emplace_back(cpu::isa_name(isa));
  return out;
}

}  // namespace plait

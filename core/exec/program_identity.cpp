#include "core/exec/program_identity.h"

#include <algorithm>
#include <functional>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/text.h"

namespace plait {
namespace {

void add_sample(const Constant& constant, std::string& out) {
  for (const auto& part : constant.parts) add_sample(part, out);
  const Tensor& source = constant.source;
  if (!source.present() || !source.bytes()) return;
  constexpr int64_t most = 64;
  const int64_t count = std::min(most, source.bytes());
  for (int64_t at : {int64_t{0}, (source.bytes() - count) / 2, source.bytes() - count})
    out.append(reinterpret_cast<const char*>(source.data()) + at, static_cast<size_t>(count));
}

std::string names_of(const ProgramIdentities& programs) {
  std::vector<std::string> out;
  for (const ProgramIdentity& one : programs)
    if (one.common) out.push_back(one.name);
  return join(out, ", ");
}

}  // namespace

ProgramIdentity identity_of(std::string name, const Program& program) {
  std::string sample;
  for (const StoreEntry& entry : program.entries)
    if (entry.source) {
      entry.source->check_source();
      add_sample(*entry.source, sample);
    }
  return {std::move(name), program.fingerprint, hash_of(sample)};
}

void ProgramAgreement::add(const ProgramIdentities& programs, int64_t rank) {
  const std::string hint = "all ranks need the same model, options and version of Plait", common = names_of(programs);
  if (first_ < 0) first_ = rank, common_ = common;
  if (common != common_)
    throw Error(Code::invalid_argument,
                cat("rank ", rank, " compiled the programs ", common, "; rank ", first_, " compiled ", common_), hint);
  for (const ProgramIdentity& one : programs) {
    const auto [known, fresh] = known_.try_emplace(one.name, Known{one, rank});
    const auto& [own, its_rank] = known->second;
    if (one.program != own.program)
      throw Error(Code::invalid_argument,
                  cat("rank ", rank, " compiled another program ", own.name, " (fingerprint ", one.program,
                      ") than rank ", its_rank, " (", own.program, ")"),
                  hint);
    if (one.weights != own.weights)
      throw Error(Code::invalid_argument,
                  cat("rank ", rank, " has other weights than rank ", its_rank, ", of the same names and sizes"),
                  "all ranks need the same files");
  }
}

}  // namespace plait

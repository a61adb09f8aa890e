// plait doctor: what this machine has, and what of it is used.
#include <nlohmann/json.hpp>

#include "bindings/cli/common.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string joined(const Json& words) {
  std::string out;
  for (const Json& word : words) out += (out.empty() ? "" : ", ") + word.get<std::string>();
  return out;
}

std::string bytes(const Json& number) {
  return number.is_null() ? "an unknown part" : rounded(number.get<double>(), "B");
}

/// Why a part is not there, and what to do.
std::string missing(const Json& part) {
  const auto hint = part.at("hint").get<std::string>();
  return "no: " + part.at("reason").get<std::string>() + (hint.empty() ? "" : " (hint: " + hint + ")");
}

std::vector<std::vector<std::string>> rows_of(const Json& system) {
  const Json &processor = system.at("processor"), &memory = system.at("memory"), &mpi = system.at("mpi"),
             &cuda = system.at("cuda");
  const std::string sets = joined(processor.at("instruction_sets"));
  std::vector<std::vector<std::string>> out = {
      {"plait", system.at("version")},
      {"processor", processor.at("name").get<std::string>() + ", " +
                        std::to_string(processor.at("usable").get<int64_t>()) + " usable"},
      {"instruction sets", sets.empty() ? "none that the fast kernels need (AVX2)" : sets},
      {"memory", bytes(memory.at("bytes")) + ", " + bytes(memory.at("free_bytes")) + " of it free"},
      {"MPI", mpi.at("available") ? "yes: ranks may be processes, started by mpirun" : missing(mpi)},
      {"CUDA", cuda.at("available") ? "yes: driver " + cuda.at("driver").get<std::string>() +
                                          (cuda.at("nccl") ? ", with NCCL" : ", without NCCL")
                                    : missing(cuda)}};
  if (cuda.at("available"))
    for (const Json& device : cuda.at("devices"))
      out.push_back({device.at("device"), device.at("name").get<std::string>() + ", compute capability " +
                                              device.at("compute").get<std::string>() + ", " +
                                              bytes(device.at("bytes"))});
  const auto used = processor.at("used").get<std::string>();
  out.push_back({"used", "the processor, by kernels for " + used + (used == "reference" ? ", which are slow" : "") +
                             (cuda.at("available") ? "; a CUDA device with --option device=cuda" : "")});
  return out;
}

}  // namespace

int doctor(const DoctorArguments& arguments) {
  plait_api::Options options;
  for (const std::string& option : arguments.options) {
    const auto [key, value] = name_and_value(option, "--option");
    set_option(options, key, value);
  }
  const std::string text =
      plait_api::tensor([&](plait_tensor** out) { return plait_system(options.get(), out); }).text();
  answer(arguments.json ? text + "\n" : columns(rows_of(Json::parse(text))));
  return exit_ok;
}

}  // namespace plait::cli

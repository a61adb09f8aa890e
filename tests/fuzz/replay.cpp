// Runs a fuzzer's entry without libFuzzer: its seeds, mutations of them that are the same each time, and files.
//
//   NAME_replay [rounds]              mutations of each seed (default: 300)
//   NAME_replay FILE...               these inputs, as they are: what a fuzzer found
//   NAME_replay --seeds DIRECTORY     writes the seeds, for libFuzzer's corpus
//
// An input that breaks a promise ends the program; what it was stands on stderr.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/fuzz/fuzz.h"

namespace {

char at_work[512] = "";

/// Prints the current input; the signal then takes its course.
void on_crash(int signal) {
  if (write(STDERR_FILENO, at_work, std::strlen(at_work)) < 0) std::signal(signal, SIG_DFL);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(const std::string& input, const std::string& name) {
  std::snprintf(at_work, sizeof at_work, "failed: %s\n", name.c_str());
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

/// One to four changes of the kinds that readers stumble over: other bits, lengths that lie, parts that are missing,
/// come twice or elsewhere.
std::string mutated(std::string input, std::mt19937& random) {
  auto below = [&](size_t limit) { return limit ? random() % limit : 0; };
  for (size_t changes = 1 + below(4); changes > 0 && !input.empty(); --changes) {
    size_t at = below(input.size()), length = 1 + below(std::min<size_t>(input.size() - at, 64));
    constexpr char edges[] = {0, 1, 0x7F, static_cast<char>(0x80), static_cast<char>(0xFF)};
    switch (below(7)) {
      case 0: input[at] = static_cast<char>(input[at] ^ (1 << below(8))); break;
      case 1: input[at] = static_cast<char>(random()); break;
      case 2: input.replace(at, length, length, edges[below(std::size(edges))]); break;
      case 3: input.resize(at); break;
      case 4: input.erase(at, length); break;
      case 5: input.insert(below(input.size()), input.substr(at, length)); break;
      default: input.replace(at, length, input.substr(below(input.size()), length)); break;
    }
  }
  return input;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int write_seeds(const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  auto seeds = plait::fuzz::seeds();
  for (size_t i = 0; i < seeds.size(); ++i)
    std::ofstream(directory / ("seed" + std::to_string(i)), std::ios::binary) << seeds[i];
  return 0;
}

}  // namespace

int main(int count, char** words) {
  for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, on_crash);
  if (count == 3 && std::string_view(words[1]) == "--seeds") return write_seeds(words[2]);
  char* end = nullptr;
  unsigned long rounds = count > 1 ? std::strtoul(words[1], &end, 10) : 300;
  if (count > 1 && *end != '\0') {
    for (int i = 1; i < count; ++i) run(bytes_of(words[i]), words[i]);
    return 0;
  }
  auto seeds = plait::fuzz::seeds();
  if (seeds.empty()) return std::fprintf(stderr, "there are no seeds\n"), 1;
  for (size_t seed = 0; seed < seeds.size(); ++seed) {
    const long before = plait::fuzz::accepted;
    run(seeds[seed], "seed " + std::to_string(seed));
    if (plait::fuzz::accepted == before)
      return std::fprintf(stderr, "seed %zu is refused, so that nothing would be tested: %s\n", seed,
                          plait::fuzz::refusal.c_str()),
             1;
    for (unsigned round = 0; round < rounds; ++round) {
      std::mt19937 random(static_cast<uint32_t>(seed) * 100003 + round);
      run(mutated(seeds[seed], random), "seed " + std::to_string(seed) + " round " + std::to_string(round));
    }
  }
  std::printf("%zu seeds, %lu mutations of each\n", seeds.size(), rounds);
  return 0;
}

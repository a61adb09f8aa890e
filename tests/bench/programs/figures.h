#pragma once
// What every benchmark program does with its figures: a line each on stdout, and with --json FILE all of them there.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace plait::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_of(const std::function<void()>& call) {
  const auto from = Clock::now();
  call();
  return std::chrono::duration<double>(Clock::now() - from).count();
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size()) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Figures {
 public:
  /// Takes --json FILE out of a program's arguments; the rest stay in `arguments`.
  Figures(int count, char** words) {
    for (int i = 1; i < count; ++i) {
      if (std::string(words[i]) == "--json" && i + 1 < count) path_ = words[++i];
      else arguments.emplace_back(words[i]);
    }
  }

  /// `facts` describe what was measured: {"threads": 2}.
  void about(nlohmann::ordered_json facts) { out_.update(facts); }
  void add(nlohmann::ordered_json row) { out_["rows"].push_back(std::move(row)); }

  /// The program's exit status.
  int finish() const {
    if (path_.empty()) return 0;
    std::ofstream file(path_);
    file << out_.dump(1) << "\n";
    file.close();
    if (file) return 0;
    std::fprintf(stderr, "cannot write %s\n", path_.c_str());
    return 1;
  }

  std::vector<std::string> arguments;

 private:
  std::string path_;
  nlohmann::ordered_json out_ = nlohmann::ordered_json::object();
};

}  // namespace plait::bench

#pragma once
// Texts that are kept in the repository, and made anew on demand.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace plait::test {

/// The file's contents; "" when there is none. `path` is that in the repository.
inline std::string golden(const std::string& path) {
  std::stringstream out;
  out << std::ifstream(PLAIT_SOURCE_DIR "/" + path).rdbuf();
  return out.str();
}

/// The file holds this text; with PLAIT_WRITE_DOCS in the environment it does afterwards.
inline void expect_golden(const std::string& path, const std::string& text, const std::string& suite) {
  if (std::getenv("PLAIT_WRITE_DOCS")) {
    std::ofstream(PLAIT_SOURCE_DIR "/" + path) << text;
    return;
  }
  std::istringstream is(text), was(golden(path));
  for (int line = 1; is || was; ++line) {
    std::string now, before;
    std::getline(is, now);
    std::getline(was, before);
    if (now == before) continue;
    ADD_FAILURE() << path << ":" << line << " contains\n  " << before << "\nand it is\n  " << now
                  << "\nIf that is right: PLAIT_WRITE_DOCS=1 ./run test " << suite;
    return;
  }
}

}  // namespace plait::test

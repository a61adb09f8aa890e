#pragma once
// What the tests of core/train share: a folder that goes away, errors as values, the tokenizer of a fixture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/text/tokenizer.h"

namespace plait::test {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "plait-train-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  std::string path_;
};

inline std::string bytes_of(const std::string& path) { return read_text_file(path); }

/// Of what `body` throws; code ok if it throws nothing.
template <class Body>
Error error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::ok, "no error");
}

/// `body` throws this code, with these words in its message.
template <class Body, class... Words>
void expect_error(Body body, Code code, const Words&... words) {
  const Error error = error_of(body);
  EXPECT_EQ(code_name(error.code()), code_name(code)) << error.message();
  for (const std::string& word : {std::string(), std::string(words)...})
    EXPECT_THAT(error.message(), testing::HasSubstr(word));
}

/// Bytes and words; <s> is put before a text, </s> ends one. `chat_template`: "" for the file's own.
inline Tokenizer tokenizer(const std::string& chat_template = "") {
  const std::string folder = PLAIT_FIXTURES "/gemma3-standard23/";
  const std::string json = read_text_file(folder + "tokenizer.json"),
                    config = read_text_file(folder + "tokenizer_config.json");
  return Tokenizer::from_bytes({.tokenizer_json = json, .tokenizer_config = config, .chat_template = chat_template});
}

}  // namespace plait::test

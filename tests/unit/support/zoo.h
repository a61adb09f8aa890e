#pragma once
// The models of tests/fixtures/zoo, for tests that go over all of them: `zoo()` lists them as the manifest does.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "tests/unit/support/models.h"

namespace plait::test {

/// A prompt and what ONNX Runtime makes of it.
struct ZooPrompt {
  std::vector<int32_t> ids;
  std::vector<int32_t> greedy;
  std::string logits;  ///< .npy of f32 [s, v]
};

/// One export of one model.
struct ZooModel {
  std::string name;         ///< "llama/dynamo18"
  std::string family;       ///< exports of one have equal weights, as far as they are f32
  std::string path;         ///< of the .onnx file
  std::string padding;      ///< on which side the prompts of a batch may be padded: "left", "right"; "" if on none
  std::string plain;        ///< why raise leaves it as it is; "": it is recognised
  std::string raised_only;  ///< why it does not run as written, without raise; "": it does
  bool exact = true;        ///< f32: logits to 1e-4 of the largest and equal tokens; otherwise by NMSE, see expect_close
  /// Raise makes of it what it makes of the family's other exports: all f32 ones but those that the script lists, with
  /// the reason.
  bool comparable = true;
  std::vector<ZooPrompt> prompts;
};

/// For GoogleTest's messages.
inline void PrintTo(const ZooModel& model, std::ostream* out) { *out << model.name; }

/// Where the build has unpacked them.
inline std::string zoo_folder() { return PLAIT_FIXTURES "/zoo"; }

inline std::vector<ZooModel> read_zoo() {
  using Json = nlohmann::json;
  Json manifest = Json::parse(read_text_file(PLAIT_SOURCE_DIR "/tests/fixtures/zoo/manifest.json"));
  std::vector<ZooModel> out;
  for (const Json& row : manifest.at("models")) {
    ZooModel model;
    model.name = row.at("name");
    model.family = model.name.substr(0, model.name.find('/'));
    model.path = cat(zoo_folder(), "/", model.name, "/", row.at("file").get<std::string>());
    model.padding = row.at("padding");
    model.plain = row.at("plain");
    model.raised_only = row.at("raised_only");
    model.exact = row.at("exact");
    model.comparable = row.at("differs").get<std::string>().empty() && model.exact && model.plain.empty();
    for (const Json& prompt : row.at("prompts"))
      model.prompts.push_back({prompt.at("ids"), prompt.at("greedy"),
                               cat(zoo_folder(), "/", model.family, "/", prompt.at("logits").get<std::string>())});
    out.push_back(std::move(model));
  }
  return out;
}

inline const std::vector<ZooModel>& zoo() {
  static const std::vector<ZooModel> models = read_zoo();
  return models;
}

inline Graph imported(const ZooModel& model) { return import_file(model.path, World::get().ops).graph; }

/// The f32 elements of an .npy file (numpy.lib.format, version 1: ten bytes, the last two the header's length).
inline std::vector<float> read_npy(const std::string& path) {
  auto blob = map_file(path);
  auto* bytes = reinterpret_cast<const uint8_t*>(blob->data());
  if (blob->size() < 10) throw Error(Code::bad_model, path + " is no .npy file");
  auto begin = static_cast<size_t>(10 + bytes[8] + 256 * bytes[9]);
  std::vector<float> out((static_cast<size_t>(blob->size()) - begin) / sizeof(float));
  std::memcpy(out.data(), bytes + begin, out.size() * sizeof(float));
  return out;
}

/// Logits as they have to be: relative to the largest, or the mean square of what is wrong as a share of what is
/// right.
inline void expect_close(const ZooModel& model, std::span<const float> got, std::span<const float> expected) {
  ASSERT_EQ(got.size(), expected.size());
  double most = 0, error = 0, power = 0, sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    double apart = double{got[i]} - double{expected[i]};
    most = std::max(most, std::fabs(double{expected[i]}));
    error = std::isfinite(apart) ? std::max(error, std::fabs(apart)) : INFINITY;
    sum += apart * apart;
    power += double{expected[i]} * double{expected[i]};
  }
  // accuracy_level 4: ONNX Runtime rounds activations to 8 bits also where it does not optimise.
  const bool rounds = model.name.ends_with("genai_int4");
  if (model.exact) EXPECT_LE(error / most, 1e-4);
  else EXPECT_LE(sum / power, rounds ? 1e-3 : 1e-9);
}

/// A name that GoogleTest takes.
inline std::string test_name(std::string name) {
  for (char& letter : name)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return name;
}

}  // namespace plait::test

// Outside measures of grammars, of files that are fetched: JSON-Schema-Test-Suite, and a model's own tokenizer.
//
//   pip download --no-deps --no-binary :all: jsonschema==4.26.0      its archive has the suite, below json/tests
//   PLAIT_SCHEMA_SUITE=.../json/tests/draft2020-12 text_test --gtest_filter=SchemaSuite.*
//   PLAIT_TOKENIZER=DIRECTORY text_test --gtest_filter=MaskTimes.*   DIRECTORY has a tokenizer.json
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/text/constraint.h"
#include "tests/unit/text/tiny_tokenizers.h"

namespace plait::text_test {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// Whether the grammar takes the text, byte by byte, to its end.
bool accepts(const Tokenizer& tokenizer, const std::vector<int32_t>& bytes, const Grammar& grammar,
             std::string_view text) {
  Constraint state = grammar.start();
  while (!text.empty()) {
    const NextTokens next = state.next();
    if (next.ended) return false;
    int32_t id = bytes[static_cast<unsigned char>(text[0])];
    if (!next.forced.empty()) {
      id = next.forced[0];
    } else if (const auto word = static_cast<size_t>(id) / 32; !(next.mask[word] >> (id % 32) & 1)) {
      return false;
    }
    const std::string piece = tokenizer.token_bytes(id);
    if (!text.starts_with(piece)) return false;
    text.remove_prefix(piece.size());
    if (state.commit(id)) return text.empty();
  }
  const NextTokens next = state.next();
  return next.ended || next.may_end;
}

TEST(SchemaSuite, WhatIsCompiledIsFollowed) {
  const char* folder = std::getenv("PLAIT_SCHEMA_SUITE");
  if (!folder) GTEST_SKIP() << "no PLAIT_SCHEMA_SUITE";
  const Tokenizer tokenizer = make(byte_level());
  std::vector<int32_t> bytes(256, -1);
  for (int32_t id = tokenizer.vocab_size() - 1; id >= 0; --id)
    if (const std::string one = tokenizer.token_bytes(id); one.size() == 1 && !tokenizer.is_special(id))
      bytes[static_cast<unsigned char>(one[0])] = id;
  int groups = 0, compiled = 0, valid = 0, valid_accepted = 0, invalid = 0, invalid_accepted = 0;
  std::vector<std::string> wrong;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    for (const OrderedJson& group : OrderedJson::parse(file)) {
      ++groups;
      std::shared_ptr<const Grammar> grammar;
      try {
        grammar = Grammar::compile(tokenizer, GrammarKind::json_schema, group["schema"].dump());
      } catch (const Error& error) {
        EXPECT_NE(error.code(), Code::internal) << group["description"] << error.what();
        // A schema that nothing matches is refused, and so it should be.
        continue;
      }
      ++compiled;
      for (const OrderedJson& test : group["tests"]) {
        const bool takes = accepts(tokenizer, bytes, *grammar, test["data"].dump());
        if (test["valid"]) {
          ++valid, valid_accepted += takes;
        } else {
          ++invalid, invalid_accepted += takes;
          if (takes)
            wrong.push_back(cat(entry.path().filename().string(), ": ", group["description"].get<std::string>(), ": ",
                                test["description"].get<std::string>()));
        }
      }
    }
  }
  std::cout << "schemas compiled: " << compiled << " of " << groups
            << "; valid instances accepted: " << valid_accepted << " of " << valid
            << "; invalid ones accepted: " << invalid_accepted << " of " << invalid << "\n";
  for (const std::string& one : wrong) std::cout << "  accepted: " << one << "\n";
  EXPECT_GT(compiled, 0);
  EXPECT_LT(invalid_accepted * 50, invalid);
  EXPECT_GT(valid_accepted * 10, valid * 7);
}

TEST(MaskTimes, OfATokenizer) {
  const char* folder = std::getenv("PLAIT_TOKENIZER");
  if (!folder) GTEST_SKIP() << "no PLAIT_TOKENIZER";
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const auto micros = [](auto body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  };
  std::cout << tokenizer.vocab_size() << " tokens; tree: " << micros([&] { tokenizer.prepare_grammars(); }) / 1e3
            << " ms\n";
  const std::pair<const char*, const char*> schemas[] = {
      {"simple", R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
                 "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5}},
                 "required": ["name", "age", "tags"], "additionalProperties": false})"},
      {"json_object", R"({"type": "object"})"},
      {"patterns", R"({"type": "object", "properties": {"id": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
                   "at": {"type": "string", "format": "date-time"}, "kind": {"enum": ["alpha", "beta", "gamma"]},
                   "text": {"type": "string", "maxLength": 60}},
                   "required": ["id", "at", "kind", "text"], "additionalProperties": false})"}};
  for (const auto& [name, schema] : schemas) {
    std::shared_ptr<const Grammar> grammar;
    const double compiling = micros([&, &schema = schema] { grammar = Grammar::compile(tokenizer, GrammarKind::json_schema, schema); });
    std::vector<double> masks, commits, starts;
    std::mt19937 random(1);
    int forced = 0;
    for (int round = 0; round < 100; ++round) {
      std::optional<Constraint> started;
      starts.push_back(micros([&] { started = grammar->start(); }));
      Constraint& state = *started;
      for (int i = 0; i < 80; ++i) {
        NextTokens next;
        masks.push_back(micros([&] { next = state.next(); }));
        if (next.ended || (next.may_end && random() % 3 == 0)) break;
        int32_t id = 0;
        if (!next.forced.empty()) {
          id = next.forced[0];
          ++forced;
        } else {
          do id = static_cast<int32_t>(random() % static_cast<uint32_t>(tokenizer.vocab_size()));
          while (random() % 64 && !(next.mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1));
          while (!(next.mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1)) id = (id + 1) % tokenizer.vocab_size();
        }
        bool ended = false;
        commits.push_back(micros([&] { ended = state.commit(id); }));
        if (ended) break;
      }
    }
    std::sort(masks.begin(), masks.end());
    std::sort(commits.begin(), commits.end());
    std::sort(starts.begin(), starts.end());
    const auto at = [](const std::vector<double>& sorted, double part) {
      return sorted[std::min(sorted.size() - 1, static_cast<size_t>(part * static_cast<double>(sorted.size())))];
    };
    std::cout << name << ": grammar and first mask " << compiling << " us; masks " << masks.size() << ", p50 "
              << at(masks, 0.5) << " us, p90 " << at(masks, 0.9) << ", p99 " << at(masks, 0.99) << ", largest "
              << masks.back() << "; commit p50 " << at(commits, 0.5) << ", p99 " << at(commits, 0.99)
              << "; start p50 " << at(starts, 0.5) << ", p99 " << at(starts, 0.99) << "; forced "
              << 100 * forced / static_cast<int>(masks.size()) << " %\n";
  }
}

}  // namespace
}  // namespace plait::text_test

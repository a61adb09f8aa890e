#pragma once
// What becomes of each field of a body: read, without effect on the answer, or refused by name. One table for all wires.
#include <span>
#include <string_view>

#include "serving/http/base/json_fields.h"

namespace plait::http {

enum class Wire { chat, completions, responses, messages, embeddings };

struct KnownField {
  enum class Use {
    read,
    harmless,  ///< changes nothing of the answer's tokens: names, caches, tiers
    refused,   ///< unless its value is the usual one
  };
  const char* name;
  Use use;
  const char* usual =
      nullptr;  ///< of `refused`: JSON that asks for nothing; null, false and what is empty do not either
  const char* why = nullptr;  ///< of `refused`, in place of "is not supported"
};

/// Of OpenAI's, Anthropic's, vLLM's, llama.cpp's and transformers' documents, next to those of one wire.
std::span<const KnownField> known_fields();
std::span<const KnownField> known_fields(Wire wire);

/// Throws HttpError(400) for a field that is refused, or that no table has.
void check_fields(const Fields& body, Wire wire);

}  // namespace plait::http

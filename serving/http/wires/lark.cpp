#include "serving/http/wires/lark.h"

#include "serving/http/base/json_fields.h"

namespace plait::http {

std::string lark_text(const std::string& text) { return dumped(Json(text)); }

std::string lark_of(const std::string& mark, const plait_api::Tokenizer& tokenizer) {
  std::string out, text;
  const auto flush = [&] {
    if (!text.empty()) out += lark_text(text) + " ";
    text.clear();
  };
  // Special tokens are found one by one, since tokens of the text around them depend on it.
  for (size_t at = 0; at < mark.size();) {
    size_t taken = 0;
    for (const int32_t id : tokenizer.encode(mark.substr(at), false)) {
      const std::string piece = tokenizer.decode({id}, false);
      if (!piece.empty() && tokenizer.decode({id}, true).empty()) {
        const size_t found = mark.find(piece, at);
        if (found == std::string::npos) continue;
        text += mark.substr(at, found - at);
        flush();
        out += "<[" + std::to_string(id) + "]> ";
        taken = found + piece.size() - at;
        break;
      }
    }
    if (taken == 0) {
      text += mark.substr(at);
      break;
    }
    at += taken;
  }
  flush();
  return out;
}

std::string lark_with_ids(const std::string& mark, const plait_api::Tokenizer& tokenizer) {
  const std::string id = "PLAITID00";
  const size_t at = mark.find(id);
  if (at == std::string::npos) return lark_of(mark, tokenizer);
  return lark_of(mark.substr(0, at), tokenizer) + "/[a-zA-Z0-9]{9}/ " +
         lark_with_ids(mark.substr(at + id.size()), tokenizer);
}

bool has_special(const std::string& mark, const plait_api::Tokenizer& tokenizer) {
  return lark_of(mark, tokenizer).find("<[") != std::string::npos;
}

}  // namespace plait::http

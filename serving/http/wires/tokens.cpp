// POST /tokenize and /detokenize, as vLLM has them.
#include "serving/http/base/failure.h"
#include "serving/http/wires/chat.h"

namespace plait::http {

std::unique_ptr<Answer> tokenize(const Models& models, std::string_view text) {
  const Json json = parse_body(text);
  const Fields body(json);
  const Named named = model_of(models, body);
  const plait_api::Tokenizer tokenizer = named.served->tokenizer();
  std::vector<int32_t> ids;
  if (body.find("messages")) {
    ids = prompt_tokens(chat_of(models, text, body), body.flag("add_special_tokens").value_or(false));
  } else {
    ids = tokenizer.encode(body.required_text("prompt"), body.flag("add_special_tokens").value_or(true));
  }
  Json out = {{"tokens", ids}, {"count", ids.size()}, {"max_model_len", named.served->context()}};
  if (body.flag("return_token_strs").value_or(false)) {
    const TokenTexts texts(named.served->tokenizer());
    out["token_strs"] = Json::array();
    for (const int32_t id : ids) out["token_strs"].push_back(texts.text(id));
  }
  return std::make_unique<Reply>(dumped(out));
}

std::unique_ptr<Answer> detokenize(const Models& models, std::string_view text) {
  const Json json = parse_body(text);
  const Fields body(json);
  const Named named = model_of(models, body);
  const Json& tokens = body.required("tokens");
  if (!tokens.is_array()) reject("tokens", "expected a list of token ids");
  std::vector<int32_t> ids;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].is_number_integer() || tokens[i] < 0 || tokens[i] > INT32_MAX)
      reject("tokens[" + std::to_string(i) + "]", "expected a token id");
    ids.push_back(tokens[i].get<int32_t>());
  }
  return std::make_unique<Reply>(dumped({{"prompt", named.served->tokenizer().decode(ids, false)}}));
}

}  // namespace plait::http

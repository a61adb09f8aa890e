// Tokenizers of the C API.
#include "bindings/c/objects.h"

using namespace plait;
using namespace plait::c_api;

plait_status plait_tokenizer_encode(plait_tokenizer* tokenizer, const char* text, int64_t length, int32_t add_special,
                                    plait_tensor** ids) {
  return create(ids, [&] {
    auto object = object_of<TokenizerObject>(tokenizer);
    auto encoded = object->tokenizer->encode(text_of(text, length, "text"), add_special != 0);
    return share(Tensor::of<int32_t>(DType::i32, Shape{static_cast<int64_t>(encoded.size())}, encoded));
  });
}

plait_status plait_tokenizer_decode(plait_tokenizer* tokenizer, const int32_t* ids, int64_t count,
                                    int32_t skip_special, plait_tensor** text) {
  return create(text, [&] {
    auto object = object_of<TokenizerObject>(tokenizer);
    return text_tensor(object->tokenizer->decode(span_of(ids, count, "ids"), skip_special != 0));
  });
}

plait_status plait_tokenizer_chat(plait_tokenizer* tokenizer, const char* messages, int64_t length,
                                  plait_options* options, plait_tensor** text) {
  return create(text, [&] {
    auto object = object_of<TokenizerObject>(tokenizer);
    Settings settings = settings_of(options, for_request);
    std::string tools = settings.text("tools"), variables = settings.text("chat_variables");
    ChatRequest chat{text_of(messages, length, "messages"), tools, variables};
    return text_tensor(object->tokenizer->render_chat(chat));
  });
}

plait_status plait_tokenizer_piece(plait_tokenizer* tokenizer, int32_t id, plait_tensor** text) {
  return create(text, [&] { return text_tensor(object_of<TokenizerObject>(tokenizer)->tokenizer->id_to_piece(id)); });
}

plait_status plait_tokenizer_id(plait_tokenizer* tokenizer, const char* piece, int64_t length, int32_t* id) {
  return guarded([&] {
    *required(id, "id") = 0;
    std::string_view text = text_of(piece, length, "piece");
    auto found = object_of<TokenizerObject>(tokenizer)->tokenizer->piece_to_id(text);
    if (!found) throw Error(Code::not_found, cat("the vocabulary has no piece ", quote(text)));
    *id = *found;
  });
}

plait_status plait_tokenizer_bytes(plait_tokenizer* tokenizer, int32_t id, plait_tensor** bytes) {
  return create(bytes, [&] {
    const std::string made = object_of<TokenizerObject>(tokenizer)->tokenizer->token_bytes(id);
    const std::vector<uint8_t> all(made.begin(), made.end());
    return share(Tensor::of<uint8_t>(DType::u8, Shape{static_cast<int64_t>(all.size())}, all));
  });
}

plait_status plait_tokenizer_info(plait_tokenizer* tokenizer, plait_tokenizer_facts* out) {
  return guarded([&] {
    auto object = object_of<TokenizerObject>(tokenizer);
    plait_tokenizer_facts facts{};
    facts.vocabulary = object->tokenizer->vocab_size();
    facts.bos = object->tokenizer->bos_id().value_or(-1);
    facts.eos = object->tokenizer->eos_id().value_or(-1);
    facts.has_chat_template = object->tokenizer->has_chat_template();
    fill(out, facts);
  });
}

plait_status plait_tokenizer_cancel(plait_tokenizer* tokenizer) {
  return guarded([&] { object_of<TokenizerObject>(tokenizer)->tokenizer->cancel(); });
}

plait_status plait_tokenizer_release(plait_tokenizer* tokenizer) { return release<TokenizerObject>(tokenizer); }

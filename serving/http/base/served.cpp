#include "serving/http/base/served.h"

#include <nlohmann/json.hpp>

namespace plait::http {

bool Served::ready() const {
  const plait_status status = plait_generator_wait(generator_, 0);
  if (status != PLAIT_TIMEOUT) plait_api::check(status);
  return status == PLAIT_OK;
}

plait_generator_stats Served::statistics() const {
  plait_generator_stats out{};
  out.struct_size = sizeof out;
  plait_api::check(plait_generator_statistics(generator_, &out));
  return out;
}

Json Served::histograms() const {
  const plait_api::Tensor json =
      plait_api::tensor([&](plait_tensor** out) { return plait_generator_histograms(generator_, out); });
  return Json::parse(json.text());
}

Json Served::ranks() const {
  const plait_api::Tensor json =
      plait_api::tensor([&](plait_tensor** out) { return plait_generator_ranks(generator_, out); });
  return Json::parse(json.text());
}

std::vector<std::string> Served::adapters() const {
  const plait_api::Tensor json =
      plait_api::tensor([&](plait_tensor** out) { return plait_generator_adapters(generator_, out); });
  return nlohmann::json::parse(json.text()).get<std::vector<std::string>>();
}

plait_api::Tokenizer Served::tokenizer() const {
  return plait_api::Tokenizer(
      plait_api::made<plait_tokenizer>([&](plait_tokenizer** out) { return plait_tokenizer_of_model(model_, out); }));
}

std::string Served::render(const Json& messages, const Json& tools, bool generation,
                           const std::string& variables) const {
  plait_api::Options options;
  if (!tools.is_null()) options.set("tools", dumped(tools));
  Json all = variables.empty() ? Json::object() : Json::parse(variables, nullptr, false);
  if (!all.is_object()) all = Json::object();
  all["add_generation_prompt"] = generation;
  options.set("chat_variables", dumped(all));
  const std::string text = dumped(messages);
  const plait_api::Tokenizer used = tokenizer();
  return plait_api::tensor([&](plait_tensor** out) {
           return plait_tokenizer_chat(used.get(), text.data(), static_cast<int64_t>(text.size()), options.get(),
                                       out);
         })
      .text();
}

const ToolFormat& Served::tool_format() const {
  std::call_once(probed_, [this] {
    format_ = probe_tool_format([this](const Json& messages, const Json& tools, bool generation) {
      return render(messages, tools, generation, {});
    });
  });
  return format_;
}

}  // namespace plait::http

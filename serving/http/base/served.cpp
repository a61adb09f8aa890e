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

std::vector<std::string> Served::adapters() const {
  const plait_api::Tensor json =
      plait_api::tensor([&](plait_tensor** out) { return plait_generator_adapters(generator_, out); });
  return nlohmann::json::parse(json.text()).get<std::vector<std::string>>();
}

plait_api::Tokenizer Served::tokenizer() const {
  return plait_api::Tokenizer(
      plait_api::made<plait_tokenizer>([&](plait_tokenizer** out) { return plait_tokenizer_of_model(model_, out); }));
}

}  // namespace plait::http

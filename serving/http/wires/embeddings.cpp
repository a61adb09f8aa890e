// POST /v1/embeddings: platform.openai.com/docs/api-reference/embeddings.
#include <cmath>
#include <cstring>

#include "serving/http/base/failure.h"
#include "serving/http/wires/common.h"
#include "serving/http/wires/known_fields.h"

namespace plait::http {
namespace {

/// RFC 4648, section 4.
std::string base64(std::string_view bytes) {
  static constexpr char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? letters[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

class EmbeddingWriter : public Writer {
 public:
  EmbeddingWriter(std::string model, bool as_base64, std::optional<int64_t> dimensions)
      : model_(std::move(model)), as_base64_(as_base64), dimensions_(dimensions) {}

  void event(int32_t, const plait_event&, std::string&) override {}

  void end(const Totals& totals, const std::vector<plait_api::Request>& requests, std::string& out) override {
    Json data = Json::array();
    for (size_t i = 0; i < requests.size(); ++i) {
      std::vector<float> vector = requests[i].result().values<float>();
      if (dimensions_) {
        if (*dimensions_ > static_cast<int64_t>(vector.size()))
          reject("dimensions",
                 "is " + std::to_string(*dimensions_) + ", the model has " + std::to_string(vector.size()));
        vector.resize(static_cast<size_t>(*dimensions_));
      }
      double square = 0;
      for (const float one : vector) square += static_cast<double>(one) * one;
      const double scale = square > 0 ? 1 / std::sqrt(square) : 1;
      for (float& one : vector) one = static_cast<float>(one * scale);
      Json value = vector;
      if (as_base64_) value = base64({reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float)});
      data.push_back({{"object", "embedding"}, {"index", i}, {"embedding", std::move(value)}});
    }
    out = dumped({{"object", "list"},
                  {"data", std::move(data)},
                  {"model", model_},
                  {"usage", {{"prompt_tokens", totals.prompt}, {"total_tokens", totals.prompt}}}});
  }

 private:
  const std::string model_;
  const bool as_base64_;
  const std::optional<int64_t> dimensions_;
};

}  // namespace

std::unique_ptr<Answer> embeddings(const Models& models, std::string_view text) {
  const Json json = parse_body(text);
  const Fields body(json);
  check_fields(body, Wire::embeddings);
  const Named named = model_of(models, body);
  const std::string form = body.text("encoding_format").value_or("float");
  if (form != "float" && form != "base64") reject("encoding_format", "is \"" + form + "\", expected float or base64");
  const std::string pooling = body.text("pooling").value_or("last");
  if (pooling != "last" && pooling != "mean") reject("pooling", "is \"" + pooling + "\", expected last or mean");
  plait_api::Options options;
  options.set("kind", "embed").set("pooling", pooling);
  if (!named.adapter.empty()) options.set("adapter", named.adapter);
  const std::vector<const Json*> inputs = prompts_of(body.required("input"), "input");
  std::vector<plait_api::Request> requests;
  for (size_t i = 0; i < inputs.size(); ++i)
    requests.push_back(
        submit_prompt(named, *inputs[i], inputs.size() == 1 ? "input" : "input[" + std::to_string(i) + "]", options));
  auto writer =
      std::make_unique<EmbeddingWriter>(named.name, form == "base64", body.integer("dimensions", 1, 1 << 20));
  return std::make_unique<Generation>(std::move(requests), 1, std::move(writer), false, models.meter());
}

}  // namespace plait::http

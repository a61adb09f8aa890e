#pragma once
// A model that the server serves, and the names it has there.
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bindings/c/plait.hpp"
#include "serving/http/base/tool_format.h"

namespace plait::http {

/// Model and generator are the host's. Thread-safe.
class Served {
 public:
  Served(std::string name, plait_model* model, plait_generator* generator)
      : name_(std::move(name)), model_(model), generator_(generator) {}

  const std::string& name() const { return name_; }
  plait_model* model() const { return model_; }
  plait_generator* generator() const { return generator_; }
  /// False while it loads. Throws plait_api::Failure with what ended the loading.
  bool ready() const;
  plait_generator_stats statistics() const;
  Json histograms() const;
  Json ranks() const;
  std::vector<std::string> adapters() const;
  /// Waits while it loads. Throws plait_api::Failure if the model has none.
  plait_api::Tokenizer tokenizer() const;
  /// A prompt by the chat template. `variables`: of the template, a JSON object or "". Throws plait_api::Failure.
  std::string render(const Json& messages, const Json& tools, bool generation, const std::string& variables) const;
  /// Probed at the first call.
  const ToolFormat& tool_format() const;
  /// Tokens that a prompt and its continuation may have.
  int64_t context() const { return statistics().context; }

 private:
  const std::string name_;
  plait_model* const model_;
  plait_generator* const generator_;
  mutable std::once_flag probed_;
  mutable ToolFormat format_;
};

/// What a request's "model" names: a model, or an adapter of one.
struct Named {
  std::shared_ptr<const Served> served;
  std::string name;     ///< as it was asked for
  std::string adapter;  ///< "": none
};

}  // namespace plait::http

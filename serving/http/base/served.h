#pragma once
// A model that the server serves, and the names it has there.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/c/plait.hpp"

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
  std::vector<std::string> adapters() const;
  /// Waits while it loads. Throws plait_api::Failure if the model has none.
  plait_api::Tokenizer tokenizer() const;
  /// Tokens that a prompt and its continuation may have.
  int64_t context() const { return statistics().context; }

 private:
  const std::string name_;
  plait_model* const model_;
  plait_generator* const generator_;
};

/// What a request's "model" names: a model, or an adapter of one.
struct Named {
  std::shared_ptr<const Served> served;
  std::string name;     ///< as it was asked for
  std::string adapter;  ///< "": none
};

}  // namespace plait::http

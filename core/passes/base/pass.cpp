#include "core/passes/base/pass.h"

#include <chrono>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

void run_pass(const Pass& pass, Graph& graph, PassContext& context) {
  for (Node& node : graph.nodes)
    for (auto& [name, body] : node.bodies) {
      if (!pass.in_bodies || !body->refusal.empty()) continue;
      body = std::make_shared<Graph>(*body);  // several graphs may share it
      run_pass(pass, *body, context);
    }
  pass.run(graph, context);
}

}  // namespace

void run_passes(std::span<const Pass> passes, Graph& graph, PassContext& context) {
  for (const Pass& pass : passes) {
    if (context.options.off.count(std::string(pass.name))) continue;
    if (context.options.progress) context.options.progress->check();
    auto start = std::chrono::steady_clock::now();
    try {
      run_pass(pass, graph, context);
      verify(graph, pass.name);
    } catch (const Error& error) {
      throw error.at(cat("pass ", pass.name));
    }
    double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (context.options.log)
      context.options.log->write(LogLevel::debug, cat("pass ", pass.name, ": ", graph.nodes.size(), " nodes, ",
                                                      static_cast<int64_t>(ms * 1000), " us"));
    if (context.options.progress) context.options.progress->advance();
    if (context.options.dump) context.options.dump(pass.name, graph);
  }
}

}  // namespace plait

#include "core/passes/base/pass.h"

#include <chrono>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

void run_passes(std::span<const Pass> passes, Graph& graph, PassContext& context) {
  for (const Pass& pass : passes) {
    if (context.options.off.count(std::string(pass.name))) continue;
    if (context.options.progress) context.options.progress->check();
    auto start = std::chrono::steady_clock::now();
    try {
      pass.run(graph, context);
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

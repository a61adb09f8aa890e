#pragma once
// The command loop of ranks other than 0.
#include <memory>

#include "core/base/function_ref.h"
#include "core/comm/report.h"
#include "core/comm/world.h"
#include "core/exec/program_identity.h"
#include "core/ranks/fields.h"

namespace plait {

/// An engine's part on a rank other than 0.
class RankHandler {
 public:
  virtual ~RankHandler() = default;
  /// All programs this rank has compiled; rank 0 compares them with its own.
  virtual ProgramIdentities programs() const = 0;
  /// Executes a command (CommandSet::dispatch), and reports if it requires a report. Throwing ends the world.
  virtual void handle(ByteReader& command) = 0;
};

/// Makes the handler, reports to rank 0 (RankHost::agree), and handles commands until the end. Errors of `make` are
/// reported to rank 0, and this returns when rank 0 ends; later errors of the handler end the world and are rethrown,
/// as is the end of the world by other ranks.
void serve_rank(World& world, FunctionRef<std::unique_ptr<RankHandler>()> make);

/// The same for a rank without a graph: reports why, and returns when rank 0 ends.
void refuse_rank(World& world, const Error& why);

/// Reports values to rank 0 (Report::as).
template <class... Ts>
void report_ok(World& world, const Ts&... values) {
  ByteWriter out;
  put_fields(out, values...);
  world.report(ok_report(std::move(out)));
}

/// Runs `task`, which reports to rank 0; reports its error if it throws. The error affects no other rank.
void report_result(World& world, FunctionRef<void()> task);

}  // namespace plait

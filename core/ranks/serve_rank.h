#pragma once
// Any rank but 0: the loop that handles rank 0's commands.
#include <memory>

#include "core/base/function_ref.h"
#include "core/comm/report.h"
#include "core/comm/world.h"
#include "core/exec/program_identity.h"
#include "core/ranks/fields.h"

namespace plait {

/// What an engine is on a rank other than 0.
class RankHandler {
 public:
  virtual ~RankHandler() = default;
  /// All that this rank has compiled, which rank 0 compares with its own.
  virtual ProgramIdentities programs() const = 0;
  /// Does what a command asks for (CommandSet::dispatch), and reports if the command wants it. Throwing ends the world.
  virtual void handle(ByteReader& command) = 0;
};

/// Makes the handler, reports to rank 0 (RankHost::agree), and handles commands until the end. What `make` throws is reported
/// to rank 0, and this returns when rank 0 ends; what the handler throws later ends the world and is thrown, as is the end
/// of the world by other ranks.
void serve_rank(World& world, FunctionRef<std::unique_ptr<RankHandler>()> make);

/// The same for a rank that has no graph: reports why, and returns when rank 0 ends.
void refuse_rank(World& world, const Error& why);

/// Reports values to rank 0 (Report::as).
template <class... Ts>
void report_ok(World& world, const Ts&... values) {
  ByteWriter out;
  put_fields(out, values...);
  world.report(ok_report(std::move(out)));
}

/// Reports to rank 0 what `task` reports, or the error that it throws, which concerns no other rank.
void report_result(World& world, FunctionRef<void()> task);

}  // namespace plait

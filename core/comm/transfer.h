#pragma once
// Messages of any size between two ranks.
#include "core/comm/communicator.h"

namespace plait {

/// Sends `data` to a rank that calls `receive_pieces` with equal size and dtype. Each piece waits for the receiver, so that one
/// piece is in flight at most, whatever the size: send copies all of it, and refuses more than CommOptions allow.
void send_pieces(Communicator& communicator, const TensorView& data, int to);
void receive_pieces(Communicator& communicator, const TensorView& data, int from);

}  // namespace plait

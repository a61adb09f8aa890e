#include "core/comm/transfer.h"

#include <algorithm>

namespace plait {
namespace {

constexpr int64_t piece_bytes = int64_t{1} << 20;  // far above the cost of a message

/// Calls step(piece) for each piece of the data, as bytes.
template <class Step>
void each_piece(const TensorView& data, const Step& step) {
  for (int64_t begin = 0, all = data.bytes(); begin < all; begin += piece_bytes)
    step(TensorView{data.data + begin, DType::u8, {std::min(piece_bytes, all - begin)}});
}

/// What a receiver sends when it is ready for a piece.
struct Ready {
  uint8_t byte = 1;
  TensorView view() { return {reinterpret_cast<std::byte*>(&byte), DType::u8, {1}}; }
};

}  // namespace

void send_pieces(Communicator& communicator, const TensorView& data, int to) {
  each_piece(data, [&](const TensorView& piece) {
    communicator.recv(Ready().view(), to);
    communicator.send(piece, to);
  });
}

void receive_pieces(Communicator& communicator, const TensorView& data, int from) {
  each_piece(data, [&](const TensorView& piece) {
    communicator.send(Ready().view(), from);
    communicator.recv(piece, from);
  });
}

}  // namespace plait

#include "tests/unit/comm/ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>

#include "core/base/text.h"
#include "core/comm/mpi_world.h"

namespace plait {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

}  // namespace

bool under_mpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

std::unique_ptr<World> open_test_world(const CommOptions& options) {
  const char* plugin = std::getenv("PLAIT_MPI_PLUGIN");
  return open_mpi_world(options, plugin ? plugin : "");
}

std::vector<Transport> transports() {
  if (under_mpirun())
    return {
        {"mpi"}, {"mpi_delayed", 0, true}, {"mpi_messages", 0, false, true}, {"mpi_messages_delayed", 0, true, true}};
  std::vector<Transport> out;
  for (int threads : {1, 2, 3, 4, 8}) out.push_back({cat("threads", threads), threads});
  for (int threads : {2, 3}) out.push_back({cat("threads", threads, "_delayed"), threads, true});
  return out;
}

void pause_at_random() {
  thread_local std::minstd_rand random(std::random_device{}());
  const auto draw = random() % 64;
  if (draw < 32) return;
  std::this_thread::sleep_for(std::chrono::microseconds(draw == 63 ? 200 : draw - 32));
}

void on_threads(int size, const CommOptions& options, const std::function<void(std::unique_ptr<World>)>& rank) {
  auto worlds = make_thread_world(size, options);
  std::vector<std::thread> threads;
  for (auto& world : worlds)
    threads.emplace_back([&rank, world = std::move(world)]() mutable {
      try {
        rank(std::move(world));
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  for (auto& thread : threads) thread.join();
}

namespace {

void run_rank(World& world, const std::function<void(World&)>& rank) {
  try {
    rank(world);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << world.rank() << ": " << error.what();
    world.communicator().abort(error.what());
  }
}

/// The worlds of this process, by the transport's name: made by the first test that needs one, for all.
class ProcessWorlds : public testing::Environment {
 public:
  World& of(const std::string& name, const CommOptions& options) {
    auto& world = worlds_[name];
    if (!world) world = open_test_world(options);
    return *world;
  }
  void TearDown() override { worlds_.clear(); }

 private:
  std::map<std::string, std::unique_ptr<World>> worlds_;
};

}  // namespace

void on_ranks(const Transport& transport, const std::function<void(World&)>& rank, CommOptions options,
              const std::string& name) {
  static auto* worlds = static_cast<ProcessWorlds*>(testing::AddGlobalTestEnvironment(new ProcessWorlds));
  options.share_memory = !transport.messages;
  if (transport.delayed) options.delay = pause_at_random;
  if (transport.threads == 0) return run_rank(worlds->of(transport.name + name, options), rank);
  on_threads(transport.threads, options, [&](std::unique_ptr<World> world) { run_rank(*world, rank); });
}

int64_t Buffer::cells() const { return is_float(dtype_) || is_integer(dtype_) ? elements_ : view_bytes(); }

void Buffer::set(int64_t i, double value) {
  auto at = [&](size_t size) { return bytes_.data() + offset_ + i * size; };
  switch (dtype_) {
    case DType::f32: return store(at(4), static_cast<float>(value));
    case DType::f64: return store(at(8), value);
    case DType::f16: return store(at(2), to_float16(static_cast<float>(value)));
    case DType::bf16: return store(at(2), to_bfloat16(static_cast<float>(value)));
    case DType::u16:
    case DType::i16: return store(at(2), static_cast<int16_t>(value));
    case DType::u32:
    case DType::i32: return store(at(4), static_cast<int32_t>(value));
    case DType::u64:
    case DType::i64: return store(at(8), static_cast<int64_t>(value));
    default: return store(at(1), static_cast<int8_t>(value));
  }
}

double Buffer::get(int64_t i) const {
  auto at = [&](size_t size) { return bytes_.data() + offset_ + i * size; };
  switch (dtype_) {
    case DType::f32: return load<float>(at(4));
    case DType::f64: return load<double>(at(8));
    case DType::f16: return to_float(load<Float16>(at(2)));
    case DType::bf16: return to_float(load<BFloat16>(at(2)));
    case DType::u16: return load<uint16_t>(at(2));
    case DType::i16: return load<int16_t>(at(2));
    case DType::u32: return load<uint32_t>(at(4));
    case DType::i32: return load<int32_t>(at(4));
    case DType::u64: return static_cast<double>(load<uint64_t>(at(8)));
    case DType::i64: return static_cast<double>(load<int64_t>(at(8)));
    case DType::i8: return load<int8_t>(at(1));
    default: return load<uint8_t>(at(1));
  }
}

std::string Buffer::difference(const std::function<double(int64_t)>& value) const {
  for (int64_t i = 0; i < cells(); ++i)
    if (get(i) != value(i))
      return cat(dtype_name(dtype_), " [", elements_, "]: element ", i, " is ", get(i), ", not ", value(i));
  if (std::any_of(bytes_.end() - guard_bytes, bytes_.end(), [](std::byte b) { return b != guard; }))
    return cat(dtype_name(dtype_), " [", elements_, "]: bytes after the end were written");
  return "";
}

}  // namespace plait

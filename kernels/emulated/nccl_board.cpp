#include "kernels/emulated/nccl_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

namespace plait::emulated {
namespace {

constexpr const char* type_names[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                      "uint64", "float16", "float32", "float64", "bfloat16"};
constexpr const char* reduction_names[] = {"sum", "product", "max", "min"};

/// What an id has.
struct Ticket {
  uint64_t number;
  pid_t process;
  int file;
};
static_assert(sizeof(Ticket) <= sizeof(cuda::NcclId));

std::string path_of(pid_t process, int file) {
  return "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
}

/// Copies of this process's data: a file in memory, whose bytes are written once and given back when all have read them.
class Copies {
 public:
  static Copies& get() {
    static Copies copies;
    return copies;
  }
  int file() const { return file_; }
  int64_t add(const std::byte* data, size_t bytes) {
    constexpr int64_t page = 4096;
    const int64_t at = used_.fetch_add((static_cast<int64_t>(bytes) + page - 1) / page * page);
    for (size_t done = 0; done < bytes;) {
      const ssize_t more = pwrite64(file_, data + done, bytes - done, at + static_cast<int64_t>(done));
      if (more <= 0) throw std::runtime_error("no memory for copies of NCCL");
      done += static_cast<size_t>(more);
    }
    return at;
  }

 private:
  Copies() : file_(memfd_create("emulated NCCL", MFD_CLOEXEC)) {}
  const int file_;
  std::atomic<int64_t> used_{0};
};

}  // namespace

const char* CollectiveCall::function() const {
  switch (kind) {
    case Kind::all_reduce: return "ncclAllReduce";
    case Kind::all_gather: return "ncclAllGather";
    case Kind::reduce_scatter: return "ncclReduceScatter";
    case Kind::broadcast: return "ncclBroadcast";
  }
  return "";
}

std::string CollectiveCall::text(int rank) const {
  std::string out = std::string(captured ? "captured " : "") + function() + " of " + std::to_string(count) + " " +
                    type_names[static_cast<int>(type)];
  if (number >= 0)
    out += kind == Kind::broadcast ? ", root " + std::to_string(number) : std::string(", ") + reduction_names[number];
  return out + " by rank " + std::to_string(rank);
}

/// Begins as zeros.
struct Board::Shared {
  uint64_t number;  ///< of the ticket
  std::atomic<int32_t> ranks, came;
  std::atomic<int32_t> failing, failed;
  char error[512];
  struct Member {
    std::atomic<int32_t> here;
    int32_t process, file, device;
  } members[most_ranks];
  struct Post {
    std::atomic<int64_t> number;  ///< 0: none yet
    std::atomic<int32_t> reads;
    int32_t accessible;
    CollectiveCall call;
    uint64_t seed;
    Copy copy;
  } posts[most_ranks][most_posts];
  struct Box {
    std::atomic<int64_t> sent, received;
    Copy letters[most_letters];
  } boxes[most_ranks][most_ranks];  ///< from, to
};

cuda::NcclId Board::make() {
  static std::atomic<uint64_t> next{1};
  const int file = memfd_create("emulated NCCL group", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) throw std::runtime_error("no memory for a group of NCCL");
  const Ticket ticket{next++, getpid(), file};
  if (pwrite64(file, &ticket.number, sizeof ticket.number, offsetof(Shared, number)) != sizeof ticket.number)
    throw std::runtime_error("no memory for a group of NCCL");
  cuda::NcclId id{};
  std::memcpy(id.bytes, &ticket, sizeof ticket);
  return id;
}

std::shared_ptr<Board> Board::open(const cuda::NcclId& id, int ranks, int rank, int device) {
  Ticket ticket;
  std::memcpy(&ticket, id.bytes, sizeof ticket);
  if (ranks < 1 || ranks > most_ranks || rank < 0 || rank >= ranks) return nullptr;
  const int file = ::open64(path_of(ticket.process, ticket.file).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  struct stat64 facts {};
  const bool whole = fstat64(file, &facts) == 0 && facts.st_size == static_cast<off64_t>(sizeof(Shared));
  void* const memory =
      whole ? mmap64(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  ::close(file);
  if (memory == MAP_FAILED) return nullptr;
  std::shared_ptr<Board> out(new Board);
  out->shared_ = static_cast<Shared*>(memory);
  out->ranks_ = ranks, out->rank_ = rank;
  out->files_.assign(static_cast<size_t>(ranks), -1);
  Shared& shared = *out->shared_;
  if (shared.number != ticket.number) return nullptr;
  if (rank == 0 && ticket.process == getpid()) out->file_ = ticket.file;
  int32_t none = 0;
  shared.ranks.compare_exchange_strong(none, ranks);
  Shared::Member& own = shared.members[rank];
  if (shared.ranks.load() != ranks || own.here.load()) {
    out->fail("ranks of a group differ in their number, or two are the same");
    return out;
  }
  own.process = getpid(), own.file = Copies::get().file(), own.device = device;
  own.here.store(1);
  for (int other = 0; other < ranks; ++other) {
    const Shared::Member& its = shared.members[other];
    if (other != rank && its.here.load() && its.process == own.process && its.device == device)
      out->fail("Duplicate GPU detected");
  }
  ++shared.came;
  return out;
}

Board::~Board() {
  if (shared_) munmap(shared_, sizeof(Shared));
  for (const int file : files_)
    if (file >= 0) ::close(file);
  if (file_ >= 0) ::close(file_);
}

bool Board::complete() const { return shared_->came.load() == ranks_; }

void Board::fail(const std::string& error) {
  if (shared_->failing.exchange(1)) return;
  error.copy(shared_->error, sizeof shared_->error - 1);
  shared_->failed.store(1);
}

bool Board::failed() const { return shared_->failed.load() != 0; }
const char* Board::error() const { return failed() ? shared_->error : ""; }

bool Board::post(int64_t number, const CollectiveCall& call, uint64_t seed, const std::byte* data, size_t bytes) {
  Shared::Post& own = shared_->posts[rank_][number % most_posts];
  if (own.number.load() && own.reads.load() < ranks_) return false;
  own.call = call, own.seed = seed, own.accessible = data != nullptr;
  own.copy = data ? Copy{Copies::get().add(data, bytes), bytes} : Copy{};
  own.reads.store(0);
  own.number.store(number);
  return true;
}

bool Board::posted(int64_t number) const {
  for (int rank = 0; rank < ranks_; ++rank)
    if (shared_->posts[rank][number % most_posts].number.load() != number) return false;
  return true;
}

Board::Posted Board::take(int64_t number, int from) {
  Shared::Post& its = shared_->posts[from][number % most_posts];
  Posted out{its.call, its.seed, its.accessible != 0, {}};
  const Copy copy = its.copy;
  // The last rank that reads a copy gives its memory back; the place is another post's only after that.
  out.data = read(from, copy, false);
  if (its.reads.fetch_add(1) + 1 == ranks_ && copy.bytes) read(from, copy, true);
  return out;
}

int Board::file_of(int rank) {
  int& file = files_[static_cast<size_t>(rank)];
  const Shared::Member& its = shared_->members[rank];
  if (file < 0) file = ::open64(path_of(its.process, its.file).c_str(), O_RDWR | O_CLOEXEC);
  return file;
}

/// `last`: gives the memory back instead.
std::vector<std::byte> Board::read(int from, const Copy& copy, bool last) {
  const int file = file_of(from);
  if (last) {
    fallocate64(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, copy.at, static_cast<off64_t>(copy.bytes));
    return {};
  }
  std::vector<std::byte> out(copy.bytes);
  for (size_t done = 0; done < out.size();) {
    const ssize_t more = pread64(file, out.data() + done, out.size() - done, copy.at + static_cast<int64_t>(done));
    if (more <= 0) {  // its process has ended
      fail("rank " + std::to_string(from) + " has ended");
      return {};
    }
    done += static_cast<size_t>(more);
  }
  return out;
}

bool Board::has_room(int to) const {
  const Shared::Box& box = shared_->boxes[rank_][to];
  return box.sent.load() - box.received.load() < most_letters;
}

void Board::send(int to, const std::byte* data, size_t bytes) {
  Shared::Box& box = shared_->boxes[rank_][to];
  const int64_t number = box.sent.load();
  box.letters[number % most_letters] = {Copies::get().add(data, bytes), bytes};
  box.sent.store(number + 1);
}

bool Board::has_letter(int from) const {
  const Shared::Box& box = shared_->boxes[from][rank_];
  return box.sent.load() > box.received.load();
}

std::vector<std::byte> Board::receive(int from) {
  Shared::Box& box = shared_->boxes[from][rank_];
  const int64_t number = box.received.load();
  const Copy copy = box.letters[number % most_letters];
  std::vector<std::byte> out = read(from, copy, false);
  if (copy.bytes) read(from, copy, true);
  box.received.store(number + 1);
  return out;
}

}  // namespace plait::emulated

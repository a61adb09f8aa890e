#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "core/base/constant.h"
#include "core/base/dim.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/base/thread_pool.h"

namespace plait {
namespace {

TEST(Text, QuotesReadBackAndHideControlCharacters) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string raw(random() % 20, ' ');
    for (char& c : raw) c = static_cast<char>(random());
    std::string shown = quote(raw, std::string::npos);
    EXPECT_EQ(unquote(shown), raw);
    for (char c : shown) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
  }
  EXPECT_EQ(quote("é\x80"), "\"é\\x80\"");
  EXPECT_THROW(unquote("\"open"), Error);
}

TEST(Text, NumbersAndBytes) {
  int64_t number;
  EXPECT_TRUE(parse_int("-12", number) && number == -12);
  for (const char* bad : {"", "12x", "99999999999999999999", " 1"}) EXPECT_FALSE(parse_int(bad, number)) << bad;
  EXPECT_EQ(human_bytes(1073741824), "1.07 GB");
  EXPECT_EQ(human_bytes(12), "12 B");
  EXPECT_EQ(cat("a", 1, 2.5, true, 'c'), "a12.5truec");
}

TEST(DType, HalfPrecisionRoundTripsAndRoundsToEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    Float16 half{static_cast<uint16_t>(bits)};
    float wide = to_float(half);
    if (!std::isnan(wide)) {
      EXPECT_EQ(to_float16(wide).bits, bits);
    } else {
      EXPECT_TRUE(std::isnan(to_float(to_float16(wide))));
    }
    BFloat16 brain{static_cast<uint16_t>(bits)};
    if (!std::isnan(to_float(brain))) {
      EXPECT_EQ(to_bfloat16(to_float(brain)).bits, bits);
    }
  }
  EXPECT_EQ(to_float(to_float16(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(to_float(to_float16(65520.0f))));
  EXPECT_EQ(to_float(to_float16(0x1p-25f)), 0.0f);  // half of the smallest: to even
  EXPECT_EQ(to_float(to_float16(0x1.8p-24f)), 0x1p-23f);
  EXPECT_EQ(to_float(to_bfloat16(1.00390625f)), 1.0f);  // half way: to even
  EXPECT_EQ(to_float(to_bfloat16(1.01171875f)), 1.015625f);
}

TEST(Shape, SizesFromOutsideAreChecked) {
  EXPECT_EQ(checked_elements(std::vector<int64_t>{2, 3}, 32), 6);
  EXPECT_EQ(checked_elements(std::vector<int64_t>{2, 0}, 32), 0);
  EXPECT_THROW(checked_elements(std::vector<int64_t>{-1}, 32), Error);
  EXPECT_THROW(checked_elements(std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40}, 8), Error);
  EXPECT_THROW(checked_elements(std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40, 0}, 8), Error);
  EXPECT_THROW(checked_elements(std::vector<int64_t>{int64_t{1} << 60}, 64), Error);
  EXPECT_THROW(Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
}

/// Polynomials agree with arithmetic on numbers.
TEST(Dim, IsArithmetic) {
  SymbolTable table;
  std::mt19937 random(7);
  std::vector<Dim> pool{Dim::symbol(table.intern("b")),
                        Dim::symbol(table.intern("past + new")),
                        Dim::symbol(table.intern("s")),
                        Dim(3),
                        Dim(0),
                        Dim(-2)};
  const int64_t values[] = {3, 5, 7};
  for (int round = 0; round < 400; ++round) {
    Dim a = pool[random() % pool.size()], b = pool[random() % pool.size()], c = pool[random() % pool.size()];
    Dim sum = a * b + c, difference = sum - c;
    EXPECT_EQ(sum.evaluate(values), a.evaluate(values) * b.evaluate(values) + c.evaluate(values));
    EXPECT_EQ(difference, a * b);
    EXPECT_EQ(Dim::parse(sum.text(table), table), sum) << sum.text(table);
    if (b.evaluate(values) != 0) {
      auto quotient = (a * b).divided(b);
      ASSERT_TRUE(quotient);
      EXPECT_EQ(*quotient, a);
      Dim two = b + Dim(1);
      if (two.evaluate(values) != 0) {
        EXPECT_EQ(((a + c) * two).divided(two), a + c);
      }
    }
  }
  EXPECT_FALSE(Dim::symbol(0).divided(Dim(2)));
  EXPECT_EQ(Dim::symbol(0).substitute(0, Dim(4) + Dim::symbol(2)).evaluate(values), 11);
  for (const char* bad : {"", "a +", "* 2", "\"open"}) EXPECT_THROW(Dim::parse(bad, table), Error) << bad;
}

/// Whatever numbers a reader gives the symbols, the text of what it read is the text that it read.
TEST(Dim, TextReadsBackToItself) {
  for (const char* text : {"a + s", "s", "2*b*s + past + 1", "a*d + b + c*d", "-1*\"x y\" + z + -3"}) {
    std::string now = text;
    for (int round = 0; round < 3; ++round) {
      SymbolTable table;
      const std::string next = Dim::parse(now, table).text(table);
      EXPECT_TRUE(!round || next == now) << next << " was " << now;
      now = next;
    }
  }
}

/// What 200 bytes of text can ask for: 2^30 terms.
TEST(Dim, ProductsHaveALimit) {
  SymbolTable table;
  Dim product(1);
  auto multiply = [&] {
    for (int i = 0; i < 30; ++i) product = product * (Dim::symbol(table.fresh("a")) + Dim::symbol(table.fresh("b")));
  };
  EXPECT_THROW(multiply(), Error);
}

TEST(Dim, DegreesHaveALimit) {
  SymbolTable table;
  Dim power = Dim::symbol(table.intern("s"));
  auto square = [&] {
    for (int i = 0; i < 60; ++i) power = power * power;
  };
  EXPECT_THROW(square(), Error);
  EXPECT_LE(power.terms()[0].symbols.size(), Dim::max_degree);
  EXPECT_FALSE(power.times(power));
}

TEST(Dim, SumsHaveALimit) {
  SymbolTable table;
  Dim sum;
  while (std::optional<Dim> more = sum.plus(Dim::symbol(table.fresh("s")))) sum = *more;
  EXPECT_EQ(sum.terms().size(), Dim::max_terms);
}

TEST(Dim, SaturatesInsteadOfOverflowing) {
  SymbolTable table;
  Dim s = Dim::symbol(table.intern("s"));
  const int64_t large[] = {int64_t{1} << 40};
  EXPECT_EQ((s * s).evaluate(large), std::numeric_limits<int64_t>::max());
}

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Tensor::of<float>(DType::f32, shape, values);
}

TEST(Constant, StepsMakeWhatTheySay) {
  ThreadPool pool(2);
  using Kind = RecipeStep::Kind;
  for (Shape shape : {Shape{5, 7}, Shape{130, 67}, Shape{2, 65, 3}, Shape{1, 1}, Shape{0, 4}}) {
    std::vector<int64_t> order;
    for (int axis = shape.rank(); axis-- > 0;) order.push_back(axis);
    Constant constant{"w", counting(shape), {{Kind::transpose, order, {}}}};
    Tensor made = materialize(constant, &pool);
    ASSERT_EQ(made.shape(), constant.shape());
    Constant back{"w", made, {{Kind::transpose, order, {}}}};
    Tensor again = materialize(back);
    EXPECT_EQ(std::memcmp(again.data(), constant.source.data(), static_cast<size_t>(again.bytes())), 0)
        << shape.text();
  }
  Constant sliced{"w",
                  counting({4, 6}),
                  {{Kind::slice, {1, 2, 5}, {}}, {Kind::reshape, {12}, {}}, {Kind::cast, {}, DType::bf16}}};
  Tensor made = materialize(sliced);
  EXPECT_EQ(made.dtype(), DType::bf16);
  EXPECT_EQ(to_float(made.as<BFloat16>()[3]), 8.0f);
  // Rows of a matrix, and its shape, need no copy.
  Constant rows{"w", counting({4, 6}), {{Kind::slice, {0, 1, 3}, {}}, {Kind::reshape, {3, 4}, {}}}};
  EXPECT_EQ(materialize(rows).blob(), rows.source.blob());
}

TEST(Constant, PartsAreStacked) {
  using Kind = RecipeStep::Kind;
  const Constant first{"a", counting({2, 3}), {{Kind::transpose, {1, 0}, {}}}}, second{"b", counting({3, 2}), {}};
  const Constant stack{{}, {}, {{Kind::slice, {1, 1, 3}, {}}}, {first, second}};
  EXPECT_EQ(stack.dtype(), DType::f32);
  EXPECT_EQ(stack.shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(stack.source_bytes(), 48);
  const float expected[] = {1, 4, 2, 5, 2, 3, 4, 5};
  Tensor made = materialize(stack);
  ASSERT_EQ(made.shape(), stack.shape());
  EXPECT_EQ(std::memcmp(made.data(), expected, sizeof expected), 0);
}

/// A step after the other, each on what the one before has made.
Tensor step_by_step(const Constant& constant) {
  Tensor out = materialize({"", constant.source, {}, constant.parts});
  for (const RecipeStep& step : constant.steps) out = materialize({"", out, {step}});
  return out;
}

TEST(Constant, SlicesComeEarlyAndChangeNothing) {
  using Kind = RecipeStep::Kind;
  std::mt19937 random(11);
  auto draw = [&](int64_t count) { return static_cast<int64_t>(random() % static_cast<uint64_t>(count)); };
  const Shape shapes[] = {{4, 6}, {2, 12, 4}, {8, 3}, {6, 2, 2, 4}};
  int early = 0;
  for (int round = 0; round < 4000; ++round) {
    const bool packed = round % 4 == 0, stacked = round % 3 == 0;
    auto source = [&] {
      Tensor out(packed ? DType::u4 : DType::f32, shapes[round % 4]);
      for (int64_t i = 0; i < out.bytes(); ++i)
        out.as<uint8_t>()[i] = static_cast<uint8_t>(packed ? draw(256) : i % 4 == 3 ? 64 : draw(128));
      return out;
    };
    Constant constant{"w", stacked ? Tensor() : source(), {}, {}};
    if (stacked)
      for (int i = 0; i < 3; ++i) constant.parts.push_back({"w", source(), {}, {}});
    for (int64_t steps = draw(6); steps >= 0; --steps) {
      const Shape shape = constant.shape();
      const int rank = shape.rank();
      RecipeStep step{Kind::slice, {}, {}};
      switch (draw(5)) {
        case 0: {
          if (packed && rank != 2) continue;
          step.kind = Kind::transpose;
          for (int axis = 0; axis < rank; ++axis) step.numbers.push_back(axis);
          std::shuffle(step.numbers.begin(), step.numbers.end(), random);
          break;
        }
        case 1: {
          step.kind = Kind::reshape;
          int64_t rest = shape.elements();
          for (int64_t size : {int64_t{2}, int64_t{3}, int64_t{4}})
            if (draw(2) && rest % size == 0) step.numbers.push_back(size), rest /= size;
          step.numbers.push_back(rest);
          break;
        }
        case 2:
          if (constant.dtype() != DType::f32) continue;
          step = {Kind::cast, {}, DType::bf16};
          break;
        default: {
          const int64_t axis = draw(rank), size = shape[static_cast<int>(axis)];
          if (size < 2) continue;
          const int64_t begin = draw(size), end = begin + 1 + draw(size - begin);
          step.numbers = {axis, begin, end};
        }
      }
      constant.steps.push_back(std::move(step));
    }
    Tensor expected;
    try {
      expected = step_by_step(constant);
    } catch (const Error&) {
      continue;  // elements that share bytes cannot be cut anywhere
    }
    const Tensor made = materialize(constant);
    ASSERT_EQ(made.shape(), expected.shape()) << text(constant.steps);
    ASSERT_EQ(std::memcmp(made.data(), expected.data(), static_cast<size_t>(made.bytes())), 0)
        << text(constant.steps);
    early += text(slices_first(constant).steps) != text(constant.steps);
  }
  EXPECT_GT(early, 1000);
  // What a rank makes of a stack that each file's tensor is turned in: its part of each, turned.
  const Constant stack{
      {},
      {},
      {{Kind::transpose, {0, 2, 1}, {}}, {Kind::cast, {}, DType::bf16}, {Kind::slice, {1, 0, 2}, {}}},
      {{"a", counting({4, 6}), {}, {}}, {"b", counting({4, 6}), {}, {}}}};
  const Constant first = slices_first(stack);
  EXPECT_EQ(text(first.steps), "transpose 0 2 1; cast bf16");
  EXPECT_EQ(text(first.parts[1].steps), "slice 1 0 2");
}

TEST(Constant, ElementsThatShareBytes) {
  using Kind = RecipeStep::Kind;
  std::mt19937 random(3);
  for (DType dtype : {DType::u4, DType::i4, DType::u2, DType::i2})
    for (Shape shape : {Shape{6, 8}, Shape{130, 258}, Shape{3, 5}, Shape{2, 7}}) {
      Tensor codes(dtype, shape);
      for (int64_t i = 0; i < codes.bytes(); ++i) codes.as<uint8_t>()[i] = static_cast<uint8_t>(random());
      ThreadPool pool(2);
      const RecipeStep wide{Kind::cast, {}, dtype == DType::i4 || dtype == DType::i2 ? DType::i8 : DType::u8};
      const RecipeStep transpose{Kind::transpose, {1, 0}, {}};
      Tensor bytes = materialize({"w", codes, {wide, transpose}}),
             nibbles = materialize({"w", codes, {transpose, wide}}, &pool);
      ASSERT_EQ(bytes.shape(), nibbles.shape());
      EXPECT_EQ(std::memcmp(bytes.data(), nibbles.data(), static_cast<size_t>(bytes.bytes())), 0)
          << dtype_name(dtype) << " " << shape.text();
    }
  const uint8_t packed[] = {0x21, 0xF3};
  const Constant split{"w",
                       Tensor::of<uint8_t>(DType::u8, {1, 2}, packed),
                       {{Kind::reinterpret, {}, DType::u4}, {Kind::reshape, {2, 2}, {}}}};
  EXPECT_EQ(split.dtype(), DType::u4);
  EXPECT_EQ(split.shape(), (Shape{2, 2}));
  EXPECT_EQ(materialize(split).blob(), split.source.blob());  // nothing is copied
  Constant values = split;
  values.steps.push_back({Kind::cast, {}, DType::f32});
  EXPECT_EQ(text(values.steps), "reinterpret u4; reshape 2 2; cast f32");
  const float expected[] = {1, 2, 3, 15};
  EXPECT_EQ(std::memcmp(materialize(values).data(), expected, sizeof expected), 0);
}

TEST(ThreadPool, EveryItemOnceAndErrorsReachTheCaller) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      pool.for_each(count, [&](int64_t item, int worker) {
        EXPECT_LT(worker, threads);
        ++hits[static_cast<size_t>(item)];
      });
      for (auto& hit : hits) EXPECT_EQ(hit, 1);
    }
    EXPECT_THROW(pool.for_each(8,
                               [](int64_t item, int) {
                                 if (item == 5) throw Error(Code::numeric, "five");
                               }),
                 Error);
    int64_t sum = 0;
    pool.for_each(1, [&](int64_t, int) { sum = 3; });  // usable after an error
    EXPECT_EQ(sum, 3);
  }
}

TEST(ThreadPool, StopsBetweenItems) {
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    std::atomic<bool> flag{false};
    std::atomic<int> done{0};
    EXPECT_EQ(pool.stop_on(&flag), nullptr);
    pool.for_each(100, [&](int64_t, int) { ++done; });
    EXPECT_EQ(done, 100);
    try {
      pool.for_each(1000000, [&](int64_t, int) { flag = ++done > 110; });
      ADD_FAILURE() << "items were left out without an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::cancelled);
    }
    EXPECT_LT(done, 120);
    EXPECT_EQ(pool.stop_on(nullptr), &flag);
    pool.for_each(100, [&](int64_t, int) { ++done; });
  }
}

/// Rounds one after another, each with fresh numbers: a worker that comes late finds the round closed, or the next one.
TEST(ThreadPool, RoundsAreApart) {
  ThreadPool pool(4);
  for (int64_t round = 0; round < 5000; ++round) {
    std::vector<std::atomic<int64_t>> got(static_cast<size_t>(2 + round % 7));
    pool.for_each(static_cast<int64_t>(got.size()), [&](int64_t item, int) { got[static_cast<size_t>(item)] += round; });
    for (auto& one : got) ASSERT_EQ(one, round);
  }
}

/// run calls every worker, also those that wake late; after for_each a late one touches nothing.
TEST(ThreadPool, EveryWorkerOnceInEachRun) {
  ThreadPool pool(6);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::atomic<int>> calls(6);
    pool.run([&](int worker) { ++calls[static_cast<size_t>(worker)]; });
    for (auto& one : calls) ASSERT_EQ(one, 1);
    std::atomic<int> items{0};
    pool.for_each(3, [&](int64_t, int) { ++items; });
    ASSERT_EQ(items, 3);
  }
}

/// A worker that wakes only for the round that ends the pool ends too.
TEST(ThreadPool, EndsWhileAWorkerIsLate) {
  for (int i = 0; i < 10000; ++i) ThreadPool(2 + i % 3).for_each(2, [](int64_t, int) {});
}

TEST(ThreadPool, AnIdlePoolCostsNothing) {
  ThreadPool pool(2);
  pool.run([](int) {});
  auto used = [] {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  usleep(20000);  // the spin of 50 us is over
  double before = used();
  usleep(200000);
  EXPECT_LT(used() - before, 0.02);
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / cat("plait_files_", getpid());
    std::filesystem::create_directories(directory_ / "model");
    write("model/model.onnx", "m");
    write("model/data.bin", "inside");
    write("outside.bin", "outside");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(directory_ / name) << text; }
  std::string path(const std::string& name) { return (directory_ / name).string(); }
  Code refusal(const std::string& location) {
    try {
      map_beside(path("model/model.onnx"), location);
    } catch (const Error& error) {
      return error.code();
    }
    return Code::ok;
  }
  std::filesystem::path directory_;
};

TEST_F(Files, MapsAndNamesWhatIsMissing) {
  auto blob = map_file(path("outside.bin"));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(blob->data()), 7), "outside");
  write("empty", "");
  EXPECT_EQ(map_file(path("empty"))->size(), 0);
  try {
    map_file(path("nothing"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_NE(error.message().find("nothing"), std::string::npos);
  }
  EXPECT_THROW(map_file(directory_.string()), Error);
}

TEST_F(Files, ExternalDataStaysInsideTheModelsDirectory) {
  EXPECT_EQ(map_beside(path("model/model.onnx"), "data.bin")->size(), 6);
  for (const char* bad : {"../outside.bin", "sub/../../outside.bin", "/etc/passwd", "", "a\\b"})
    EXPECT_EQ(refusal(bad), Code::bad_model) << bad;
  EXPECT_EQ(refusal("missing.bin"), Code::not_found);
  std::filesystem::create_symlink(path("outside.bin"), path("model/link.bin"));
  EXPECT_EQ(refusal("link.bin"), Code::bad_model);
  ASSERT_EQ(mkfifo(path("model/pipe.bin").c_str(), 0600), 0);
  EXPECT_EQ(refusal("pipe.bin"), Code::io) << "and without waiting for the pipe's other end";
  std::filesystem::create_directory(path("model/folder.bin"));
  EXPECT_EQ(refusal("folder.bin"), Code::io);
  // A Hugging Face cache: the snapshot's files are links into one folder of blobs.
  std::filesystem::create_directories(directory_ / "cache/blobs");
  std::filesystem::create_directories(directory_ / "cache/snapshots/1");
  write("cache/blobs/aaa", "m");
  write("cache/blobs/bbb", "weights");
  std::filesystem::create_symlink("../../blobs/aaa", path("cache/snapshots/1/model.onnx"));
  std::filesystem::create_symlink("../../blobs/bbb", path("cache/snapshots/1/model.onnx_data"));
  EXPECT_EQ(map_beside(path("cache/snapshots/1/model.onnx"), "model.onnx_data")->size(), 7);
}

TEST(Log, KeepsTheNewestAndCountsTheRest) {
  Log log;
  LogLevel level;
  std::string text;
  EXPECT_FALSE(log.next(level, text));
  for (size_t i = 0; i < Log::capacity + 3; ++i) log.write(LogLevel::info, cat("line ", i));
  ASSERT_TRUE(log.next(level, text));
  EXPECT_EQ(text, "3 older log lines were dropped");
  ASSERT_TRUE(log.next(level, text));
  EXPECT_EQ(text, "line 3");
}

}  // namespace
}  // namespace plait

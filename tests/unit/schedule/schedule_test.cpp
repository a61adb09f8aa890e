// Schedules as text, PyTorch's lists, and a schedule of one's own.
#include "core/schedule/schedule.h"

#include <gmock/gmock.h>

#include <random>

#include "tests/unit/schedule/schedule_cases.h"

namespace plait::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Lists of any actions: the text form does not check them.
Schedule random_schedule(std::mt19937& random) {
  auto upto = [&](int n) { return static_cast<int32_t>(random() % static_cast<unsigned>(n)); };
  Schedule out{1 + upto(5), upto(1000), {}, {}};
  for (int32_t stage = 0; stage < out.stages; ++stage) {
    auto& seats = out.seats.emplace_back();
    for (int32_t i = 0; i <= upto(3); ++i) seats.push_back(upto(100));
  }
  out.ranks.resize(static_cast<size_t>(1 + upto(5)));
  for (auto& list : out.ranks)
    for (int32_t i = upto(10); i > 0; --i) {
      Action one{static_cast<Kind>(upto(5)), upto(70), upto(3000)};
      if (one.kind == Kind::forward && upto(2)) one.version = upto(4);
      list.push_back(one);
    }
  return out;
}

TEST(ScheduleText, ReadsBackAsItWrites) {
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    const Schedule schedule = random_schedule(random);
    ASSERT_EQ(parse_schedule(schedule.text()), schedule) << schedule.text();
  }
  const char* chimera = R"(# two directions
stages 2 micro-batches 2 seats 0,1 1,0   # every stage has two seats
0F0 1F1 1B1 0B0

  0F1   1F0 1B0 0B1
)";
  const Schedule read = parse_schedule(chimera);
  EXPECT_EQ(read.text(), "stages 2 micro-batches 2 seats 0,1 1,0\n0F0 1F1 1B1 0B0\n0F1 1F0 1B0 0B1\n");
  EXPECT_TRUE(is_valid(read));
  EXPECT_EQ(check_schedule(read).ranks[0].forward_to_input, 2);
  EXPECT_EQ(parse_schedule("stages 1 micro-batches 1 seats 0\n0F0 0B0\n-\n").ranks.size(), 2u);
}

TEST(ScheduleText, NamesWhatItCannotRead) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "the text is empty"},
      {"# nothing\n", "the text is empty"},
      {"stages 2", "line 1: \"stages 2\" is no first line"},
      {"stages x micro-batches 2 seats 0 1", "line 1: \"x\" is no number of stages"},
      {"\nstages 2 micro-batches -1 seats 0 1", "line 2: \"-1\" is no number of micro-batches"},
      {"stages 2 micro-batches 1 seats 0", "seats of 1 stages, expected 2"},
      {"stages 1 micro-batches 1 seats 0,", "line 1: \"\" is no number of a rank"},
      {"stages 1 micro-batches 99999999999 seats 0", "no number of micro-batches"},
      {"stages 1 micro-batches 1 seats 0\n0F0 0X0", "line 2: \"0X0\" is no action"},
      {"stages 1 micro-batches 1 seats 0\n0F0 F0", "\"F0\" is no action"},
      {"stages 1 micro-batches 1 seats 0\n0F0 0B", "\"0B\" is no action"},
      {"stages 1 micro-batches 1 seats 0\n0F0 0B0@1", "\"0B0@1\" is no action"},
      {"stages 1 micro-batches 1 seats 0\n0F0@ 0B0", "\"0F0@\" is no action"},
      {"stages 1 micro-batches 1 seats 0\n0F0,0B0", "\"0F0,0B0\" is no action"},
      {"0F0,0Q0", "line 1, cell 2: \"0Q0\" is no action"},
      {"0F0,0U0", "line 1, cell 2: \"0U0\" is no action"},
      {"0F0\n1F0,(1B0;0B0)OVERLAP", "line 2, cell 2: \"(1B0;0B0)OVERLAP\" is no action"},
      {"0F0,0B0,1SEND_Fx", "\"1SEND_Fx\" is no action"},
      {"0F0,0B0\n2F0,2B0", "stage 1 lacks forwards"},
      {"0F0,0F2,0B0,0B2", "stage 0 lacks forwards"},
      {"99999F0", "100000 stages"},
  };
  for (const auto& [text, why] : cases)
    EXPECT_THAT(message_of([&, text = text] { parse_schedule(text); }), HasSubstr(why)) << text;
}

/// The lists as PyTorch writes them: cells apart by commas, idle slots empty.
std::string csv_of(const Schedule& schedule, bool older, bool messages) {
  std::string out;
  for (const auto& list : schedule.ranks) {
    std::string line;
    for (const Action& one : list) {
      std::string name = one.text();
      if (older && one.kind == Kind::backward) name = cat(one.stage, "BW", one.micro_batch);
      if (older && one.kind == Kind::input_gradient) name = cat(one.stage, "B", one.micro_batch);
      if (messages && one.kind == Kind::forward) line += cat(one.stage, "RECV_F", one.micro_batch, ",");
      line += name + (one.micro_batch % 3 ? "," : ",,");
      if (messages)
        line += cat(one.stage, "UNSHARD,", one.stage, "SEND_B", one.micro_batch, ", ,", one.stage, "RESHARD,");
    }
    out += line + "\r\n";
  }
  return out;
}

TEST(TorchLists, AreReadInBothDialects) {
  for (const char* name : {"1f1b", "interleaved:2", "zb-h1", "zb-v", "dualpipe-v", "zb-interleaved:2", "gpipe"})
    for (const bool messages : {false, true}) {
      const Schedule schedule = made(name, 4, 10);
      EXPECT_EQ(parse_schedule(csv_of(schedule, false, messages)), schedule) << name;
      EXPECT_EQ(read_torch_csv(csv_of(schedule, true, messages)), schedule) << name;
    }
  // Only B, without W or BW anywhere: a whole backward.
  EXPECT_EQ(parse_schedule("0F0,0B0").ranks[0][1].kind, Kind::backward);
  EXPECT_EQ(parse_schedule("0F0,0B0,0W0").ranks[0][1].kind, Kind::input_gradient);
  EXPECT_EQ(parse_schedule("0F0,0I0,0W0,0F1,0B1").ranks[0][4].kind, Kind::backward);
}

// Two stages of one rank, whose forward and backward are one cell; the list of DualPipeV has such ones.
TEST(TorchLists, HaveOverlappedCells) {
  const Schedule schedule =
      parse_schedule(R"(0F0,0F1,3F0,(0F2;3B0)OVERLAP_F_B,3F1,3B1,( 3F2 ; 0B0 )OVERLAP_F_B,3B2,0B1,0B2,0REDUCE_GRAD
1F0,1F1,2F0,2F1,1F2,2F2,2B0,1B0,2B1,1B1,2B2,1B2
)");
  EXPECT_THAT(schedule.seats, ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(1), ElementsAre(0)));
  EXPECT_EQ(schedule.micro_batches, 3);
  EXPECT_EQ(schedule.ranks[0].size(), 12u);
  EXPECT_EQ(schedule.ranks[0][4].text(), "3B0");
  EXPECT_TRUE(is_valid(schedule));
  EXPECT_EQ(message_of([&] { check_schedule(schedule); }), "");
}

TEST(TorchLists, TellSeveralSeatsByWhoRunsWhat) {
  const Schedule chimera = made("chimera", 4, 6);
  EXPECT_EQ(parse_schedule(csv_of(chimera, false, false)), chimera);
}

// A schedule that no generator knows, as a user would write it: V-Half's idea for two ranks, three micro-batches.
TEST(OwnSchedules, AreTwentyLines) {
  Schedule own;
  own.stages = 4;
  own.micro_batches = 3;
  own.seats = {{0}, {1}, {1}, {0}};
  for (int rank = 0; rank < 2; ++rank) {
    auto& list = own.ranks.emplace_back();
    for (int32_t k = 0; k < own.micro_batches; ++k) {
      list.push_back({Kind::forward, rank, k});
      list.push_back({Kind::forward, 3 - rank, k});
      for (const int32_t stage : {3 - rank, rank}) {
        list.push_back({Kind::input_gradient, stage, k});
        list.push_back({Kind::weight_gradient, stage, k});
      }
    }
  }
  const ScheduleFacts facts = check_schedule(own);
  EXPECT_TRUE(facts.split);
  EXPECT_TRUE(facts.ascending);
  EXPECT_EQ(facts.ranks[0], (LivePeaks{2, 2, 1}));
  EXPECT_EQ(parse_schedule(own.text()), own);
  EXPECT_TRUE(is_valid(own));
}

}  // namespace
}  // namespace plait::test

// Event simulation: links, places, rank times; and its drawings.
#include "core/schedule/timeline.h"

#include <gmock/gmock.h>

#include "tests/unit/schedule/schedule_cases.h"
#include "tests/unit/support/golden.h"

namespace plait::test {
namespace {

using testing::HasSubstr;

std::function<LinkTime(int32_t, int32_t, const Action&, int32_t)> link(double latency, double transfer) {
  return [=](int32_t, int32_t, const Action&, int32_t) { return LinkTime{latency, transfer}; };
}

TEST(Timeline, OneMicroBatchTakesItsWay) {
  TimelineOptions options;
  options.cost = costs(1, 2);
  options.link = link(0.25, 0.5);
  const Timeline timeline = simulate(made("naive", 3, 1), options);
  EXPECT_DOUBLE_EQ(timeline.makespan_s, 3 * 3 + 4 * 0.75);
  // Rank 1 waits for what is on its way twice: after 0F0 and after 2B0.
  EXPECT_DOUBLE_EQ(timeline.ranks[1].mail_s, 1.5);
  EXPECT_DOUBLE_EQ(timeline.ranks[1].busy_s, 3);
  EXPECT_DOUBLE_EQ(timeline.ranks[1].idle_s, 9);
  EXPECT_DOUBLE_EQ(timeline.bubble(), 1 - 9. / (3 * 12));
  for (size_t i = 1; i < timeline.spans.size(); ++i)
    EXPECT_GE(timeline.spans[i].begin_s, timeline.spans[i - 1].begin_s);
}

TEST(Timeline, BubblesAreThePapers) {
  for (const int p : {2, 4, 8})
    for (const int m : {4, 16}) {
      EXPECT_NEAR(simulate(made("gpipe", p, m)).bubble(), (p - 1.) / (m + p - 1), 1e-12);
      EXPECT_NEAR(simulate(made("naive", p, m)).bubble(), 1 - 1. / p, 1e-12);
    }
}

// Transfers that are longer than the work of a stage bound GPipe's speed, one after the other; latency does not.
TEST(Timeline, TransfersOfALinkFollowEachOther) {
  const Schedule gpipe = parse_schedule(
      "stages 2 micro-batches 4 seats 0 1\n0F0 0F1 0F2 0F3 0B3 0B2 0B1 0B0\n"
      "1F0 1F1 1F2 1F3 1B3 1B2 1B1 1B0\n");
  TimelineOptions options;
  options.cost = costs(1, 1);
  options.link = link(0, 3);
  // Forwards arrive at 4, 7, 10, 13; backwards are made at 15, 16, 17, 18 and arrive at 18, 21, 24, 27.
  EXPECT_DOUBLE_EQ(simulate(gpipe, options).makespan_s, 28);
  options.link = link(3, 0);
  // Forwards arrive at 4 to 7; backwards are made at 9 to 12 and arrive at 12 to 15.
  EXPECT_DOUBLE_EQ(simulate(gpipe, options).makespan_s, 16);
}

// Two pairs of ranks that share a link take turns.
TEST(Timeline, PairsMayShareALink) {
  const Schedule s = parse_schedule("stages 2 micro-batches 2 seats 0,1 2,3\n0F0 0B0\n0F1 0B1\n1F0 1B0\n1F1 1B1\n");
  TimelineOptions options;
  options.cost = costs(1, 1);
  options.link = link(0, 2);
  EXPECT_DOUBLE_EQ(simulate(s, options).makespan_s, 8);
  options.wire = [](int32_t from, int32_t to) { return from < to ? 0 : 1; };
  // Forwards arrive at 3 and 5; their gradients at 7 and 9.
  EXPECT_DOUBLE_EQ(simulate(s, options).makespan_s, 10);
}

TEST(Timeline, SendersWaitForPlaces) {
  const Schedule s =
      parse_schedule("stages 2 micro-batches 3 seats 0 1\n0F0 0F1 0F2 0B0 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2\n");
  TimelineOptions options;
  options.cost = costs(1, 4);
  const Timeline free = simulate(s, options);
  EXPECT_DOUBLE_EQ(free.ranks[0].places_s, 0);
  options.places = 1;
  const Timeline bound = simulate(s, options);
  // 0F1 ends at 2 and its message is taken at 6; 0F0's was taken at 1, so the second waits for nothing; the third,
  // made at 3, is sent at 6.
  EXPECT_DOUBLE_EQ(bound.ranks[0].places_s, 3);
  EXPECT_DOUBLE_EQ(bound.makespan_s, free.makespan_s + 0);
  options.credit_s = 0.5;
  EXPECT_DOUBLE_EQ(simulate(s, options).ranks[0].places_s, 3.5);
}

TEST(Timeline, ListsThatDoNotFinishAreRefused) {
  EXPECT_THAT(message_of([] {
                simulate(parse_schedule("stages 2 micro-batches 2 seats 0 1\n0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0"));
              }),
              HasSubstr("never finishes"));
}

TEST(Timeline, UpdatesOfSeveralSeatsBeginTogether) {
  const Schedule s = parse_schedule("stages 1 micro-batches 3 seats 0,1\n0F0 0B0 0F2 0B2 0U0\n0F1 0B1 0U0\n");
  TimelineOptions options;
  options.cost = [](const Action& one) { return one.kind == Kind::update ? 5. : 1.; };
  const Timeline timeline = simulate(s, options);
  EXPECT_DOUBLE_EQ(timeline.makespan_s, 9);
  EXPECT_DOUBLE_EQ(timeline.ranks[1].idle_s, 2);
}

TEST(Timeline, DrawsItsBubble) {
  DrawOptions slots;
  slots.slot_s = 1;
  EXPECT_EQ(timeline_text(simulate(made("1f1b", 2, 3)), slots),
            "0 |01..AA2BB.CC|\n"
            "1 |.0AA1BB2CC..|\n");
  EXPECT_EQ(timeline_text(simulate(made("zb-h1", 2, 3)), slots),
            "0 |01.a+2b+c+|\n"
            "1 |.0a1b+2c++|\n");
  EXPECT_EQ(timeline_text(simulate(made("gpipe", 2, 2)), {.columns = 18}),
            "0 |0011......AAAABBBB|\n"
            "1 |..0011AAAABBBB....|\n");
}

TEST(Timeline, DrawsWhatWasMeasured) {
  std::vector<TimelineSpan> spans = {{1, {Kind::backward, 1, 0}, 101, 103}, {0, {Kind::forward, 0, 0}, 100, 101}};
  const Timeline timeline = timeline_of(spans, 2);
  EXPECT_DOUBLE_EQ(timeline.makespan_s, 3);
  EXPECT_DOUBLE_EQ(timeline.ranks[0].idle_s, 2);
  EXPECT_DOUBLE_EQ(timeline.spans[0].begin_s, 0);
  EXPECT_EQ(timeline_text(timeline, {.columns = 6}), "0 |00....|\n1 |..AAAA|\n");
  EXPECT_THAT(message_of([&] { timeline_of(spans, 1); }), HasSubstr("a span of rank 1, and there are 1 ranks"));
  EXPECT_EQ(timeline_text(timeline_of({}, 1)), "0 ||\n");
  EXPECT_EQ(timeline_of({}, 1).bubble(), 0);
}

TEST(Timeline, DrawsAnSvgDocument) {
  const std::string svg = timeline_svg(simulate(made("interleaved:2", 2, 4)));
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  auto count = [&](std::string_view what) {
    int out = 0;
    for (size_t at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++out;
    return out;
  };
  EXPECT_EQ(count("<rect "), 4 * 4 * 2);
  EXPECT_EQ(count("<g>"), count("</g>"));
  EXPECT_THAT(svg, HasSubstr("<title>3B0 rank 1: "));
  EXPECT_THAT(svg, HasSubstr(">rank 1</text>"));
}

}  // namespace
}  // namespace plait::test

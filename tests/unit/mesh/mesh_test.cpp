// Meshes and shardings: their texts, who is where, and the way from any sharding to any other.
#include "core/mesh/mesh.h"

#include <gmock/gmock.h>

#include "core/mesh/sharding.h"
#include "tests/unit/support/random_shardings.h"

namespace plait::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Mesh, NamesAxesInOneOrder) {
  EXPECT_EQ(Mesh().ranks(), 1);
  EXPECT_EQ(Mesh::parse("").text(), "");
  EXPECT_EQ(Mesh::parse(" tensor = 4 , data=2").text(), "data=2,tensor=4");
  EXPECT_EQ(Mesh::parse("tensor=1").ranks(), 1);
  EXPECT_EQ(Mesh::parse("tensor=12").sub_axes(), 3);
}

TEST(Mesh, RefusesWhatIsNone) {
  for (const auto& [text, why] :
       std::vector<std::pair<std::string, std::string>>{{"tensor", "has no size"},
                                                        {"tensor=", "has no size"},
                                                        {"tensor=0", "has size 0"},
                                                        {"tensor=-2", "has size -2"},
                                                        {"tensor=2,tensor=2", "named twice"},
                                                        {"model=2", "no axis \"model\""},
                                                        {"data=2,", "no axis \"\""},
                                                        {"tensor=1048576,data=2", "ranks"}})
    try {
      Mesh::parse(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_THAT(error.message(), HasSubstr(why));
    }
}

TEST(Mesh, GroupsAreRanksThatDifferAlongTheirAxes) {
  const Mesh mesh = Mesh::parse("data=2,tensor=6");
  const AxisList data = mesh.parts("data"), tensor = mesh.parts("tensor");
  EXPECT_THAT(mesh.group(7, tensor), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(mesh.group(7, data), ElementsAre(1, 7));
  EXPECT_THAT(mesh.group(0, AxisList{tensor[1]}), ElementsAre(0, 1, 2));
  EXPECT_THAT(mesh.group(0, AxisList{tensor[0]}), ElementsAre(0, 3));
  EXPECT_THAT(mesh.group(0, AxisList{tensor[1], tensor[0]}), ElementsAre(0, 3, 1, 4, 2, 5));
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
    for (const AxisList& axes : {data, tensor, AxisList{tensor[1], data[0]}})
      EXPECT_EQ(mesh.group(rank, axes)[static_cast<size_t>(mesh.block(rank, axes))], rank);
}

TEST(Sharding, ReadsBackAsItWrites) {
  const Mesh mesh = Mesh::parse("data=2,tensor=4");
  for (const char* one : {"[data, -, tensor]", "[-] sum(tensor)", "[tensor.1 tensor.0, data]",
                          "[] max(data) min(tensor.0)", "[tensor.1] sum(tensor.0)"})
    EXPECT_EQ(text(parse_sharding(one, mesh), mesh), one);
  for (const char* one :
       {"", "data", "[data, data]", "[tensor] sum(tensor.1)", "[expert]", "[-] mean(data)", "[-] sum(data"})
    EXPECT_THROW(parse_sharding(one, mesh), Error) << one;
}

TEST(Sharding, LocalSizesAreExactParts) {
  const Mesh mesh = Mesh::parse("data=2,tensor=4");
  SymbolTable symbols;
  const Dim t = Dim::symbol(symbols.intern("t"));
  const Sharding cut = parse_sharding("[data, -, tensor]", mesh);
  EXPECT_EQ(*local_dims({Dim(2) * t, t, Dim(12)}, cut, mesh), (Dims{t, t, Dim(3)}));
  EXPECT_FALSE(local_dims({t, t, Dim(12)}, cut, mesh));
  EXPECT_FALSE(local_dims({Dim(2), t, Dim(6)}, cut, mesh));
}

std::vector<std::string> steps(const std::string& from, const std::string& to, const Mesh& mesh) {
  std::vector<std::string> out;
  for (const Collective& step : reshard(parse_sharding(from, mesh), parse_sharding(to, mesh)))
    out.push_back(cat(kind_name(step.kind), " ", mesh.text(step.axes)));
  return out;
}

TEST(Reshard, TakesTheFewestSteps) {
  const Mesh mesh = Mesh::parse("data=2,tensor=4");
  EXPECT_THAT(steps("[data, -]", "[data, -]", mesh), ElementsAre());
  EXPECT_THAT(steps("[-, -] sum(tensor)", "[-, -]", mesh), ElementsAre("all_reduce tensor"));
  EXPECT_THAT(steps("[-, -] sum(tensor)", "[-, -] sum(tensor)", mesh), ElementsAre());
  EXPECT_THAT(steps("[-, -] sum(tensor)", "[tensor, -]", mesh), ElementsAre("reduce_scatter tensor"));
  EXPECT_THAT(steps("[tensor, -]", "[-, -]", mesh), ElementsAre("all_gather tensor"));
  EXPECT_THAT(steps("[-, -]", "[-, tensor]", mesh), ElementsAre("shard tensor"));
  EXPECT_THAT(steps("[tensor, -]", "[-, tensor]", mesh), ElementsAre("all_to_all tensor"));
  EXPECT_THAT(steps("[data, -] sum(tensor.1)", "[data, tensor.0]", mesh),
              ElementsAre("all_reduce tensor.1", "shard tensor.0"));
  EXPECT_THAT(steps("[-, -] sum(data) max(tensor)", "[-, -]", mesh),
              ElementsAre("all_reduce data", "all_reduce tensor"));
}

TEST(Reshard, CostsWhatItMoves) {
  const Mesh mesh = Mesh::parse("tensor=4");
  auto cost = [&](const std::string& from, const std::string& to) {
    return moved_bytes(parse_sharding(from, mesh), parse_sharding(to, mesh), 4096, mesh);
  };
  EXPECT_DOUBLE_EQ(cost("[-] sum(tensor)", "[-]"), 2 * 3. / 4 * 4096);
  EXPECT_DOUBLE_EQ(cost("[-] sum(tensor)", "[tensor]"), 3. / 4 * 4096);
  EXPECT_DOUBLE_EQ(cost("[tensor]", "[-]"), 3 * 1024);
  EXPECT_DOUBLE_EQ(cost("[tensor, -]", "[-, tensor]"), 3. / 4 * 1024);
  EXPECT_DOUBLE_EQ(cost("[-]", "[tensor]"), 0);
}

TEST(Reshard, LeadsFromAnyShardingToAnyOther) {
  for (const char* name :
       {"tensor=2", "tensor=4", "data=2,tensor=2", "data=2,tensor=6", "pipeline=2,data=3,tensor=4"}) {
    const Mesh mesh = Mesh::parse(name);
    RandomShardings any{mesh, std::mt19937(7)};
    const int64_t n = mesh.ranks();
    Tensor whole(DType::i64, {n, 2 * n, n});
    for (int64_t i = 0; i < whole.elements(); ++i) set_element(whole, i, static_cast<double>((i * 7919) % 1009));
    for (int trial = 0; trial < (n > 8 ? 40 : 200); ++trial) {
      const Sharding from = any(3), to = any.after(from);
      SCOPED_TRACE(cat(name, ": ", text(from, mesh), " to ", text(to, mesh)));
      Shards shards = owing(whole, from, mesh, any.random);
      Sharding now = from;
      for (const Collective& step : reshard(from, to)) {
        shards = perform(step, shards, mesh);
        now = after(step, std::move(now));
      }
      ASSERT_EQ(now, to);
      const Tensor got = assemble(shards, to, mesh, whole.shape(), [](double a, double b) { return a != b; });
      for (int64_t i = 0; i < whole.elements(); ++i) ASSERT_EQ(element(got, i), element(whole, i)) << i;
    }
  }
}

}  // namespace
}  // namespace plait::test

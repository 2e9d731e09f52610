// The table of backends.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace runnel {
namespace {

TEST(Backends, TableIsOrderedAndFindsByName) {
  const std::vector<std::string> names = BackendNames();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.back(), "ref");
  for (const std::string& name : names) {
    auto backend = MakeBackend(name, 1);
    ASSERT_TRUE(backend.ok()) << backend.status();
    EXPECT_EQ((*backend)->name(), name);
    EXPECT_THAT((*backend)->numerics_class(), testing::StartsWith(name));
  }
  auto best = MakeBackend("auto", 1);
  ASSERT_TRUE(best.ok());
  EXPECT_EQ((*best)->name(), names.front());
}

TEST(Backends, RefusesWhatIsNotThere) {
  const absl::Status status = MakeBackend("abacus", 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("ref"));
  EXPECT_EQ(MakeBackend("ref", 0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace runnel

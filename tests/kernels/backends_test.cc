// The table of backends.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/host/loaded_backend.h"

namespace runnel {
namespace {

TEST(Backends, TableIsOrderedAndFindsByName) {
  const std::vector<std::string> names = BackendNames();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(AutoBackendNames().back(), "ref");
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

// "auto" never loads a shared object.
TEST(Backends, AutoIsWhatIsLinked) {
  EXPECT_THAT(AutoBackendNames(), testing::Not(testing::Contains("torch")));
  for (const BackendRow& row : BuiltinBackends()) {
    EXPECT_EQ(row.is_loaded(), row.name == "torch");
    if (row.is_loaded()) {
      EXPECT_TRUE(row.is_installed(row.name)) << "the build makes it";
    }
  }
}

#ifdef RUNNEL_LOADS_BACKENDS
TEST(Backends, OneThatIsNotInstalledIsNamedWithItsPath) {
  EXPECT_FALSE(IsBackendInstalled("abacus"));
  const absl::Status status = LoadBackend("abacus", 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("/lib/runnel/librunnel_backend_abacus.so is not "
                                                   "there"));
}
#endif

}  // namespace
}  // namespace runnel

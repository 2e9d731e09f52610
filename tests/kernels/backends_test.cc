// The table of backends.

#include <cstdlib>

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

// "auto" never loads a shared object, nor starts a program.
TEST(Backends, AutoIsWhatIsLinked) {
  for (const BackendRow& row : BuiltinBackends()) {
    EXPECT_EQ(row.is_loaded(), row.name == "torch" || row.name == "hexagon");
    if (row.is_loaded()) {
      EXPECT_THAT(AutoBackendNames(), testing::Not(testing::Contains(row.name)));
    }
    if (row.name == "torch") {
      EXPECT_TRUE(row.is_installed(row.name)) << "the build makes it";
    }
  }
}

TEST(Backends, WithoutAnEmulatorThereIsNoDsp) {
  const char* path = std::getenv("PATH");
  const std::string before = path == nullptr ? "" : path;
  setenv("PATH", "/nowhere", 1);
  EXPECT_THAT(BackendNames(), testing::Not(testing::Contains("hexagon")));
  const absl::Status status = MakeBackend("hexagon", 1).status();
  setenv("PATH", before.c_str(), 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::StartsWith("backend hexagon: no DSP here: "));
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

// The table of backends.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/host/loaded_backend.h"

namespace runnel::backends_test {
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

// What the executor, the listing and the tuner compile with.
TEST(BackendTraits, CompileOptionsFollowTheBackendAndTheStagesOrder) {
  const BackendTraits cpu = (*MakeBackend("cpu", 1))->traits();
  const Recipe& fp32 = **FindRecipe("fp32");
  const CompileOptions alone =
      *CompileOptionsFor(cpu, fp32, {.max_batch = 4, .one_in_flight = true});
  EXPECT_TRUE(alone.recomputes);
  EXPECT_TRUE(alone.one_in_flight);
  EXPECT_TRUE(alone.steps_in_backward);
  EXPECT_EQ(alone.max_batch, 4);
  const CompileOptions several =
      *CompileOptionsFor(cpu, fp32, {.max_batch = 4, .accumulates = true, .one_in_flight = true});
  EXPECT_FALSE(several.steps_in_backward) << "a step has several micro-batches";
  EXPECT_FALSE(CompileOptionsFor(cpu, fp32, {.max_batch = 4})->steps_in_backward);
}

TEST(BackendTraits, WhatABackendLacksIsSaidWithWhatToTakeInstead) {
  const BackendTraits plain = {.name = "abacus"};
  const Recipe& niti = **FindRecipe("niti");
  const auto error = [&](const StagePrograms& programs) {
    const absl::Status status = CompileOptionsFor(plain, niti, programs).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    return std::string(status.message());
  };
  EXPECT_THAT(error({.rescale = {.mode = RescaleMode::kAdaptive}}),
              testing::HasSubstr("--rescale adaptive: backend abacus keeps no scales; take "));
  EXPECT_THAT(error({.batch_split = {.mode = BatchSplitMode::kShifted, .samples = 8}}),
              testing::HasSubstr("--batch-split shifted:8: backend abacus shifts no slices; take"));
}

// Each option is of a backend in the table.
TEST(Backends, HaveTheOptionsOfTheirRows) {
  for (const BackendOptionRow& option : BackendOptionRows()) {
    const auto rows = BuiltinBackends();
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const BackendRow& row) {
      return row.name == option.backend;
    })) << option.backend;
  }
}

// "auto" never loads a shared object, nor starts a program.
TEST(Backends, AutoIsWhatIsLinked) {
  for (const BackendRow& row : BuiltinBackends()) {
    EXPECT_EQ(row.is_loaded(),
              row.name == "torch" || row.name == "hexagon" || row.name == "opencl");
    if (row.is_loaded()) {
      EXPECT_THAT(AutoBackendNames(), testing::Not(testing::Contains(row.name)));
    }
#ifdef RUNNEL_LOADS_TORCH
    if (row.name == "torch") {
      EXPECT_TRUE(row.is_installed(row.name, {})) << "the build makes it";
    }
#endif
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

// An emulated DSP is slower than any processor.
TEST(Backends, AutoMeasuresADspThatIsADeviceAndNoEmulator) {
  const std::string library = testing::TempDir() + "/libcdsprpc.so";
  std::ofstream(library) << "to be loaded later";
  EXPECT_THAT(BackendsWorthMeasuring(), testing::Not(testing::Contains("hexagon")));
  setenv("RUNNEL_DSP_LIBRARY", library.c_str(), 1);
  EXPECT_THAT(BackendsWorthMeasuring(), testing::Contains("hexagon"));
  EXPECT_THAT(BackendsWorthMeasuring(BackendOptions::Parse("hexagon.dsp=emulated").value()),
              testing::Not(testing::Contains("hexagon")));
  unsetenv("RUNNEL_DSP_LIBRARY");
}

// In a process of its own: OpenCL's loader looks for drivers once.
TEST(BackendsDeathTest, WithoutADriverThereIsNoOpenCl) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto ask = [] {
    setenv("OCL_ICD_VENDORS", "/nowhere", 1);
    const std::string listed = absl::StrJoin(BackendNames(), ",");
    const absl::Status status = MakeBackend("opencl", 1).status();
    std::fprintf(stderr, "%s %s", listed.c_str(), std::string(status.message()).c_str());
    std::exit(absl::IsInvalidArgument(status) ? 3 : 0);
  };
  EXPECT_EXIT(ask(), testing::ExitedWithCode(3),
              "cpu,small,ref.* backend opencl: no OpenCL here: .*; take --backend cpu");
}

#ifdef RUNNEL_LOADS_OPENCL
TEST(Backends, WithoutItsVendorHostThereIsNothingToMeasure) {
  const auto measured = [](const std::string& host) {
    return BackendsWorthMeasuring(
        BackendOptions::Parse("opencl.host=" + host + "; opencl.library=/nowhere/libOpenCL.so")
            .value());
  };
  EXPECT_THAT(measured("/nowhere/host"), testing::IsEmpty());
  EXPECT_THAT(measured("/bin/sh"), testing::ElementsAre("opencl"));
}

absl::Status WithOpenClLibrary(const std::string& library) {
  BackendSettings settings;
  settings.options = BackendOptions::Parse("opencl.library=" + library).value();
  return MakeBackend("opencl", settings).status();
}

// Each death test is a process of its own: what is loaded stays.
TEST(BackendsDeathTest, LibrariesThatAreNotOpenCl) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto ask = [](const std::string& library) {
    std::fprintf(stderr, "%s", std::string(WithOpenClLibrary(library).message()).c_str());
    std::exit(3);
  };
  EXPECT_EXIT(ask("/nowhere/libOpenCL.so"), testing::ExitedWithCode(3),
              "no OpenCL here: no library of OpenCL can be loaded: /nowhere/libOpenCL.so "
              ".cannot open shared object file.*opencl.library=PATH");
  EXPECT_EXIT(ask("libm.so.6"), testing::ExitedWithCode(3), "libm.so.6 .has no clGetPlatformIDs");
  // Of another architecture, or no library at all.
  const std::string text = testing::TempDir() + "/libOpenCL.so";
  std::ofstream(text) << "not a library";
  EXPECT_EXIT(ask(text), testing::ExitedWithCode(3), "libOpenCL.so .file too short|invalid ELF");
  EXPECT_EXIT(ask("libOpenCL.so.1"), testing::ExitedWithCode(3), "^$");
}

TEST(BackendsDeathTest, AVendorHostLoadsTheLibraryOrSaysWhyNot) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto ask = [](const std::string& host, const std::string& library) {
    BackendSettings settings;
    settings.options =
        BackendOptions::Parse("opencl.host=" + host + "; opencl.library=" + library).value();
    const auto made = MakeBackend("opencl", settings);
    std::fprintf(
        stderr, "%s",
        made.ok() ? (*made)->description().c_str() : std::string(made.status().message()).c_str());
    std::exit(3);
  };
  EXPECT_EXIT(
      ask("/nowhere/host", "libOpenCL.so.1"), testing::ExitedWithCode(3),
      "no library of OpenCL can be loaded: the vendor host /nowhere/host cannot be started: "
      "No such file");
  EXPECT_EXIT(ask(here + "/runnel-vendor-host", "/nowhere/libOpenCL.so"),
              testing::ExitedWithCode(3),
              "can load none of the libraries: /nowhere/libOpenCL.so: cannot open shared object");
  EXPECT_EXIT(ask(here + "/runnel-vendor-host", "libOpenCL.so.1"), testing::ExitedWithCode(3),
              "by vendor host with libOpenCL.so.1|no OpenCL driver is installed");
}
#endif

#ifdef RUNNEL_LOADS_BACKENDS
TEST(Backends, OneThatIsNotInstalledIsNamedWithItsPath) {
  EXPECT_FALSE(IsBackendInstalled("abacus"));
  const absl::Status status = LoadBackend("abacus", BackendSettings()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::HasSubstr("/lib/runnel/librunnel_backend_abacus.so is not "
                                                   "there"));
}
#endif

}  // namespace
}  // namespace runnel::backends_test
